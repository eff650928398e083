"""HTTP in the running job: what each route answers, and that the job does not notice."""

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
from support.controlled_program import BASE, Job, obedient
from support.waiting import wait_until

pytestmark = pytest.mark.once


def test_status_tells_what_is_recorded(job: Job) -> None:
    before = job.get("status").json()
    assert (before["state"], before["session"], before["pid"]) == ("stopped", None, job.process.pid)
    started = job.post("start")
    during = job.get("status").json()
    assert (during["state"], during["session"]) == ("recording", started["session"])
    assert during["output"] == started["output"]
    assert [process["pid"] for process in during["processes"]] == [job.process.pid]


def test_routes_answer_while_the_job_holds_the_gil(job: Job) -> None:
    job.post("start")
    job.tell("leak(3)")
    assert job.process.stdin is not None
    # Reads two bytes inside C without letting go of the GIL: no other Python code runs until they come.
    job.process.stdin.write("__import__('ctypes').PyDLL(None).read(0, b'  ', 2)\n")
    job.process.stdin.flush()
    assert job.get("status").json()["state"] == "recording"
    assert "job.py" in job.get("stats").text
    assert job.get("sessions").json()["sessions"][0]["state"] == "recording"
    assert job.tell(".") == "2"


# Reads inside C without letting go of the GIL, as a library does that forgets to: until something is written.
HELD = """
    import ctypes
    import os
    import sys
    import heaptide.control

    heaptide.control._PATIENCE_SECONDS = 0.2
    control = heaptide.control.start_as_set("0")
    print(control.address)
    for line in sys.stdin:
        print(ctypes.PyDLL(None).read(int(line), b" ", 1))
"""


