"""Tests that other users of the machine need a token: over TCP, over Unix sockets and in the live view."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import REPOSITORY, heaptide
from support.controlled_program import BASE, ControlledProgram, ask, start_program
from support.waiting import wait_until

pytestmark = pytest.mark.once

NOBODY, OTHER = 65534, 65533


@pytest.fixture(autouse=True)
def root() -> None:
    """Skip the tests that become other users, unless root runs them."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")


# Becomes another user after all imports, because that user may not be able to read the modules.
SWITCH_USER = """
import encodings.idna, http.client, json, os, socket, sys
sys.path.insert(0, {tests!r})
from support.controlled_program import ask
os.setgroups([])
os.setgid({user})
os.setuid({user})
arguments = {arguments!r}
"""


def as_user(user: int, script: str, arguments: Any) -> Any:
    """Run a script as another user. It reads `arguments` and prints its result as JSON."""
    text = SWITCH_USER.format(
        tests=str(REPOSITORY / "tests" / "python"), user=user, arguments=arguments
    ) + textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


REQUEST = """
    answers = [ask(*request) for request in arguments]
    print(json.dumps([[one.status, "" if one.status == 200 else one.json()["error"]] for one in answers]))
"""


def answers(user: int, address: str, *requests: tuple[Any, ...], **headers: str) -> list[tuple[int, str]]:
    """Send requests (method, path, body) as a user, and return their statuses and error messages."""
    arguments = [
        (address, method, f"{BASE}/{path}", body[0] if body else None, headers) for method, path, *body in requests
    ]
    return [(status, message) for status, message in as_user(user, REQUEST, arguments)]


def statuses(user: int, address: str, *requests: tuple[Any, ...], **headers: str) -> list[int]:
    """Send requests as a user, and return only their statuses."""
    return [status for status, _ in answers(user, address, *requests, **headers)]


STATUS = ("GET", "status")
REQUESTS = [
    ("GET", "status"),
    ("GET", "sessions"),
    ("POST", "start"),
    ("GET", "report"),
    ("POST", "heap"),
    ("POST", "stop"),
]


def test_another_user_needs_the_token_over_loopback_and_root_does_not(program: ControlledProgram) -> None:
    (token,) = (program.folder / "run").glob("*/token")
    assert token.stat().st_mode & 0o777 == 0o600
    for status, message in answers(NOBODY, program.address, *REQUESTS):
        assert status == 401
        assert message.endswith(f"send Authorization: Bearer TOKEN, with the token in {token}")
    assert statuses(NOBODY, program.address, *REQUESTS, Authorization="Bearer x") == [401] * len(REQUESTS)
    assert program.get("sessions").json()["sessions"] == []
    assert statuses(0, program.address, *REQUESTS) == [200] * len(REQUESTS)
    assert statuses(NOBODY, program.address, *REQUESTS, Authorization=program.bearer()) == [200] * len(REQUESTS)
    assert statuses(NOBODY, program.address, ("GET", "docs")) == [200]


def test_every_documented_route_refuses_another_user(program: ControlledProgram) -> None:
    document = ask(program.address, "GET", "/openapi.json").json()
    requests: list[tuple[Any, ...]] = [
        (program.address, method.upper(), re.sub(r"{\w+}", "x", path), None, {})
        for path, operations in document["paths"].items()
        for method in operations
    ]
    assert len(requests) > 30
    requests += [(program.address, "GET", path, None, {}) for path in ("/metrics", "/debug/pprof/heap")]
    requests.append((program.address, "POST", f"{BASE}/heap", {"values": True}, {}))
    found = as_user(NOBODY, REQUEST, requests)
    assert [request[1:3] for request, (status, _) in zip(requests, found, strict=True) if status != 401] == []


def test_memory_contents_and_deletion_need_the_token_even_from_the_same_user(program: ControlledProgram) -> None:
    session = program.post("start")["session"]
    program.post("stop")
    requests = [("POST", "heap", {"values": True}), ("DELETE", f"sessions/{session}")]
    for status, message in answers(0, program.address, *requests):
        assert status == 401
        assert "memory contents and deletion need a token, even from the program's own user" in message
    assert statuses(NOBODY, program.address, *requests) == [401, 401]
    assert statuses(0, program.address, ("POST", "heap", {"values": False})) == [200]
    assert statuses(0, program.evaluate("control.socket"), requests[0]) == [200]
    assert statuses(0, program.address, *requests, Authorization=program.bearer()) == [200, 200]


