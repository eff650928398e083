"""Tests that reports of a bounded capture (`--aggregate`) state that times before its last checkpoint are unknown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import heaptide

pytestmark = pytest.mark.once

# Half of the blocks live for a tenth of a second, the others until the end.
PROGRAM = """
import time
kept = [bytearray(100_000) for _ in range(200)]
time.sleep(0.1)
del kept[:100]
"""
NOTE = "the interval includes all its earlier allocations"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bounded and a complete capture of the same program."""
    folder = tmp_path_factory.mktemp("bounded")
    (folder / "job.py").write_text(PROGRAM)
    heaptide("run", "-q", "--aggregate", "-o", "bounded.tide", "job.py", cwd=folder)
    heaptide("run", "-q", "-o", "complete.tide", "job.py", cwd=folder)
    return folder


def test_bounded_capture_has_no_lifetimes(folder: Path) -> None:
    heading = "How long blocks lived"
    assert heading in heaptide("stats", "complete.tide", cwd=folder).stdout
    assert heading not in heaptide("stats", "bounded.tide", cwd=folder).stdout
    statistics = json.loads(heaptide("stats", "--json", "bounded.tide", cwd=folder).stdout)
    assert statistics["heaptide"]["lifetimes"] == []
    assert statistics["heaptide"]["processes"][0]["times_unknown_until_ns"] > 100_000_000


@pytest.mark.parametrize("command", [["stats"], ["tree", "--plain"], ["summary"]], ids=lambda words: words[0])
def test_interval_of_a_bounded_capture_has_a_note(folder: Path, command: list[str]) -> None:
    def report(*words: str) -> str:
        return " ".join(heaptide(*command, *words, cwd=folder).stdout.split())

    assert NOTE in report("--from", "50ms", "bounded.tide")
    assert NOTE not in report("bounded.tide")
    assert NOTE not in report("--from", "50ms", "complete.tide")
