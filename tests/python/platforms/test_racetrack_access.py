"""Tests who can use the routes of a served job: Racetrack's routes need no token, the profiler's others do."""

from __future__ import annotations

import re
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.controlled_program import ControlledProgram
from support.served_job import EXAMPLE, MEMRAY, PERFORM, leak, serve

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlledProgram]:
    """A served job without a profiler."""
    job = serve(tmp_path_factory.mktemp("served"))
    yield job
    job.stop()


def calls(served: ControlledProgram) -> str:
    """Return the number of calls of the job, as its metrics show it."""
    found = re.search(r"job_perform_seconds_count (\d+)", served.ask("GET", "/metrics").text)
    assert found is not None
    return found[1]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Host: a", 200),
        ("", 400),
        ("Host: a\r\nHost: a", 400),
        ("Host: a\r\nContent-Length: +0", 400),
        ("Host: a\r\nContent-Length: 1_0", 400),
        ("Host: a\r\nContent-Length: 0\r\nContent-Length: 1", 400),
    ],
)
def test_ambiguous_requests_are_refused(served: ControlledProgram, headers: str, status: int) -> None:
    host, port = served.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        lines = ["GET /live HTTP/1.1", *([headers] if headers else []), "Connection: close", "", ""]
        connection.sendall("\r\n".join(lines).encode())
        answer = connection.makefile("rb").read()
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())


@pytest.mark.parametrize(
    "part",
    ["POST {path} HTTP/1.1\r\nHost: a\r\n", "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{{}}"],
    ids=["head", "body"],
)
def test_cut_request_does_not_run_the_job(served: ControlledProgram, part: str) -> None:
    before = calls(served)
    host, port = served.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(part.format(path=PERFORM).encode())
        connection.shutdown(socket.SHUT_WR)
        assert b" 200 " not in connection.makefile("rb").read()
    assert calls(served) == before


@pytest.mark.usefixtures("many_open_files")
def test_silent_connections_do_not_keep_callers_out(served: ControlledProgram) -> None:
    host, port = served.address.removeprefix("http://").split(":")
    perform = f"POST {PERFORM} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n".encode()
    with ExitStack() as stack:
        silent = []
        # More than the job may have open, as idle connections and as half-sent requests.
        for number in range(1200):
            connection = stack.enter_context(socket.create_connection((host, int(port))))
            connection.sendall(perform if number % 2 else b"")
            silent.append(connection)
        assert served.ask("POST", PERFORM, {}).status == 200
        poll = select.poll()
        for connection in silent:
            poll.register(connection, select.POLLRDHUP)
        assert len(poll.poll(0)) < len(silent)
    assert len(list(Path(f"/proc/{served.process.pid}/fd").iterdir())) < 1000


def test_strangers_can_use_racetracks_routes_and_need_a_token_for_all_others(tmp_path: Path) -> None:
    job = serve(tmp_path, EXAMPLE, "--host", "0.0.0.0", MEMRAY_PROFILER="true")
    job.address = job.address.replace("0.0.0.0", "127.0.0.1")
    (token,) = (tmp_path / "run").glob("*/token")
    assert f"for the profiler's other routes the token in {token}" in job.stderr()
    leak(job, 1)
    memray = [("POST", "stop"), ("GET", "stats"), ("GET", "flamegraph"), ("GET", "report"), ("POST", "start")]
    # A gateway sends the host name of the platform, which distinguishes its clients from this machine's user.
    for headers in ({}, {"Host": "racetrack.example"}):
        for method, route in memray:
            assert job.ask(method, f"{MEMRAY}/{route}", **headers).status == 200, route
    outside = {"Host": "racetrack.example"}
    others = [("GET", "status"), ("GET", "stats"), ("GET", "sessions"), ("POST", "stop"), ("POST", "heap")]
    for method, route in others:
        refused = job.ask(method, route, **outside)
        assert refused.status == 401 and str(token) in refused.json()["error"], route
        assert job.ask(method, route, Authorization=job.bearer(), **outside).status == 200
    session = job.get("status").json()["session"] or job.get("sessions").json()["sessions"][0]["id"]
    for method, route, body in [("DELETE", f"sessions/{session}", None), ("POST", "heap", {"values": True})]:
        assert job.ask(method, route, body).status == 401
        assert job.ask(method, route, body, Authorization=job.bearer()).status == 200
    job.stop()


def test_gateway_that_authenticates_replaces_the_token_except_for_memory_contents(tmp_path: Path) -> None:
    job = serve(tmp_path, EXAMPLE, "--host", "0.0.0.0", "--guarded-elsewhere", MEMRAY_PROFILER="true")
    job.address = job.address.replace("0.0.0.0", "127.0.0.1")
    assert job.stderr() == ""
    assert job.ask("GET", "status", Host="racetrack.example").status == 200
    assert job.ask("POST", "heap", {"values": True}, Host="racetrack.example").status == 401
    job.stop()
