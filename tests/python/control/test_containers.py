"""Tests sessions in a folder shared by programs of several containers, where process IDs are not unique."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.controlled_program import EVALUATING_PROGRAM, ControlledProgram, start_program

pytestmark = pytest.mark.once

# Isolates a program like a container, with process IDs that start at 1.
UNSHARE = ["unshare", "--fork", "--pid", "--mount", "--mount-proc", "--kill-child"]


def states(program: ControlledProgram) -> dict[str, str]:
    """Return the state of each session in the folder, as the program reports it."""
    return {session["id"]: session["state"] for session in program.get("sessions").json()["sessions"]}


def test_session_of_another_container_is_running_while_its_capture_is_locked(tmp_path: Path) -> None:
    program = start_program(tmp_path)
    try:
        session = program.post("start")["session"]
        described = tmp_path / "sessions" / session / "session.json"
        meta = json.loads(described.read_text())
        described.write_text(json.dumps(meta | {"pid_space": "another machine"}))
        assert states(program) == {session: "recording"}
        assert program.ask("DELETE", f"sessions/{session}", Authorization=program.bearer()).status == 409
        program.post("stop")
        assert states(program) == {session: "finished"}
    finally:
        program.stop()


def test_surviving_child_does_not_keep_a_session_running(tmp_path: Path) -> None:
    program = start_program(tmp_path)
    try:
        session = program.post("start")["session"]
        described = tmp_path / "sessions" / session / "session.json"
        described.write_text(json.dumps(json.loads(described.read_text()) | {"pid_space": "another machine"}))
        # The child inherits all open files of its parent and blocks until the parent closes its pipe.
        program.evaluate("(os := __import__('os')) and (pipe := os.pipe())")
        program.evaluate("os.fork() or (os.close(pipe[1]), os.read(pipe[0], 1), os._exit(0))")
        program.post("stop")
        assert states(program) == {session: "finished"}
    finally:
        program.stop()


def test_start_in_one_container_does_not_stop_a_recording_in_another(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or subprocess.run([*UNSHARE, "true"], capture_output=True).returncode != 0:
        pytest.skip("namespaces cannot be created here")
    (tmp_path / "program.py").write_text(textwrap.dedent(EVALUATING_PROGRAM.format(arguments="'0'")))
    programs = []
    try:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            env = {"HEAPTIDE_SESSIONS": str(tmp_path / "sessions"), "HEAPTIDE_KEEP_SESSIONS": "1"}
            programs.append(
                ControlledProgram([*UNSHARE, sys.executable, tmp_path / "program.py"], tmp_path / name, env)
            )
        one, two = programs
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
        for program in programs:
            program.process.kill()
            program.stop()


def test_sessions_of_killed_programs_are_listed_with_their_peaks(tmp_path: Path) -> None:
    first = start_program(tmp_path)
    session = first.post("start")["session"]
    first.evaluate("leak(2)")
    first.process.kill()
    first.stop()
    second = start_program(tmp_path)
    try:
        (listed,) = second.get("sessions").json()["sessions"]
        assert (listed["id"], listed["state"]) == (session, "finished")
        assert 16_000_000 <= listed["peak_bytes"] < 20_000_000
    finally:
        second.stop()
