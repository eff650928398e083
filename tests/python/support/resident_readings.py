"""How often a recording read the resident size.

A reading may come late on a busy machine, but the next one is due an interval after the last was due, or later. So there are
never three readings within less than one interval, and sooner or later there are three within little more than two.
"""

from __future__ import annotations

import re
from pathlib import Path

from support.commands import heaptide

# A program's part: its size changes all the time, so that every reading is in the file, until a file named `enough` appears.
GROW_AND_SHRINK = """
import os, time
def grow_and_shrink():
    held = []
    while not os.path.exists("enough"):
        held = [*held, b"x" * 65536] if len(held) < 200 else []
        time.sleep(0.001)
"""


def shortest_time_of_three_readings(capture: Path) -> float:
    """In seconds; infinite as long as there are fewer than three, or no capture."""
    if not capture.exists():
        return float("inf")
    parsed = heaptide("parse", capture, check=False).stdout
    times = [float(time) for time in re.findall(r"^MEMORY_RECORD time=(\S+)", parsed, re.MULTILINE)]
    return min((third - first for first, third in zip(times, times[2:], strict=False)), default=float("inf"))
