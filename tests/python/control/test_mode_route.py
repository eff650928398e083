"""Tests how the control API changes the mode of a running recording, in one process and in a group."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import heaptide
from support.controlled_program import ControlledProgram, start_program
from support.waiting import wait_until

pytestmark = pytest.mark.once


def modes_of(capture: str) -> list[str]:
    """Return the modes that a capture was recorded in."""
    stats = json.loads(heaptide("stats", "--json", capture).stdout)
    return [interval["mode"] for interval in stats["heaptide"]["processes"][0]["modes"]]


def test_mode_changes_within_the_session_and_the_capture(program: ControlledProgram) -> None:
    refused = program.ask("POST", "mode", {"mode": "exact"})
    assert refused.status == 409 and "no recording is active" in refused.json()["error"]
    started = program.post("start", {"mode": "sampled"})
    assert program.get("status").json()["mode"]["mode"] == "sampled"
    program.evaluate("leak(1)")
    changed = program.post("mode", {"mode": "exact"})
    assert (changed["result"], changed["session"]) == ("changed", started["session"])
    assert changed["mode"] == {"mode": "exact", "sample_bytes": 0, "native": False, "aggregate": False}
    assert program.post("mode", {"mode": "exact"})["result"] == "unchanged"
    program.evaluate("leak(2)")
    only_native = program.post("mode", {"native": True})["mode"]
    assert (only_native["mode"], only_native["native"]) == ("exact", True)
    program.post("mode", {"sample_bytes": 4096})
    status = program.get("status").json()
    assert (status["session"], status["mode"]["sample_bytes"]) == (started["session"], 4096)
    program.post("stop")
    assert modes_of(started["output"]) == [
        "sampled every 512 KiB",
        "exact",
        "exact, with native frames",
        "sampled every 4 KiB, with native frames",
    ]
    assert program.get("status").json()["mode"] is None


@pytest.mark.parametrize("body", [{}, {"mode": "fast"}, {"aggregate": True}, {"native": 3}])
def test_invalid_change_is_refused_and_changes_nothing(program: ControlledProgram, body: dict[str, object]) -> None:
    program.post("start")
    assert program.ask("POST", "mode", body).status == 422
    assert program.get("status").json()["mode"]["mode"] == "exact"


def test_ctl_command_changes_the_mode(program: ControlledProgram) -> None:
    program.post("start")
    for word, expected in (("sampled", 512 << 10), ("sample_bytes=9000", 9000), ("exact", 0)):
        answer = heaptide("ctl", "--url", program.address, "mode", word).stdout
        assert json.loads(answer)["mode"]["sample_bytes"] == expected


def test_change_reaches_all_processes_of_a_group(tmp_path: Path) -> None:
    env = {"HEAPTIDE_GROUP": "modes"}
    one = start_program(tmp_path, "'0'", env)
    two = start_program(tmp_path, "'0'", env)
    try:
        wait_until(lambda: len(one.get("status").json()["processes"]) == 2, "the second process")
        one.post("start")
        wait_until(lambda: two.get("status?scope=process").json()["state"] == "recording", "its recording")
        assert two.post("mode", {"mode": "objects"})["result"] == "changed"
        for program in (one, two):
            assert program.get("status?scope=process").json()["mode"]["mode"] == "objects"
    finally:
        one.stop()
        two.stop()
