"""Tests that arenas of Python's object allocator are labelled, reported, and attributed to no line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.attached_process import attach, detach, running
from support.commands import Finished, heaptide, python

Run = Callable[..., Finished]

LABEL = "Python objects (arena)"
NOTE = "are Python object arenas; record with --objects to see what is in them"
FILL = """
def fill(kept, n):
    for number in range(n):
        kept.append((number + 0.5, str(number)))

kept = []
"""
PROGRAM = FILL + "fill(kept, 150_000)"
GROWING = (
    FILL
    + """
import time
end = time.monotonic() + 1.2
while time.monotonic() < end:
    fill(kept, 1_000)
    time.sleep(0.005)
"""
)
WAITING = """
import sys
print("ready", flush=True)
for line in sys.stdin:
    fill(kept, int(line))
    print(len(kept), flush=True)
"""
pytestmark = pytest.mark.skipif(
    not getattr(sys, "_is_gil_enabled", lambda: True)(), reason="builds without a GIL have no arenas of pymalloc"
)


def sites(capture: Path) -> list[dict[str, Any]]:
    """Return all sites of a capture with their functions, innermost last."""
    model = json.loads(heaptide("transform", "json", "-o", "-", capture).stdout)
    result = []
    for site in model["processes"][0]["sites"]:
        functions, at = [], site["stack"]
        while at is not None:
            stack = model["stacks"][at]
            functions.append(model["frames"][stack["frame"]]["function"])
            at = stack["parent"]
        result.append({**site, "functions": functions[::-1]})
    return result


def arena_bytes(capture: Path, view: str = "leaked") -> int:
    """Return the bytes below the label of arenas."""
    return sum(site[view]["bytes"] for site in sites(capture) if LABEL in site["functions"])


@pytest.mark.parametrize("options", [(), ("--native",), ("--aggregate",), ("--sample=64k",)], ids=" ".join)
def test_arenas_have_a_label_below_the_line_that_needed_them(heaptide_run: Run, options: tuple[str, ...]) -> None:
    capture = heaptide_run(PROGRAM, *options).capture
    mappings = [site for site in sites(capture) if site["allocator"] == "MMAP" and "fill" in site["functions"]]
    assert mappings
    for site in mappings:
        assert site["functions"][-1] == LABEL
    assert arena_bytes(capture) >= 12_000_000
    leaks = heaptide("tree", "--leaks", capture).stdout
    assert f"{LABEL} <pymalloc>" in leaks
    assert NOTE in leaks


@pytest.mark.once
def test_objects_are_recorded_instead_of_arenas(heaptide_run: Run, stats: Callable[..., dict[str, Any]]) -> None:
    capture = heaptide_run(PROGRAM, "--objects").capture
    assert arena_bytes(capture, "total") == 0
    assert stats(capture)["heaptide"]["python_arenas"] == {"peak_bytes": 0, "live_bytes": 0}
    assert NOTE not in heaptide("stats", capture).stdout


@pytest.mark.once
def test_reports_state_how_much_lies_in_arenas(tmp_path: Path, stats: Callable[..., dict[str, Any]]) -> None:
    (tmp_path / "job.py").write_text(PROGRAM)
    printed = python("-m", "heaptide", "run", "-o", "job.tide", "job.py", cwd=tmp_path).stderr
    assert f" at the peak {NOTE}" in printed
    capture = tmp_path / "job.tide"
    known = stats(capture)
    in_arenas = known["heaptide"]["python_arenas"]["peak_bytes"]
    assert in_arenas == arena_bytes(capture, "peak")
    assert f"- {LABEL} ->" in heaptide("stats", capture).stdout
    share = in_arenas / known["metadata"]["peak_memory"]
    assert share > 0.5
    for command in ("stats", "tree", "summary"):
        assert NOTE in heaptide(command, capture).stdout


@pytest.mark.once
def test_arenas_are_attributed_to_no_line(heaptide_run: Run, stats: Callable[..., dict[str, Any]]) -> None:
    capture = heaptide_run(PROGRAM + "\nblock = bytearray(3_000_000)").capture
    (largest,) = [finding for finding in stats(capture)["heaptide"]["findings"] if finding["kind"] == "holds_most"]
    assert largest["place"]["function"] == "<module>"
    # The arenas hold more than the line, so the line does not hold most of the heap.
    assert largest["what"].endswith("holds most at the peak apart from Python's arenas")
    assert largest["numbers"]["peak_bytes"] < largest["numbers"]["whole_peak_bytes"] / 2


@pytest.mark.once
def test_growing_arenas_are_a_finding_about_python_objects(
    heaptide_run: Run, stats: Callable[..., dict[str, Any]]
) -> None:
    capture = heaptide_run(GROWING).capture
    growing = [finding for finding in stats(capture)["heaptide"]["findings"] if finding["kind"] == "grows"]
    (arenas,) = [finding for finding in growing if finding["place"]["function"] == LABEL]
    text = heaptide("stats", capture).stdout
    assert "the memory of Python objects grows steadily" in text
    assert "record with --objects to see which lines allocate these objects" in text
    assert arenas["caller"] is None


def test_attached_process_labels_its_arenas_and_recordings_end_cleanly(tmp_path: Path) -> None:
    program = tmp_path / "job.py"
    program.write_text(FILL + WAITING)

    def fill(process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("100000\n")
        process.stdin.flush()
        assert int(process.stdout.readline()) % 100_000 == 0

    with running(sys.executable, program) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        for name in ("first", "second"):
            capture = tmp_path / f"{name}.tide"
            attach(process, "-o", capture)
            fill(process)
            assert f" on the heap {NOTE}" in heaptide("live", "--plain", "--pid", str(process.pid)).stdout
            assert f" at the peak {NOTE}" in detach(process)
            assert arena_bytes(capture) >= 8_000_000
            fill(process)
