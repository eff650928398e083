"""Tests how sessions of the control API are started, listed, kept and removed."""

from __future__ import annotations

import concurrent.futures
import os
import shutil
import subprocess
import sys
import tarfile
import textwrap
from io import BytesIO
from pathlib import Path

import pytest
from support.controlled_program import EVALUATING_PROGRAM, ControlledProgram, start_program
from support.waiting import wait_until

pytestmark = pytest.mark.once


def session_folders(folder: Path) -> list[str]:
    """Return the names of the folders of sessions, without folders of runs, which contain no captures."""
    return sorted(path.parent.name for path in (folder / "sessions").glob("*/session.json"))


def test_snapshot_holds_the_live_blocks_and_the_recording_continues(program: ControlledProgram) -> None:
    assert program.ask("POST", "snapshot").status == 409
    session = program.post("start")["session"]
    program.evaluate("leak(2)")
    snapshot = program.post("snapshot")
    program.evaluate("leak(3)")
    assert (snapshot["kind"], snapshot["of"]) == ("snapshot", session)
    assert program.get("status").json()["session"] == session
    then = program.get(f"sessions/{snapshot['id']}/tree?leaks=1").text
    now = program.get("tree?leaks=1").text
    assert "16.0 MB" in then and "40.0 MB" in now
    stopped = program.post("stop")
    assert stopped["session"] == session and stopped["peak_bytes"] >= 40_000_000
    listed = [entry["id"] for entry in program.get("sessions").json()["sessions"]]
    assert listed == [snapshot["id"], session]


def test_ended_sessions_can_be_listed_shown_and_deleted(program: ControlledProgram) -> None:
    session = program.post("start")["session"]
    program.evaluate("leak(1)")
    assert program.ask("DELETE", f"sessions/{session}", Authorization=program.bearer()).status == 409
    program.post("stop")
    shown = program.get(f"sessions/{session}").json()
    assert shown["state"] == "finished"
    assert shown["bytes"] == Path(shown["processes"][0]["output"]).stat().st_size
    assert shown["peak_bytes"] >= 8_000_000 and shown["duration_ms"] >= 0
    assert program.ask("DELETE", f"sessions/{session}", Authorization=program.bearer()).json() == {"deleted": session}
    assert program.get("sessions").json()["sessions"] == []
    assert not Path(shown["processes"][0]["output"]).exists()


def test_oldest_sessions_are_removed_beyond_the_limits(tmp_path: Path) -> None:
    program = start_program(tmp_path, "'0', keep_sessions=2")
    sessions = []
    for _ in range(3):
        sessions.append(program.post("start")["session"])
        program.post("stop")
    kept = program.get("sessions").json()
    assert [entry["id"] for entry in kept["sessions"]] == sessions[:0:-1]
    assert kept["keep"]["sessions"] == 2
    program.stop()
    tight = start_program(tmp_path, "'0', keep_bytes=1")
    last = tight.post("start")["session"]
    assert [entry["id"] for entry in tight.get("sessions").json()["sessions"]] == [last]
    tight.stop()


@pytest.mark.parametrize(("limit", "n_kept"), [("25MB", 3), ("0", 1), ("all", 5)])
def test_size_limit_for_sessions_comes_from_the_environment_and_spares_the_running_one(
    tmp_path: Path, limit: str, n_kept: int
) -> None:
    program = start_program(tmp_path, env={"HEAPTIDE_KEEP_BYTES": limit})
    sessions = []
    for _ in range(4):
        # Each capture gets 10 MB below, so that two old sessions fit into 25 MB.
        sessions.append(program.post("start")["session"])
        program.post("stop")
        for session in session_folders(tmp_path):
            (capture,) = (tmp_path / "sessions" / session).glob("*.tide")
            with capture.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, 10_000_000)
    sessions.append(program.post("start")["session"])
    listed = program.get("sessions").json()["sessions"]
    assert [entry["id"] for entry in listed] == sessions[: -n_kept - 1 : -1]
    assert session_folders(tmp_path) == sessions[-n_kept:]
    assert [entry["state"] for entry in listed] == ["recording"] + ["finished"] * (n_kept - 1)
    program.stop()


def test_recording_started_by_the_program_can_be_reported_and_stopped(
    program: ControlledProgram, tmp_path: Path
) -> None:
    path = tmp_path / "own.tide"
    program.evaluate(f"[tracker := heaptide.Tracker({str(path)!r}), tracker.start()][1]")
    program.evaluate("leak(1)")
    assert program.post("start")["result"] == "already_running"
    status = program.get("status").json()
    assert (status["session"], status["output"]) == ("current", str(path))
    assert "leak" in program.get("stats").text
    assert program.post("stop")["result"] == "stopped"
    assert path.exists()


