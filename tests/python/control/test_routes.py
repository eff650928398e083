"""Tests the routes of the control API in a running program, and that they do not disturb the program."""

from __future__ import annotations

import concurrent.futures
import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import heaptide
from support.controlled_program import BASE, ControlledProgram, start_program
from support.waiting import wait_until

pytestmark = pytest.mark.once


def test_status_reports_the_current_recording(program: ControlledProgram) -> None:
    before = program.get("status").json()
    assert (before["state"], before["session"], before["pid"]) == ("stopped", None, program.process.pid)
    started = program.post("start")
    during = program.get("status").json()
    assert (during["state"], during["session"]) == ("recording", started["session"])
    assert during["output"] == started["output"]
    assert [process["pid"] for process in during["processes"]] == [program.process.pid]


def test_routes_answer_while_the_program_holds_the_gil(program: ControlledProgram) -> None:
    program.post("start")
    program.evaluate("leak(3)")
    assert program.process.stdin is not None
    # Reads two bytes in C without releasing the GIL: no other Python code runs until they arrive.
    program.process.stdin.write("__import__('ctypes').PyDLL(None).read(0, b'  ', 2)\n")
    program.process.stdin.flush()
    assert program.get("status").json()["state"] == "recording"
    assert "job.py" in program.get("stats").text
    assert program.get("sessions").json()["sessions"][0]["state"] == "recording"
    assert program.evaluate(".") == "2"


# Blocks in C without releasing the GIL, like a library that forgets to release it, until a byte is written.
HOLDS_THE_GIL = """
    import ctypes
    import os
    import sys
    import heaptide.control

    heaptide.control._INTERPRETER_TIMEOUT_SECONDS = 0.2
    control = heaptide.control.start_as_set("0")
    print(control.address)
    for line in sys.stdin:
        print(ctypes.PyDLL(None).read(int(line), b" ", 1))
"""


