"""Measures how often a recording read the resident size.

A reading may be late on a busy machine, but due times are at least one interval apart. Three successive readings
therefore never take less than one interval, and among many readings some three take little more than two intervals.
"""

from __future__ import annotations

import re
from pathlib import Path

from support.commands import heaptide

# The size changes all the time, so that every reading is written, until a file named `enough` appears.
GROW_AND_SHRINK = """
import os, time
def grow_and_shrink():
    held = []
    while not os.path.exists("enough"):
        held = [*held, b"x" * 65536] if len(held) < 200 else []
        time.sleep(0.001)
"""


def shortest_time_of_three_readings(capture: Path) -> float:
    """Return the shortest time in seconds between a reading and the next but one; infinite without three readings."""
    if not capture.exists():
        return float("inf")
    parsed = heaptide("parse", capture, check=False).stdout
    times = [float(time) for time in re.findall(r"^MEMORY_RECORD time=(\S+)", parsed, re.MULTILINE)]
    return min((third - first for first, third in zip(times, times[2:], strict=False)), default=float("inf"))
