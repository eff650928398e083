"""Tests what the control API refuses: wrong limits, unusable paths, missing tokens, and foreign origins."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import heaptide
from support.controlled_program import BASE, ControlledProgram, ask, start_program
from support.messages import one_sentence

pytestmark = pytest.mark.once


@pytest.mark.parametrize("words", ["keep_sessions=-1", "keep_bytes='1G'", "keep_bytes=2**70", "requests_per_second=0"])
def test_invalid_limit_is_refused_in_one_sentence(tmp_path: Path, words: str) -> None:
    text = f"import heaptide.control\nheaptide.control.start('0', {words})"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=tmp_path)
    name = words.partition("=")[0]
    assert re.fullmatch(
        rf"ValueError: {name} is .*: it must be a whole number from [01] on", done.stderr.splitlines()[-1]
    )


def test_file_at_the_path_of_the_socket_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    env = {**os.environ, "HEAPTIDE_CONTROL": f"unix:{file}", "HEAPTIDE_RUNTIME_DIR": str(tmp_path / "run")}
    done = subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout, file.read_text()) == (0, "1\n", "mine")
    message = f"control cannot listen at unix:{file} (it exists and is not a socket); the program continues"
    assert done.stderr == f"heaptide: {message}\n"


def test_unusable_runtime_folder_is_reported_and_the_program_continues(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    env = {**os.environ, "HEAPTIDE_CONTROL": "0", "HEAPTIDE_RUNTIME_DIR": str(tmp_path / "file" / "run")}
    done = subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout) == (0, "1\n")
    message = one_sentence(done.stderr)
    assert message.startswith(f"the folder {tmp_path}/file/run/")
    assert "of this program's processes cannot be used (Not a directory" in message
    assert message.endswith("; the program continues")


def ask_for_other_files(program: ControlledProgram, folder: Path) -> None:
    """Check that requests that name files of this folder, which lies next to the sessions, are refused."""
    folder.mkdir()
    (folder / "session.json").write_text("{}")
    (folder / "1.tide").write_text("x")
    for name in [f"..%2f{folder.name}", f"../{folder.name}", f"%2e%2e/{folder.name}", ".", "..", "%00", "sessions"]:
        for route in ["", "/report", "/stats"]:
            answer = program.ask("GET", f"{BASE}/sessions/{name}{route}")
            assert answer.status in (404, 400), (name, route)
    for option in ["output", "o", "--output", "captures", "process"]:
        for file in ["new", "1.tide"]:
            answer = program.ask("GET", f"stats?{option}={folder}/{file}")
            assert answer.status in (400, 404), (option, file)
    assert program.ask("GET", f"diff?base={folder}/1.tide").status == 404
    assert sorted(os.listdir(folder)) == ["1.tide", "session.json"]


def test_requests_that_name_other_files_are_refused(program: ControlledProgram, tmp_path: Path) -> None:
    program.post("start")
    ask_for_other_files(program, tmp_path / "other-files")


def test_no_path_in_a_request_reaches_the_file_system(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if shutil.which("strace") is None:
        pytest.skip("no strace: install it to run this test")
    # Records all system calls with a path, of the program and of the processes that render reports.
    calls = tmp_path / "calls.txt"
    strace = ("strace", "-f", "-qq", "-s", "4096", "-e", "trace=%file", "-o", calls)
    program = start_program(tmp_path, traced_by=strace)
    request.addfinalizer(program.finish)
    session = program.post("start")["session"]
    ask_for_other_files(program, tmp_path / "other-files")
    program.get(f"sessions/{session}/stats")
    program.finish()
    lines = calls.read_text().splitlines()
    # The arguments of a new process are no accesses.
    assert [line for line in lines if "other-files" in line and "execve(" not in line] == []
    # The trace does contain the files that the program and its renderer opened for the last report.
    renderers = {line.split()[0] for line in lines if "execve(" in line and "heaptide.command_process" in line}
    opened = rf"(\d+) +open(at)?\(.*/{re.escape(session)}/\d+\.tide"
    openers = {found[1] for line in lines if (found := re.match(opened, line))}
    assert openers & renderers and openers - renderers


def test_redirects_stay_on_this_server(program: ControlledProgram) -> None:
    redirects = {
        "/": "/docs",
        "//evil.example/": "/evil.example/docs",
        "/\\evil.example/": "/evil.example/docs",
        f"//evil.example{BASE}/status/": f"/evil.example{BASE}/status",
    }
    for path, location in redirects.items():
        answer = program.ask("GET", path)
        assert (answer.status, answer.headers["Location"]) == (307, location)
    # A framework passes the path with its percent escapes decoded.
    headers = program.evaluate("control.handle('GET', '/a\\r\\nSet-Cookie: b/').headers")
    assert "/a%0D%0ASet-Cookie:%20b/docs" in headers


def test_too_large_requests_are_refused(program: ControlledProgram) -> None:
    assert program.ask("POST", "start", b" " * 70_000).status == 413
    assert program.ask("GET", "status", X_Long="x" * 20_000).status == 431


def test_requests_beyond_the_rate_limit_get_429_with_retry_after(tmp_path: Path) -> None:
    program = start_program(tmp_path, "'0', requests_per_second=1")
    answers = [program.ask("GET", "sessions") for _ in range(200)]
    refused = [answer for answer in answers if answer.status != 200]
    assert refused and all(answer.status == 429 for answer in refused)
    assert refused[0].headers["Retry-After"] == "1"
    program.stop()


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_listening_on_all_addresses_needs_a_token(tmp_path: Path, address: str) -> None:
    script = f"import heaptide.control\nheaptide.control.start({address!r})"
    done = heaptide("run", "-q", "-c", script, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert "set a token" in done.stderr


def test_token_is_required_and_never_disclosed(tmp_path: Path) -> None:
    program = start_program(tmp_path, "'0', token='s3cret-token', token_header='X-Job-Auth'")
    refused = program.ask("GET", "status")
    assert refused.status == 401 and refused.headers["Www-Authenticate"] == "Bearer"
    assert program.ask("GET", "status", Authorization="Bearer wrong").status == 401
    assert program.ask("GET", "status", Authorization="Bearer s3cret-token").status == 200
    answer = program.ask("GET", "status", X_Job_Auth="s3cret-token")
    assert answer.status == 200
    # The list of routes is public and contains no secrets.
    for path in ["/docs", "/openapi.json"]:
        shown = program.ask("GET", path)
        assert shown.status == 200 and b"s3cret" not in shown.body
    assert "s3cret" not in answer.text + program.stderr()
    schemes = program.ask("GET", "/openapi.json").json()["components"]["securitySchemes"]
    assert schemes["header"] == {"type": "apiKey", "in": "header", "name": "X-Job-Auth"}
    (tmp_path / "token").write_text(" s3cret-token\n")
    env = {**os.environ, "HEAPTIDE_TOKEN_FILE": str(tmp_path / "token")}
    assert '"pid"' in heaptide("ctl", "--url", program.address, "status", env=env).stdout
    program.stop()


@pytest.mark.parametrize(("content", "message"), [("\n", "holds no token"), (None, "cannot be read (No such file")])
def test_token_file_without_a_token_prevents_the_start_of_the_control_api(
    tmp_path: Path, content: str | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
    env = {**os.environ, "HEAPTIDE_TOKEN_FILE": "token", "HEAPTIDE_RUNTIME_DIR": str(tmp_path / "run")}
    (tmp_path / "job.py").write_text("def perform(): ...")
    for host in ("0.0.0.0", "127.0.0.1"):
        serving = ["serve", "job.py", "--host", host, "--port", "0"]
        done = heaptide(*serving, check=False, cwd=tmp_path, env={**env, "HEAPTIDE_PROFILER": "yes"})
        assert done.returncode == 1 and message in done.stderr and "Traceback" not in done.stderr
    done = subprocess.run(
        [sys.executable, "-c", "from heaptide import control; print(control._controls)"],
        cwd=tmp_path,
        env={**env, "HEAPTIDE_CONTROL": "0"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "[]\n") and message in done.stderr


def test_requests_from_other_origins_and_host_names_are_refused(program: ControlledProgram, tmp_path: Path) -> None:
    assert program.ask("POST", "start", Origin="http://evil.example").status == 403
    assert program.ask("GET", "status", Host="evil.example").status == 403
    assert program.ask("GET", "status", Origin=program.address).status == 200
    # Only a proxy in front of the program's own web server makes this header trustworthy.
    forwarded = {"Origin": "http://evil.example", "X_Forwarded_Host": "evil.example"}
    assert program.ask("GET", "status", **forwarded).status == 403
    assert "Access-Control-Allow-Origin" not in program.ask("OPTIONS", "start").headers
    (tmp_path / "other").mkdir()
    arguments = "'0', cors_origin='http://friend.example', token='x', token_header='X-Job-Auth'"
    open_program = start_program(tmp_path / "other", arguments)
    answer = open_program.ask("GET", "status", Origin="http://friend.example", X_Job_Auth="x")
    assert answer.status == 200
    assert answer.headers["Access-Control-Allow-Origin"] == "http://friend.example"
    # A browser's preflight request carries no token.
    preflight = open_program.ask("OPTIONS", "start", Origin="http://friend.example")
    assert preflight.status == 204 and "X-Job-Auth" in preflight.headers["Access-Control-Allow-Headers"]
    assert "POST" in preflight.headers["Access-Control-Allow-Methods"]
    assert open_program.ask("OPTIONS", "start", Origin="http://evil.example").status == 403
    open_program.stop()


def test_mounted_routes_need_the_token_only_for_memory_contents_and_deletion(program: ControlledProgram) -> None:
    session = program.post("start")["session"]
    program.post("stop")
    requests = {
        ("GET", "/status", b""): ("200", "200"),
        ("POST", "/heap", b"{}"): ("200", "200"),
        ("POST", "/heap", b'{"values": true}'): ("401", "200"),
        ("DELETE", f"/sessions/{session}", b""): ("401", "200"),
    }
    for (method, path, body), expected in requests.items():
        for headers, status in zip([[], [("Authorization", program.bearer())]], expected, strict=True):
            line = f"control.handle({method!r}, {BASE + path!r}, '', {headers!r}, {body!r}).status"
            assert program.evaluate(line) == status, (path, body, headers)


def test_unix_socket_is_private_to_the_user_and_removed_at_exit(tmp_path: Path) -> None:
    program = start_program(tmp_path, "'unix:control.sock'")
    path = tmp_path / "control.sock"
    assert program.address == "unix:control.sock"
    assert path.stat().st_mode & 0o077 == 0
    assert ask(f"unix:{path}", "GET", f"{BASE}/status").json()["pid"] == program.process.pid
    assert program.process.stdin is not None
    program.process.stdin.close()
    program.process.wait()
    assert not path.exists()
    program.stop()
