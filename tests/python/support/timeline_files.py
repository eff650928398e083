"""Runs the timeline commands, and reads their output and files."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from support.commands import PROGRAMS, heaptide


def program_environment(**more: str) -> dict[str, str]:
    """Return the environment with the variables of `more`, in which programs can import `timeline_waiting`."""
    return {**os.environ, "PYTHONPATH": str(PROGRAMS / "timelines"), **more}


def record(folder: Path, *arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `heaptide record` in a folder."""
    options.setdefault("env", program_environment())
    return heaptide("record", *arguments, cwd=folder, **options)


def peaks(path: Path) -> tuple[float, dict[int, float]]:
    """Return the peaks that `heaptide peak` prints: of the whole run, and of each child."""
    return parse_peaks(heaptide("peak", path).stdout)


def parse_peaks(text: str) -> tuple[float, dict[int, float]]:
    """Parse the output of `heaptide peak` or `mprof peak`, which have the same form."""
    lines = text.splitlines()
    whole = re.fullmatch(r".*\t(\d+\.\d{3}) MiB", lines[0])
    assert whole, lines
    children = [re.fullmatch(r"  Child (\d+)\t\t\t(\d+\.\d{3}) MiB", line) for line in lines[1:]]
    assert all(children), lines
    return float(whole[1]), {int(child[1]): float(child[2]) for child in children if child}
