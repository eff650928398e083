"""Measures how often a recording read the resident size.

A reading may be late on a busy machine, but due times are at least one interval apart. Three successive readings
therefore never take less than one interval. Among many readings, at least one group of three takes little more than two
intervals.
"""

from __future__ import annotations

import re
from pathlib import Path

from support.commands import heaptide

# Changes the resident size until a file named `enough` appears. A reading is only written if the size has changed.
GROW_AND_SHRINK = """
import os, time
def grow_and_shrink():
    held = []
    while not os.path.exists("enough"):
        held = [*held, b"x" * 65536] if len(held) < 200 else []
        time.sleep(0.001)
"""


def shortest_time_of_three_readings(capture: Path) -> float:
    """Return the shortest time in seconds in which three readings were taken; infinite without three readings."""
    if not capture.exists():
        return float("inf")
    parsed = heaptide("parse", capture, check=False).stdout
    times = [float(time) for time in re.findall(r"^MEMORY_RECORD time=(\S+)", parsed, re.MULTILINE)]
    return min((third - first for first, third in zip(times, times[2:], strict=False)), default=float("inf"))