SERVED_BY_NOBODY = """
    import os
    import sys
    import heaptide.control

    os.setgroups([])
    os.setgid({user})
    os.setuid({user})
    control = heaptide.control.start('0')
    print(control.address, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def address_of_nobody() -> Iterator[str]:
    """The address of a program that runs as an ordinary user."""
    # Other users cannot enter the folders of pytest.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "run").mkdir()
        (folder / "sessions").mkdir()
        for subfolder in ("run", "sessions"):
            os.chown(folder / subfolder, NOBODY, NOBODY)
        script = textwrap.dedent(SERVED_BY_NOBODY.format(user=NOBODY))
        program = ControlledProgram([sys.executable, "-c", script], folder)
        yield program.address
        program.stop()


def test_own_user_and_root_pass_and_another_ordinary_user_does_not(address_of_nobody: str) -> None:
    found = {user: statuses(user, address_of_nobody, STATUS) for user in (NOBODY, OTHER, 0)}
    assert found == {NOBODY: [200], OTHER: [401], 0: [200]}


@pytest.mark.parametrize("address", ["[::1]:0", "localhost:0"])
def test_users_are_distinguished_at_every_loopback_address(tmp_path: Path, address: str) -> None:
    try:
        socket.socket(socket.AF_INET6).bind(("::1", 0))
    except OSError:
        pytest.skip("no IPv6")
    program = start_program(tmp_path, repr(address))
    assert statuses(0, program.address, STATUS) == [200]
    assert statuses(NOBODY, program.address, STATUS) == [401]
    program.stop()


def test_closed_connection_of_another_user_is_not_taken_for_root(program: ControlledProgram) -> None:
    # The kernel shows root as the owner of a socket that is closed but still sends its data.
    host, port = program.address.removeprefix("http://").split(":")
    request = f"POST {BASE}/start HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    script = """
        for _ in range(50):
            with socket.create_connection(arguments[:2]) as connection:
                connection.sendall(arguments[2])
        print(50)
    """
    assert as_user(NOBODY, script, (host, int(port), request)) == 50
    assert program.get("status").json()["state"] == "stopped"
    assert program.get("sessions").json()["sessions"] == []


def test_unix_socket_opened_to_others_asks_them_for_the_token() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        path = folder / "control.sock"
        program = start_program(folder, f"'unix:{path}'")
        path.chmod(0o666)
        assert statuses(0, program.address, ("POST", "heap", {"values": True})) == [200]
        assert statuses(NOBODY, program.address, STATUS) == [401]
        assert statuses(NOBODY, program.address, STATUS, Authorization=program.bearer()) == [200]
        program.stop()


def test_ctl_finds_the_token_of_a_program_by_its_address(program: ControlledProgram) -> None:
    session = program.post("start")["session"]
    program.post("stop")
    env = {**os.environ, "HEAPTIDE_RUNTIME_DIR": str(program.folder / "run")}
    done = heaptide("ctl", "--url", program.address, "delete", "--session", session, env=env, check=False)
    assert done.returncode == 0 and session in done.stdout, done.stderr
    # Another program at that address does not receive the token.
    with socket.create_server(("127.0.0.1", 0)) as impostor:
        url = f"http://127.0.0.1:{impostor.getsockname()[1]}"
        command = [sys.executable, "-m", "heaptide", "ctl", "--url", url, "status"]
        client = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        connection, _ = impostor.accept()
        with connection:
            assert b"Authorization" not in connection.recv(4096)
        client.wait()


def test_list_without_a_match_does_not_deny_that_programs_are_running(program: ControlledProgram) -> None:
    env = {**os.environ, "HEAPTIDE_RUNTIME_DIR": str(program.folder / "run")}
    listed = heaptide("ctl", "list", env=env).stdout
    assert f"pid {program.process.pid}" in listed
    assert heaptide("ctl", "list", "--name", "*", env=env).stdout == listed
    nothing = heaptide("ctl", "list", "--name", "celery*", env=env).stdout
    assert nothing == "no running program with the control API matches\n"
    env["HEAPTIDE_RUNTIME_DIR"] = str(program.folder / "elsewhere")
    assert heaptide("ctl", "list", env=env).stdout == "no program with the control API is running\n"


@pytest.mark.parametrize("token", ["", "s3cret"])
def test_live_view_asks_other_users_for_a_token(tmp_path: Path, token: str) -> None:
    script = "import sys\nkept = bytearray(5_000_000)\nprint('ready', flush=True)\nsys.stdin.read()"
    env = {**os.environ, "HEAPTIDE_RUNTIME_DIR": str(tmp_path / "run"), "HEAPTIDE_TOKEN": token}
    command = [sys.executable, "-m", "heaptide", "run", "--live-remote", "-c", script]
    program = subprocess.Popen(
        command, env=env, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert program.stderr is not None and program.stdout is not None
    found = re.search(r"heaptide live (\d+)", program.stderr.readline())
    assert found is not None
    port = int(found[1])
    assert program.stdout.readline() == "ready\n"
    created = tmp_path / "run" / "live" / str(port) / "token"
    if not token:
        wait_until(lambda: created.exists() and created.read_text(), "the token")
    secret = token or created.read_text().strip()

    script = """
        port, token = arguments
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"tideLIV1")
            received = [connection.recv(8).decode()]
            if received != ["tideLIV1"]:
                connection.sendall(len(token).to_bytes(2, "little") + token.encode())
                received.append(connection.recv(8).decode())
        print(json.dumps(received))
    """
    assert as_user(0, script, (port, "")) == ["tideLIV1"]
    assert as_user(NOBODY, script, (port, "wrong")) == ["tideTOK1", ""]
    assert as_user(NOBODY, script, (port, secret)) == ["tideTOK1", "tideLIV1"]
    # The capture is read four times a second at most, so the first numbers may be of the moment before the allocation.
    wait_until(
        lambda: re.search(r"heap 5\.\d+ MB", heaptide("live", "--plain", str(port), env=env).stdout),
        "the memory of the program",
    )
    program.communicate("")
    assert program.returncode == 0
    assert not list(tmp_path.glob("run/live/*"))


def test_viewer_of_another_user_prints_how_to_get_access(tmp_path: Path) -> None:
    env = {**os.environ, "HEAPTIDE_RUNTIME_DIR": str(tmp_path / "run")}
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = [sys.executable, "-m", "heaptide", "live", "--plain", str(port)]
        viewer = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
        connection, _ = server.accept()
        with connection:
            assert connection.recv(8) == b"tideLIV1"
            connection.sendall(b"tideTOK1")
            # This user has no token for the port, so none is sent.
            assert connection.recv(100) == b""
        _, message = viewer.communicate()
    assert viewer.returncode == 1
    assert f"the program at port {port} belongs to another user" in message and "HEAPTIDE_TOKEN" in message
