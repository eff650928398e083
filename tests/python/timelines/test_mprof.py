"""Tests that Heaptide and the real mprof read each other's files and print the same numbers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import heaptide
from support.timeline_files import parse_peaks, peaks, program_environment, record

pytestmark = pytest.mark.once

pytest.importorskip("memory_profiler", reason="memory_profiler has no wheel for this interpreter")

CHILDREN = """
import multiprocessing, os, time

def child(n):
    block = bytearray(n << 20)
    wait(n, True)

def wait(n, is_child):
    # mprof does not pass the path of its file to the program.
    if "HEAPTIDE_TIMELINE_FUNCTIONS" in os.environ:
        from timeline_waiting import wait_for_size
        wait_for_size(n, is_child)
    else:
        time.sleep(0.3)

if __name__ == "__main__":
    children = [multiprocessing.get_context("spawn").Process(target=child, args=(n,)) for n in (16, 32)]
    for one in children:
        one.start()
    block = bytearray(64 << 20)
    wait(64, False)
    for one in children:
        one.join()
"""
FUNCTIONS = """
import time

@profile
def outer():
    block = bytearray(32 << 20)
    inner()
    return block

@profile
def inner():
    block = bytearray(16 << 20)
    time.sleep(0.3)

outer()
"""


def mprof(*arguments: str | Path, cwd: Path) -> str:
    """Run the real mprof without a display."""
    command = [sys.executable, "-m", "mprof", *map(str, arguments)]
    environment = program_environment(MPLBACKEND="agg", MPLCONFIGDIR=str(cwd))
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A file of `heaptide record` with child processes."""
    (tmp_path / "job.py").write_text(CHILDREN)
    record(tmp_path, "-q", "--dat", "-C", "-M", "job.py")
    (file,) = tmp_path.glob("mprofile_*.dat")
    return file


def test_mprof_prints_the_same_peaks_for_heaptides_file(tmp_path: Path, recorded: Path) -> None:
    text = recorded.read_text()
    assert text.startswith("CMDLINE ")
    assert "\nMEM " in text
    assert "\nCHLD " in text
    by_mprof = parse_peaks(mprof("peak", recorded, cwd=tmp_path))
    assert by_mprof == peaks(recorded)
    whole, children = by_mprof
    assert whole > 64
    assert sum(size > 16 for size in children.values()) >= 2
    # Both list the same numbers and names. mprof prints number, name, time, date; Heaptide number, date, time, name.
    listed = [line.split()[:2] for line in mprof("list", cwd=tmp_path).splitlines()]
    _, *rows = heaptide("list", cwd=tmp_path).stdout.splitlines()
    assert [[row.split()[0], row.split()[-1]] for row in rows] == listed
    # Without a name both read the newest file.
    assert mprof("peak", cwd=tmp_path) == heaptide("peak", cwd=tmp_path).stdout


def test_mprof_plots_heaptides_file_and_heaptide_needs_no_matplotlib(tmp_path: Path, recorded: Path) -> None:
    heaptide("plot", "-o", "recorded.png", recorded, cwd=tmp_path)
    assert (tmp_path / "recorded.png").read_bytes().startswith(b"\x89PNG")
    pytest.importorskip("matplotlib", reason="matplotlib has no wheel for this interpreter")
    mprof("plot", "-s", "-o", "mprof.png", recorded, cwd=tmp_path)
    assert (tmp_path / "mprof.png").read_bytes().startswith(b"\x89PNG")


def test_files_of_the_real_mprof_are_read_with_functions_and_children(tmp_path: Path) -> None:
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    (tmp_path / "job.py").write_text(CHILDREN)
    mprof("run", "-o", "functions.dat", "functions.py", cwd=tmp_path)
    mprof("run", "-C", "-M", "-o", "children.dat", "job.py", cwd=tmp_path)
    for name in ("functions.dat", "children.dat"):
        path = tmp_path / name
        assert parse_peaks(mprof("peak", path, cwd=tmp_path)) == peaks(path)
    text = (tmp_path / "functions.dat").read_text()
    # The program writes the function lines and mprof the command, in either order.
    assert text.count("FUNC ") == 2
    chart = heaptide("plot", tmp_path / "functions.dat").stdout
    assert "outer " in chart
    assert "inner " in chart
    outer = next(line.split() for line in text.splitlines() if line.startswith("FUNC") and "outer" in line)
    times = [float(line.split()[2]) for line in text.splitlines() if line.startswith("MEM")]
    # mprof fails without a sample during the function.
    if any(float(outer[3]) <= time <= float(outer[5]) for time in times):
        of_function = mprof("peak", "--func", outer[1], "functions.dat", cwd=tmp_path)
        assert of_function == heaptide("peak", "--func", outer[1], "functions.dat", cwd=tmp_path).stdout


def test_function_lines_before_the_command_and_empty_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "odd.dat"
    path.write_text(
        "FUNC m.work 10.0000 100.1000 90.0000 101.9000 0\n\nMEM 10.000000 100.0000\nMEM 95.500000 102.0000\n\n"
        "CMDLINE python odd.py\nCHLD 12 5.000000 101.0000\nSOMETHING new\n"
    )
    assert peaks(path) == (95.5, {12: 5.0})
    chart = heaptide("plot", path).stdout
    assert chart.startswith("python odd.py\n")
    assert "work 1.80 s" in chart
