"""Tests that `heaptide heap` attaches to a running process, takes a snapshot and leaves the process unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.attached_process import ask, attach, blocked, detach, end, remaining_folders, snapshot
from support.commands import PROGRAMS, heaptide

once = pytest.mark.once


def test_heap_snapshot_of_a_running_process_holds_its_objects(tmp_path: Path) -> None:
    path = tmp_path / "of.heap"
    with blocked() as process:
        for _ in range(7):
            ask(process, 3)
        message = snapshot(process, "take", "-o", path).stderr
        assert "paused for" in message and str(path) in message
        ask(process, 4)  # works as before
        assert not remaining_folders(process)
        end(process)
    rows = json.loads(heaptide("heap", "types", "--json", "-n", "0", path).stdout)["rows"]
    buffers = next(row for row in rows if row["label"] == "bytearray")
    assert buffers["count"] >= 7 and buffers["bytes"] > 700_000
    found = heaptide("heap", "paths", "--kind", "bytearray", path).stdout
    assert "['held'][" in found


@once
def test_one_command_takes_and_shows_the_heap_of_a_process(tmp_path: Path) -> None:
    with blocked() as process:
        ask(process, 3)
        done = snapshot(process, "-o", tmp_path / "of.heap", "--fork")
        end(process)
    assert done.stdout.startswith("Partition of a set of ")
    assert "dict of module" in done.stdout
    assert "heaptide heap suspects" in done.stderr
    assert "held" in heaptide("heap", "suspects", tmp_path / "of.heap").stdout


@once
def test_snapshot_of_an_attached_process_has_allocation_sites(tmp_path: Path) -> None:
    with blocked() as process:
        attach(process, "--objects", "-o", tmp_path / "of.tide")
        for _ in range(5):
            ask(process, 3)
        snapshot(process, "take", "-o", tmp_path / "of.heap")
        detach(process)
        end(process)
    first = json.loads(heaptide("heap", "suspects", "--json", tmp_path / "of.heap").stdout)["suspects"][0]
    assert first["holder"].startswith("sys.modules['__main__'].__dict__['held']")
    program = PROGRAMS / "attach/blocked_in_a_read.py"
    line = program.read_text().splitlines()[first["sites"][0]["line"] - 1]
    assert line.strip() == "held.append(bytearray(100_000))"