def test_a_job_that_holds_the_gil_is_answered_for_with_pending_and_follows(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(textwrap.dedent(HELD))
    hold, let_go = os.pipe()
    os.set_inheritable(hold, True)
    job = Job([sys.executable, tmp_path / "job.py"], tmp_path, close_fds=False)
    assert job.process.stdin is not None
    for action, state in (("start", "recording"), ("stop", "stopped")):
        job.process.stdin.write(f"{hold}\n")
        job.process.stdin.flush()
        wait_until(lambda: waits_for(job.process.pid, hold), "the job's call that holds the GIL")
        answer = job.ask("POST", action)
        assert (answer.status, answer.json()["result"]) == (202, "pending")
        # As it was, and everything else is answered.
        assert job.get("status").json()["state"] != state
        assert job.get("sessions").status == 200
        os.write(let_go, b".")
        assert job.line() == "1"
        wait_until(lambda wanted=state: job.get("status").json()["state"] == wanted, f"the {action} that was pending")
    (session,) = job.get("sessions").json()["sessions"]
    assert session["state"] == "finished"
    assert "Total allocations" in job.get("stats").text
    job.stop()
    os.close(hold)
    os.close(let_go)


def waits_for(pid: int, descriptor: int) -> bool:
    """Whether the main thread of a process sleeps in a system call on this descriptor."""
    try:
        call = Path(f"/proc/{pid}/syscall").read_text().split()
    except OSError:
        pytest.skip("the kernel does not say where a process waits")
    return len(call) > 2 and int(call[1], 16) == descriptor


def test_start_takes_modes_and_refuses_what_it_does_not_know(job: Job) -> None:
    started = job.post("start", {"mode": "objects", "interval_ms": 100, "follow_fork": True})
    session = job.get(f"sessions/{started['session']}").json()
    assert session["options"]["mode"] == "objects"
    assert session["options"]["follow_fork"] is True
    for body, status in [({"mode": "fast"}, 422), ({"objects": True}, 422), ([], 422), (b"{", 400)]:
        answer = job.ask("POST", "start", body)
        assert answer.status == status
        assert set(answer.json()) == {"error", "type"}


def test_a_value_that_the_command_refuses_is_answered_with_its_sentence_alone(job: Job) -> None:
    job.post("start")
    refused = job.ask("GET", "stats?from=abc")
    sentence = "invalid value 'abc' for '--from <TIME>': a time is a number of seconds, or a number with ms, s, m or h"
    assert (refused.status, refused.json()) == (400, {"error": sentence, "type": "ArgumentError"})


def test_options_of_the_commands_are_query_parameters_which_the_command_checks(job: Job) -> None:
    job.post("start")
    job.tell("leak(1)")
    assert "leak" in job.get("tree?biggest-allocs=1&leaks=true").text
    assert len(job.get("stats?format=json&num_largest=1").json()["top_allocations_by_size"]) == 1
    wrong = job.ask("GET", "tree?depth=many")
    assert wrong.status == 400 and "many" in wrong.json()["error"]
    unknown = job.ask("GET", "tree?colour=red")
    assert unknown.status == 400 and "biggest-allocs" in unknown.json()["error"]


def test_native_functions_are_shown_or_not_and_scope_is_not_guessed(job: Job) -> None:
    job.post("start", {"native": True})
    job.tell("leak(1)")
    refused = job.ask("POST", "stop?scope=proces")
    assert (refused.status, refused.json()["type"]) == (400, "ArgumentError")
    assert job.get("status").json()["state"] == "recording"
    job.post("stop")
    shown, hidden = job.get("tree?native=1").text, job.get("tree?native=0").text
    assert shown != hidden and "job.py" in hidden
    assert "not 'x'" in job.ask("GET", "stats?native=x").json()["error"].replace('"', "'")
    nobody = job.ask("GET", "stats?thread=nobody").json()
    assert nobody["error"].startswith("no thread is called that")


def test_links_have_the_prefix_that_a_proxy_takes_off(tmp_path: Path) -> None:
    job = obedient(tmp_path, env={"HEAPTIDE_PREFIX": "/pub/job/x/1/"})
    for asked in (BASE, f"/pub/job/x/1{BASE}"):
        assert job.ask("GET", f"{asked}/status").json()["links"]["stats"] == f"/pub/job/x/1{BASE}/stats"
    assert job.ask("GET", "/openapi.json").json()["servers"] == [{"url": "/pub/job/x/1"}]
    job.stop()


def test_threads_of_control_are_not_in_the_recording(job: Job, stats: Callable[..., dict[str, Any]]) -> None:
    session = job.post("start")
    for _ in range(20):
        job.get("status")
        job.get("sessions")
    job.get("stats")
    job.post("stop")
    numbers = stats(Path(session["output"]))
    # The job itself only waited for a line.
    assert numbers["total_bytes_allocated"] < 100_000
    assert "heaptide" not in str(numbers["top_allocations_by_size"])


def test_forked_child_has_its_own_door_and_the_parents_stays_the_parents(job: Job) -> None:
    code = "(lambda os: [pid := os.fork(), pid or [__import__('time').sleep(600)]][0])(__import__('os'))"
    pid = int(job.tell(code))
    try:
        both = {f"{job.process.pid}.sock", f"{pid}.sock"}
        # The child's socket is there as soon as `fork` has returned in the child.
        wait_until(lambda: {path.name for path in (job.folder / "run").rglob("*.sock")} == both, "the child's socket")
        started = job.post("start")
        assert sorted(started["pids"]) == sorted([job.process.pid, pid])
    finally:
        os.kill(pid, 9)
    assert job.get("status").json()["pid"] == job.process.pid


def test_a_job_that_ends_during_requests_ends_as_it_would_without(tmp_path: Path) -> None:
    job = obedient(tmp_path)
    job.post("start")
    job.tell("leak(1)")
    assert job.process.stdin is not None
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(lambda: job.ask("POST", "stop")) for _ in range(4)]
        job.process.stdin.close()
        code = job.process.wait()
        for request in asking:
            # Answered or cut off: both are fine, hanging is not.
            request.exception()
    assert code == 0, job.stderr()
    assert job.stderr() == ""
    capture = next((tmp_path / "sessions").glob("*/*.tide"))
    assert "leak" in heaptide("stats", capture).stdout
    job.stop()


def test_python_imports_for_control_are_few(tmp_path: Path) -> None:
    script = "import sys, heaptide.control; print(*sorted(sys.modules))"
    done = heaptide("run", "-q", "-o", tmp_path / "x.tide", "-c", script)
    loaded = set(done.stdout.split())
    assert not loaded & {"asyncio", "http", "pathlib", "subprocess", "tempfile", "socket", "json"}
    assert sys.executable
