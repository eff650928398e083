"""Sessions in a folder that jobs of several containers share: the numbers of processes say nothing there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.controlled_program import OBEDIENT, Job, obedient

pytestmark = pytest.mark.once

# As a container: its own process numbers, which all begin at 1.
UNSHARE = ["unshare", "--fork", "--pid", "--mount", "--mount-proc", "--kill-child"]


def states(job: Job) -> dict[str, str]:
    """What a job says of each session in the folder."""
    return {session["id"]: session["state"] for session in job.get("sessions").json()["sessions"]}


def test_a_session_of_another_container_is_recorded_as_long_as_its_capture_is_locked(tmp_path: Path) -> None:
    job = obedient(tmp_path)
    try:
        session = job.post("start")["session"]
        described = tmp_path / "sessions" / session / "session.json"
        meta = json.loads(described.read_text())
        described.write_text(json.dumps(meta | {"pid_space": "another machine"}))
        assert states(job) == {session: "recording"}
        assert job.ask("DELETE", f"sessions/{session}").status == 409
        job.post("stop")
        assert states(job) == {session: "finished"}
    finally:
        job.stop()


def test_a_child_that_lives_on_does_not_keep_a_session_recorded(tmp_path: Path) -> None:
    job = obedient(tmp_path)
    try:
        session = job.post("start")["session"]
        described = tmp_path / "sessions" / session / "session.json"
        described.write_text(json.dumps(json.loads(described.read_text()) | {"pid_space": "another machine"}))
        # Waits for the end of its pipe without a word to anybody, and has all open files of its parent.
        job.tell("(os := __import__('os')) and (pipe := os.pipe())")
        job.tell("os.fork() or (os.close(pipe[1]), os.read(pipe[0], 1), os._exit(0))")
        job.post("stop")
        assert states(job) == {session: "finished"}
    finally:
        job.stop()


def test_a_start_in_one_container_leaves_what_another_records(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or subprocess.run([*UNSHARE, "true"], capture_output=True).returncode != 0:
        pytest.skip("no containers can be made here")
    (tmp_path / "job.py").write_text(textwrap.dedent(OBEDIENT.format(arguments="'0'")))
    jobs = []
    try:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            env = {"HEAPTIDE_SESSIONS": str(tmp_path / "sessions"), "HEAPTIDE_KEEP_SESSIONS": "1"}
            jobs.append(Job([*UNSHARE, sys.executable, tmp_path / "job.py"], tmp_path / name, env))
        one, two = jobs
        assert one.get("status").json()["pid"] == two.get("status").json()["pid"]
        first = one.post("start")["session"]
        assert states(two) == {first: "recording"}
        second = two.post("start")["session"]
        assert states(one) == states(two) == {first: "recording", second: "recording"}
        stopped = one.post("stop")
        assert stopped["session"] == first and stopped["bytes"] > 0
        assert states(two) == {first: "finished", second: "recording"}
        two.post("stop")
        third = two.post("start")["session"]
        assert states(one) == {third: "recording"}
    finally:
        for job in jobs:
            job.process.kill()
            job.stop()


def test_sessions_that_ended_with_their_job_are_listed_with_their_peaks(tmp_path: Path) -> None:
    first = obedient(tmp_path)
    session = first.post("start")["session"]
    first.tell("leak(2)")
    first.process.kill()
    first.stop()
    second = obedient(tmp_path)
    try:
        (listed,) = second.get("sessions").json()["sessions"]
        assert (listed["id"], listed["state"]) == (session, "finished")
        assert 16_000_000 <= listed["peak_bytes"] < 20_000_000
    finally:
        second.stop()
