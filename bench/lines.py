"""Compares the line profilers of Heaptide and memory_profiler in a tight loop. The process itself measures the time.

The slow-down is the ratio to the bare loop. Each line of the loop does very little, so the profiler's cost dominates.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from measure import PROGRAMS, succeed

# Repetitions of the loop in one process, of which the best counts; memory_profiler takes about ten seconds for one.
REPEATS = {"bare": 9, "heaptide": 9, "memory_profiler": 1}


@dataclass
class LineCost:
    """Slow-down of the loop under each tool."""

    heaptide: float
    memory_profiler: float

    @property
    def times_less(self) -> float:
        """Return memory_profiler's slow-down as a multiple of Heaptide's."""
        return self.memory_profiler / self.heaptide


def measure_line_cost(python: Path, repetitions: int = 1) -> LineCost:
    """Measure all three in turn, so that other load affects each of them."""
    best: dict[str, float] = {}
    for _ in range(repetitions):
        for tool, repeats in REPEATS.items():
            cost = succeed([python, PROGRAMS / "tight_loop.py", tool, str(repeats)])
            seconds = float(cost.stderr.splitlines()[-1])
            best[tool] = min(best.get(tool, seconds), seconds)
    return LineCost(best["heaptide"] / best["bare"], best["memory_profiler"] / best["bare"])


def main() -> int:
    """Print the slow-downs; the budget is in budget.py."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="interpreter with both installed")
    parser.add_argument("--reps", type=int, default=1)
    options = parser.parse_args()
    cost = measure_line_cost(options.python, options.reps)
    print(f"line by line    x{cost.heaptide:.2f}, memory_profiler x{cost.memory_profiler:.0f}", end="")
    print(f" ({cost.times_less:.0f} times as much)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