def test_start_and_stop_are_pending_while_the_program_holds_the_gil(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(textwrap.dedent(HOLDS_THE_GIL))
    hold, release = os.pipe()
    os.set_inheritable(hold, True)
    program = ControlledProgram([sys.executable, tmp_path / "job.py"], tmp_path, close_fds=False)
    assert program.process.stdin is not None
    for action, state in (("start", "recording"), ("stop", "stopped")):
        program.process.stdin.write(f"{hold}\n")
        program.process.stdin.flush()
        wait_until(lambda: waits_for(program.process.pid, hold), "the call that holds the GIL")
        answer = program.ask("POST", action)
        assert (answer.status, answer.json()["result"]) == (202, "pending")
        # The state has not changed yet, and other routes answer.
        assert program.get("status").json()["state"] != state
        assert program.get("sessions").status == 200
        os.write(release, b".")
        assert program.line() == "1"
        wait_until(
            lambda wanted=state: program.get("status").json()["state"] == wanted, f"the {action} that was pending"
        )
    (session,) = program.get("sessions").json()["sessions"]
    assert session["state"] == "finished"
    assert "Total allocations" in program.get("stats").text
    program.stop()
    os.close(hold)
    os.close(release)


def waits_for(pid: int, descriptor: int) -> bool:
    """Return whether the main thread of a process is blocked in a system call on this descriptor."""
    try:
        call = Path(f"/proc/{pid}/syscall").read_text().split()
    except OSError:
        pytest.skip("the kernel does not show in which system call a process is blocked")
    return len(call) > 2 and int(call[1], 16) == descriptor


def test_start_takes_modes_and_refuses_unknown_options(program: ControlledProgram) -> None:
    started = program.post("start", {"mode": "objects", "interval_ms": 100, "follow_fork": True})
    session = program.get(f"sessions/{started['session']}").json()
    assert session["options"]["mode"] == "objects"
    assert session["options"]["follow_fork"] is True
    for body, status in [({"mode": "fast"}, 422), ({"objects": True}, 422), ([], 422), (b"{", 400)]:
        answer = program.ask("POST", "start", body)
        assert answer.status == status
        assert set(answer.json()) == {"error", "type"}


def test_value_refused_by_the_command_is_answered_with_its_sentence_alone(program: ControlledProgram) -> None:
    program.post("start")
    refused = program.ask("GET", "stats?from=abc")
    sentence = "invalid value 'abc' for '--from <TIME>': must be a number of seconds, or a number with ms, s, m or h"
    assert (refused.status, refused.json()) == (400, {"error": sentence, "type": "ArgumentError"})


def test_query_parameters_are_options_checked_by_the_command(program: ControlledProgram) -> None:
    program.post("start")
    program.evaluate("leak(1)")
    assert "leak" in program.get("tree?biggest-allocs=1&leaks=true").text
    assert len(program.get("stats?format=json&num_largest=1").json()["top_allocations_by_size"]) == 1
    wrong = program.ask("GET", "tree?depth=many")
    assert wrong.status == 400 and "many" in wrong.json()["error"]
    unknown = program.ask("GET", "tree?colour=red")
    assert unknown.status == 400 and "biggest-allocs" in unknown.json()["error"]


def test_native_functions_can_be_hidden_and_an_unknown_scope_is_refused(program: ControlledProgram) -> None:
    program.post("start", {"native": True})
    program.evaluate("leak(1)")
    refused = program.ask("POST", "stop?scope=proces")
    assert (refused.status, refused.json()["type"]) == (400, "ArgumentError")
    assert program.get("status").json()["state"] == "recording"
    program.post("stop")
    shown, hidden = program.get("tree?native=1").text, program.get("tree?native=0").text
    assert shown != hidden and "job.py" in hidden
    assert "not 'x'" in program.ask("GET", "stats?native=x").json()["error"].replace('"', "'")
    no_thread = program.ask("GET", "stats?thread=nobody").json()
    assert no_thread["error"].startswith("no thread has this name")


def test_links_start_with_the_prefix_that_a_proxy_strips(tmp_path: Path) -> None:
    program = start_program(tmp_path, env={"HEAPTIDE_PREFIX": "/pub/job/x/1/"})
    for asked in (BASE, f"/pub/job/x/1{BASE}"):
        assert program.ask("GET", f"{asked}/status").json()["links"]["stats"] == f"/pub/job/x/1{BASE}/stats"
    assert program.ask("GET", "/openapi.json").json()["servers"] == [{"url": "/pub/job/x/1"}]
    program.stop()


def test_threads_of_the_control_api_are_not_recorded(
    program: ControlledProgram, stats: Callable[..., dict[str, Any]]
) -> None:
    session = program.post("start")
    for _ in range(20):
        program.get("status")
        program.get("sessions")
    program.get("stats")
    program.post("stop")
    numbers = stats(Path(session["output"]))
    # The program itself only waited for a line of input.
    assert numbers["total_bytes_allocated"] < 100_000
    assert "heaptide" not in str(numbers["top_allocations_by_size"])


def test_forked_child_gets_its_own_socket_and_the_parent_keeps_its_own(program: ControlledProgram) -> None:
    code = "(lambda os: [pid := os.fork(), pid or [__import__('time').sleep(600)]][0])(__import__('os'))"
    pid = int(program.evaluate(code))
    try:
        both = {f"{program.process.pid}.sock", f"{pid}.sock"}
        # The child's socket exists once `fork` has returned in the child.
        wait_until(
            lambda: {path.name for path in (program.folder / "run").rglob("*.sock")} == both, "the child's socket"
        )
        started = program.post("start")
        assert sorted(started["pids"]) == sorted([program.process.pid, pid])
    finally:
        os.kill(pid, 9)
    assert program.get("status").json()["pid"] == program.process.pid


def test_program_that_ends_during_requests_ends_normally(tmp_path: Path) -> None:
    program = start_program(tmp_path)
    program.post("start")
    program.evaluate("leak(1)")
    assert program.process.stdin is not None
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(lambda: program.ask("POST", "stop")) for _ in range(4)]
        program.process.stdin.close()
        code = program.process.wait()
        for request in asking:
            # A request may be answered or cut off, but must not hang.
            request.exception()
    assert code == 0, program.stderr()
    assert program.stderr() == ""
    capture = next((tmp_path / "sessions").glob("*/*.tide"))
    assert "leak" in heaptide("stats", capture).stdout
    program.stop()


def test_control_imports_no_large_modules(tmp_path: Path) -> None:
    script = "import sys, heaptide.control; print(*sorted(sys.modules))"
    done = heaptide("run", "-q", "-o", tmp_path / "x.tide", "-c", script)
    loaded = set(done.stdout.split())
    assert not loaded & {"asyncio", "http", "pathlib", "subprocess", "tempfile", "socket", "json"}
