"""The sessions of a job that is controlled: begun, listed, kept and removed."""

from __future__ import annotations

import concurrent.futures
import os
import tarfile
from io import BytesIO
from pathlib import Path

import pytest
from support.controlled_program import Job, obedient

pytestmark = pytest.mark.once


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


def test_fifty_starts_at_once_make_one_session(job: Job) -> None:
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: job.ask("POST", "start"), range(50)))
    assert {answer.status for answer in answers} == {200}
    results = [answer.json() for answer in answers]
    assert sorted(result["result"] for result in results).count("started") == 1
    assert len({result["session"] for result in results}) == 1
    assert len(job.get("sessions").json()["sessions"]) == 1
