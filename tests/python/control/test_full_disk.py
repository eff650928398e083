"""Tests the control API of a program whose recording failed because its disk was full."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.controlled_program import ControlledProgram, start_program
from support.waiting import wait_until

pytestmark = pytest.mark.once

# A limit of the file size acts like a full disk, and the program can raise it again.
LIMIT = "__import__('resource').setrlimit(1, ({}, -1))"
# Sizes that differ fill the capture.
WORK = "sum(len(bytes(600 + n * 7919 % 30011)) for n in range(60_000))"


@pytest.fixture
def failed(tmp_path: Path) -> Iterator[tuple[ControlledProgram, str]]:
    """A program whose recording has failed, with the ID of its session."""
    program = start_program(tmp_path)
    try:
        session = program.post("start")["session"]
        program.evaluate(LIMIT.format(290_000))
        program.evaluate(WORK)
        wait_until(lambda: program.get("status").json()["state"] == "stopped", "the failure of the recording")
        yield program, session
    finally:
        program.stop()


def test_failed_recording_is_not_listed_as_running(failed: tuple[ControlledProgram, str]) -> None:
    program, session = failed
    [listed] = program.get("sessions").json()["sessions"]
    assert (listed["id"], listed["state"]) == (session, "finished")
    assert [process["recording"] for process in listed["processes"]] == [False]
    assert program.ask("POST", "mode", {"mode": "objects"}).status == 409
    assert "recording stopped after" in program.get("stats").text


def test_stop_ends_a_failed_recording(failed: tuple[ControlledProgram, str]) -> None:
    program, session = failed
    stopped = program.post("stop")
    assert (stopped["result"], stopped["session"]) == ("stopped", session)
    assert [process["recording"] for process in stopped["processes"]] == [False]
    assert program.post("stop")["result"] == "already_stopped"


def test_recording_starts_again_after_a_failure(failed: tuple[ControlledProgram, str]) -> None:
    program, session = failed
    program.evaluate(LIMIT.format(-1))
    started = program.post("start")
    assert started["result"] == "started" and started["session"] != session
    program.evaluate("leak(2)")
    assert program.post("stop")["peak_bytes"] >= 16_000_000
    assert "16.0 MB" in program.get("tree?leaks=1").text


def test_session_that_cannot_be_described_leaves_no_folder(tmp_path: Path, program: ControlledProgram) -> None:
    program.evaluate(LIMIT.format(0))
    answer = program.ask("POST", "start")
    assert answer.status == 500 and "cannot create a session" in answer.json()["error"]
    assert [path.name for path in (tmp_path / "sessions").iterdir() if path.name[0] == "2"] == []