def test_programs_sharing_a_folder_show_their_own_latest_session(tmp_path: Path) -> None:
    first, second = (start_program(tmp_path), start_program(tmp_path))
    of_second = second.post("start")["session"]
    second.evaluate("leak(1)")
    second.post("stop")
    # The first program has no session yet, so it shows the latest of the folder.
    assert first.get("sessions/latest").json()["id"] == of_second
    of_first = first.post("start")["session"]
    first.post("stop")
    assert first.get("sessions/latest").json()["id"] == of_first
    assert second.get("sessions/latest").json()["id"] == of_second
    assert len(second.get("sessions").json()["sessions"]) == 2
    first.stop()
    second.stop()


def test_runtime_folders_of_ended_programs_are_removed_by_the_next(tmp_path: Path) -> None:
    first = start_program(tmp_path)
    (left_over,) = (tmp_path / "run").iterdir()
    first.process.kill()
    first.stop()
    assert sorted(path.suffix or path.name for path in left_over.iterdir()) == [".sock", "token"]
    (tmp_path / "run" / "named").mkdir()
    for folder in (tmp_path / "run").iterdir():
        os.utime(folder, (0, 0))
    second = start_program(tmp_path)
    assert not left_over.exists()
    assert len(list((tmp_path / "run").iterdir())) == 2 and second.get("status").status == 200
    (in_use,) = [folder for folder in (tmp_path / "run").iterdir() if folder.name != "named"]
    os.utime(in_use, (0, 0))
    third = start_program(tmp_path)
    assert second.get("status").status == 200 and len(list((tmp_path / "run").iterdir())) == 3
    second.stop()
    third.stop()


def test_captures_of_several_processes_are_sent_as_one_archive(program: ControlledProgram) -> None:
    program.post("start", {"follow_fork": True})
    code = "(lambda os: [pid := os.fork(), pid or (leak(1), os._exit(0)), os.waitpid(pid, 0)][0])(__import__('os'))"
    pid = int(program.evaluate(code))
    program.post("stop")
    answer = program.get("report")
    assert answer.headers["Content-Type"] == "application/x-tar"
    with tarfile.open(fileobj=BytesIO(answer.body)) as archive:
        names = sorted(Path(name).name for name in archive.getnames())
    assert names == sorted([f"{program.process.pid}.tide", f"{program.process.pid}.tide.{pid}"])
    one = program.get(f"report?process={pid}")
    assert one.headers["Content-Type"] == "application/octet-stream"
    assert program.ask("GET", "report?process=1").status == 404


def test_fifty_concurrent_starts_make_one_session(program: ControlledProgram) -> None:
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: program.ask("POST", "start"), range(50)))
    assert {answer.status for answer in answers} == {200}
    results = [answer.json() for answer in answers]
    assert sorted(result["result"] for result in results).count("started") == 1
    assert len({result["session"] for result in results}) == 1
    assert len(program.get("sessions").json()["sessions"]) == 1


def test_stop_after_a_full_disk_closes_the_capture(tmp_path: Path) -> None:
    sessions = tmp_path / "sessions"
    sessions.mkdir(0o700)
    inside = f"mount -t tmpfs -o size=600k,mode=700 tmpfs {sessions} && head -c 250k /dev/zero >{sessions}/other"
    unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-ec"]
    if os.geteuid() != 0 or shutil.which("unshare") is None or subprocess.run([*unshare, inside]).returncode != 0:
        pytest.skip("mounting a small file system needs root and unshare")
    script = tmp_path / "job.py"
    script.write_text(textwrap.dedent(EVALUATING_PROGRAM.format(arguments="'0'")))
    program = ControlledProgram([*unshare, f"{inside} && exec {sys.executable} {script}"], tmp_path)
    try:
        session = program.post("start")["session"]
        allocate = "sum(len([bytearray(n * 7 % 4096), bytearray(n)]) for n in range(2_000))"
        wait_until(lambda: program.evaluate(allocate) and program.get("status").json()["failed"], "the full disk")
        assert "No space left on device" in program.stderr()
        status = program.get("status").json()
        assert status["state"] == "stopped" and "has failed" in status["processes"][0]["problem"]
        stopped = program.post("stop")
        assert (stopped["result"], stopped["session"]) == ("stopped", session)
        assert [process["recording"] for process in stopped["processes"]] == [False]
        status = program.get("status").json()
        assert status["failed"] is False and status["processes"][0]["problem"] is None
        assert program.get(f"sessions/{session}").json()["state"] == "finished"
        assert program.post("stop")["result"] == "already_stopped"
    finally:
        program.stop()
