"""HTTP in the running job: what each route answers, and that the job does not notice."""

from __future__ import annotations

import concurrent.futures
import os
import re
import subprocess
import sys
import tarfile
import textwrap
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from conftest import heaptide
from jobs import BASE, Job, ask, obedient
from waiting import wait_until

pytestmark = pytest.mark.once


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A job that does what it is told, with its doors open."""
    job = obedient(tmp_path)
    yield job
    job.stop()


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


def test_snapshot_keeps_what_is_alive_now_and_the_recording_goes_on(job: Job) -> None:
    assert job.ask("POST", "snapshot").status == 409
    session = job.post("start")["session"]
    job.tell("leak(2)")
    snapshot = job.post("snapshot")
    job.tell("leak(3)")
    assert (snapshot["kind"], snapshot["of"]) == ("snapshot", session)
    assert job.get("status").json()["session"] == session
    then = job.get(f"sessions/{snapshot['id']}/tree?leaks=1").text
    now = job.get("tree?leaks=1").text
    assert "16.000MB" in then and "40.000MB" in now
    stopped = job.post("stop")
    assert stopped["session"] == session and stopped["peak_bytes"] >= 40_000_000
    listed = [entry["id"] for entry in job.get("sessions").json()["sessions"]]
    assert listed == [snapshot["id"], session]


def test_sessions_can_be_listed_shown_and_deleted_once_they_have_ended(job: Job) -> None:
    session = job.post("start")["session"]
    job.tell("leak(1)")
    assert job.ask("DELETE", f"sessions/{session}").status == 409
    job.post("stop")
    shown = job.get(f"sessions/{session}").json()
    assert shown["state"] == "finished"
    assert shown["bytes"] == Path(shown["processes"][0]["output"]).stat().st_size
    assert shown["peak_bytes"] >= 8_000_000 and shown["duration_ms"] >= 0
    assert job.ask("DELETE", f"sessions/{session}").json() == {"deleted": session}
    assert job.get("sessions").json()["sessions"] == []
    assert not Path(shown["processes"][0]["output"]).exists()


def test_old_sessions_go_when_there_are_too_many_or_they_are_too_large(tmp_path: Path) -> None:
    job = obedient(tmp_path, "'0', keep_sessions=2")
    sessions = []
    for _ in range(3):
        sessions.append(job.post("start")["session"])
        job.post("stop")
    kept = job.get("sessions").json()
    assert [entry["id"] for entry in kept["sessions"]] == sessions[:0:-1]
    assert kept["keep"]["sessions"] == 2
    job.stop()
    tight = obedient(tmp_path, "'0', keep_bytes=1")
    last = tight.post("start")["session"]
    assert [entry["id"] for entry in tight.get("sessions").json()["sessions"]] == [last]
    tight.stop()


@pytest.mark.parametrize(("limit", "n_kept"), [("25MB", 3), ("0", 1), ("all", 5)])
def test_room_for_sessions_is_what_the_environment_says_and_the_running_one_stays(
    tmp_path: Path, limit: str, n_kept: int
) -> None:
    job = obedient(tmp_path, env={"HEAPTIDE_KEEP_BYTES": limit})
    sessions = []
    for _ in range(4):
        # Of known sizes: so that two of them have room.
        sessions.append(job.post("start")["session"])
        job.post("stop")
        for session in os.listdir(tmp_path / "sessions"):
            (capture,) = (tmp_path / "sessions" / session).glob("*.tide")
            os.truncate(capture, 10_000_000)
    sessions.append(job.post("start")["session"])
    listed = job.get("sessions").json()["sessions"]
    assert [entry["id"] for entry in listed] == sessions[: -n_kept - 1 : -1]
    assert sorted(os.listdir(tmp_path / "sessions")) == sessions[-n_kept:]
    assert [entry["state"] for entry in listed] == ["recording"] + ["finished"] * (n_kept - 1)
    job.stop()


@pytest.mark.parametrize("words", ["keep_sessions=-1", "keep_bytes='1G'", "keep_bytes=2**70", "requests_per_second=0"])
def test_a_limit_that_is_none_is_refused_in_one_sentence(tmp_path: Path, words: str) -> None:
    text = f"import heaptide.control\nheaptide.control.start('0', {words})"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=tmp_path)
    name = words.partition("=")[0]
    assert re.fullmatch(
        rf"ValueError: {name} is .*: it must be a whole number from [01] on", done.stderr.splitlines()[-1]
    )


def test_a_file_where_the_socket_should_be_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("mine")
    env = {**os.environ, "HEAPTIDE_CONTROL": f"unix:{file}", "HEAPTIDE_RUNTIME_DIR": str(tmp_path / "run")}
    done = subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout, file.read_text()) == (0, "1\n", "mine")
    said = f"control cannot listen at unix:{file} (there is something that is not a socket); the program goes on"
    assert done.stderr == f"heaptide: {said}\n"


def test_a_folder_that_cannot_be_used_is_named_and_the_program_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    env = {**os.environ, "HEAPTIDE_CONTROL": "0", "HEAPTIDE_RUNTIME_DIR": str(tmp_path / "file" / "run")}
    done = subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True, env=env)
    assert (done.returncode, done.stdout) == (0, "1\n")
    (said,) = done.stderr.splitlines()
    assert said.startswith(f"heaptide: the folder {tmp_path}/file/run/")
    assert "of this job's processes cannot be used (Not a directory" in said and said.endswith("; the program goes on")


def test_a_value_that_the_command_refuses_is_answered_with_its_sentence_alone(job: Job) -> None:
    job.post("start")
    refused = job.ask("GET", "stats?from=abc")
    sentence = "invalid value 'abc' for '--from <TIME>': a time is a number of seconds, or a number with ms, s, m or h"
    assert (refused.status, refused.json()) == (400, {"error": sentence, "type": "ArgumentError"})


def test_a_recording_that_somebody_else_began_can_be_looked_at(job: Job, tmp_path: Path) -> None:
    path = tmp_path / "own.tide"
    job.tell(f"[tracker := heaptide.Tracker({str(path)!r}), tracker.start()][1]")
    job.tell("leak(1)")
    assert job.post("start")["result"] == "already_running"
    status = job.get("status").json()
    assert (status["session"], status["output"]) == ("current", str(path))
    assert "leak" in job.get("stats").text
    assert job.post("stop")["result"] == "stopped"
    assert path.exists()


def test_jobs_that_keep_their_sessions_in_one_folder_show_their_own(tmp_path: Path) -> None:
    first, second = (obedient(tmp_path), obedient(tmp_path))
    of_second = second.post("start")["session"]
    second.tell("leak(1)")
    second.post("stop")
    # It has none of its own yet: the last one of all.
    assert first.get("sessions/latest").json()["id"] == of_second
    of_first = first.post("start")["session"]
    first.post("stop")
    assert first.get("sessions/latest").json()["id"] == of_first
    assert second.get("sessions/latest").json()["id"] == of_second
    assert len(second.get("sessions").json()["sessions"]) == 2
    first.stop()
    second.stop()


def test_no_path_in_a_request_reaches_the_file_system(job: Job, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "session.json").write_text("{}")
    (tmp_path / "secret" / "1.tide").write_text("x")
    job.post("start")
    for name in ["..%2fsecret", "../secret", "%2e%2e/secret", ".", "..", "%00", "sessions"]:
        for route in ["", "/report", "/stats"]:
            answer = job.ask("GET", f"{BASE}/sessions/{name}{route}")
            assert answer.status in (404, 400), (name, route)
    for query in ["output=/tmp/x", "o=/tmp/x", "--output=/tmp/x", "captures=/etc/passwd", "process=/etc/passwd"]:
        answer = job.ask("GET", f"stats?{query}")
        assert answer.status in (400, 404), query
    assert job.ask("GET", "diff?base=/etc/passwd").status == 404


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


def test_redirects_stay_on_this_server(job: Job) -> None:
    leads = {
        "/": "/docs",
        "//evil.example/": "/evil.example/docs",
        "/\\evil.example/": "/evil.example/docs",
        f"//evil.example{BASE}/status/": f"/evil.example{BASE}/status",
    }
    for path, location in leads.items():
        answer = job.ask("GET", path)
        assert (answer.status, answer.headers["Location"]) == (307, location)
    # As a framework hands it over, percent signs undone.
    told = job.tell("control.handle('GET', '/a\\r\\nSet-Cookie: b/').headers")
    assert "/a%0D%0ASet-Cookie:%20b/docs" in told


def test_links_have_the_prefix_that_a_proxy_takes_off(tmp_path: Path) -> None:
    job = obedient(tmp_path, env={"HEAPTIDE_PREFIX": "/pub/job/x/1/"})
    for asked in (BASE, f"/pub/job/x/1{BASE}"):
        assert job.ask("GET", f"{asked}/status").json()["links"]["stats"] == f"/pub/job/x/1{BASE}/stats"
    assert job.ask("GET", "/openapi.json").json()["servers"] == [{"url": "/pub/job/x/1"}]
    job.stop()


def test_folders_of_jobs_that_have_ended_are_removed_by_the_next(tmp_path: Path) -> None:
    first = obedient(tmp_path)
    (left_over,) = (tmp_path / "run").iterdir()
    first.process.kill()
    first.stop()
    assert [path.suffix for path in left_over.iterdir()] == [".sock"]
    (tmp_path / "run" / "named").mkdir()
    for folder in (tmp_path / "run").iterdir():
        os.utime(folder, (0, 0))
    second = obedient(tmp_path)
    assert not left_over.exists()
    assert len(list((tmp_path / "run").iterdir())) == 2 and second.get("status").status == 200
    (lives,) = [folder for folder in (tmp_path / "run").iterdir() if folder.name != "named"]
    os.utime(lives, (0, 0))
    third = obedient(tmp_path)
    assert second.get("status").status == 200 and len(list((tmp_path / "run").iterdir())) == 3
    second.stop()
    third.stop()


def test_requests_that_are_too_large_are_refused(job: Job) -> None:
    assert job.ask("POST", "start", b" " * 70_000).status == 413
    assert job.ask("GET", "status", X_Long="x" * 20_000).status == 431


def test_more_requests_than_allowed_are_told_to_wait(tmp_path: Path) -> None:
    job = obedient(tmp_path, "'0', requests_per_second=1")
    answers = [job.ask("GET", "sessions") for _ in range(200)]
    refused = [answer for answer in answers if answer.status != 200]
    assert refused and all(answer.status == 429 for answer in refused)
    assert refused[0].headers["Retry-After"] == "1"
    job.stop()


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_an_address_that_others_can_reach_needs_a_token(tmp_path: Path, address: str) -> None:
    script = f"import heaptide.control\nheaptide.control.start({address!r})"
    done = heaptide("run", "-q", "-c", script, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert "set a token" in done.stderr


def test_token_is_asked_for_and_never_told(tmp_path: Path) -> None:
    job = obedient(tmp_path, "'0', token='s3cret-token', token_header='X-Job-Auth'")
    refused = job.ask("GET", "status")
    assert refused.status == 401 and refused.headers["Www-Authenticate"] == "Bearer"
    assert job.ask("GET", "status", Authorization="Bearer wrong").status == 401
    assert job.ask("GET", "status", Authorization="Bearer s3cret-token").status == 200
    answer = job.ask("GET", "status", X_Job_Auth="s3cret-token")
    assert answer.status == 200
    # The list of routes is for everybody, and has no secrets.
    for path in ["/docs", "/openapi.json"]:
        shown = job.ask("GET", path)
        assert shown.status == 200 and b"s3cret" not in shown.body
    assert "s3cret" not in answer.text + job.stderr()
    schemes = job.ask("GET", "/openapi.json").json()["components"]["securitySchemes"]
    assert schemes["header"] == {"type": "apiKey", "in": "header", "name": "X-Job-Auth"}
    (tmp_path / "token").write_text(" s3cret-token\n")
    env = {**os.environ, "HEAPTIDE_TOKEN_FILE": str(tmp_path / "token")}
    assert '"pid"' in heaptide("ctl", "--url", job.address, "status", env=env).stdout
    job.stop()


@pytest.mark.parametrize(("content", "said"), [("\n", "holds no token"), (None, "cannot be read (No such file")])
def test_a_token_file_without_a_token_opens_no_door(tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
    env = {**os.environ, "HEAPTIDE_TOKEN_FILE": "token", "HEAPTIDE_RUNTIME_DIR": str(tmp_path / "run")}
    (tmp_path / "job.py").write_text("def perform(): ...")
    for host in ("0.0.0.0", "127.0.0.1"):
        serving = ["serve", "job.py", "--host", host, "--port", "0"]
        done = heaptide(*serving, check=False, cwd=tmp_path, env={**env, "HEAPTIDE_PROFILER": "yes"})
        assert done.returncode == 1 and said in done.stderr and "Traceback" not in done.stderr
    done = subprocess.run(
        [sys.executable, "-c", "from heaptide import control; print(control._controls)"],
        cwd=tmp_path,
        env={**env, "HEAPTIDE_CONTROL": "0"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "[]\n") and said in done.stderr


def test_pages_of_other_origins_and_foreign_names_are_turned_away(job: Job, tmp_path: Path) -> None:
    assert job.ask("POST", "start", Origin="http://evil.example").status == 403
    assert job.ask("GET", "status", Host="evil.example").status == 403
    assert job.ask("GET", "status", Origin=job.address).status == 200
    assert "Access-Control-Allow-Origin" not in job.ask("OPTIONS", "start").headers
    (tmp_path / "other").mkdir()
    arguments = "'0', cors_origin='http://friend.example', token='x', token_header='X-Job-Auth'"
    open_job = obedient(tmp_path / "other", arguments)
    answer = open_job.ask("GET", "status", Origin="http://friend.example", X_Job_Auth="x")
    assert answer.status == 200
    assert answer.headers["Access-Control-Allow-Origin"] == "http://friend.example"
    # A browser asks before it sends a token, and without one.
    first = open_job.ask("OPTIONS", "start", Origin="http://friend.example")
    assert first.status == 204 and "X-Job-Auth" in first.headers["Access-Control-Allow-Headers"]
    assert "POST" in first.headers["Access-Control-Allow-Methods"]
    assert open_job.ask("OPTIONS", "start", Origin="http://evil.example").status == 403
    open_job.stop()


def test_control_on_a_socket_belongs_to_this_user_alone(tmp_path: Path) -> None:
    job = obedient(tmp_path, "'unix:control.sock'")
    path = tmp_path / "control.sock"
    assert job.address == "unix:control.sock"
    assert path.stat().st_mode & 0o077 == 0
    assert ask(f"unix:{path}", "GET", f"{BASE}/status").json()["pid"] == job.process.pid
    assert job.process.stdin is not None
    job.process.stdin.close()
    job.process.wait()
    assert not path.exists()
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


def test_captures_of_several_processes_come_as_one_archive(job: Job) -> None:
    job.post("start", {"follow_fork": True})
    code = "(lambda os: [pid := os.fork(), pid or (leak(1), os._exit(0)), os.waitpid(pid, 0)][0])(__import__('os'))"
    pid = int(job.tell(code))
    job.post("stop")
    answer = job.get("report")
    assert answer.headers["Content-Type"] == "application/x-tar"
    with tarfile.open(fileobj=BytesIO(answer.body)) as archive:
        names = sorted(Path(name).name for name in archive.getnames())
    assert names == sorted([f"{job.process.pid}.tide", f"{job.process.pid}.tide.{pid}"])
    one = job.get(f"report?process={pid}")
    assert one.headers["Content-Type"] == "application/octet-stream"
    assert job.ask("GET", "report?process=1").status == 404


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


def test_fifty_starts_at_once_make_one_session(job: Job) -> None:
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: job.ask("POST", "start"), range(50)))
    assert {answer.status for answer in answers} == {200}
    results = [answer.json() for answer in answers]
    assert sorted(result["result"] for result in results).count("started") == 1
    assert len({result["session"] for result in results}) == 1
    assert len(job.get("sessions").json()["sessions"]) == 1


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
