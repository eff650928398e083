"""Runs one process to its end and says what it cost: CPU seconds, wall seconds, greatest resident size.

The kernel's own account of that one child (wait4) is read, so nothing else on the machine is counted as CPU time; wall
time is only as good as the machine is quiet.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "programs"


@dataclass
class Cost:
    """What one run cost. Sizes in bytes, times in seconds."""

    cpu: float
    wall: float
    max_rss: int
    exit_code: int
    stderr: str
    capture_size: int = 0

    @property
    def ok(self) -> bool:
        """Whether the program ended well: the cost of a failure is not a measurement."""
        return self.exit_code == 0

    def better_of(self, other: Cost) -> Cost:
        """The least of each figure: what disturbs a run only ever adds. A failed run is kept, to be seen."""
        if not (self.ok and other.ok):
            return other if self.ok else self
        return Cost(
            cpu=min(self.cpu, other.cpu),
            wall=min(self.wall, other.wall),
            max_rss=min(self.max_rss, other.max_rss),
            exit_code=0,
            stderr=other.stderr,
            capture_size=other.capture_size,
        )


def run(command: Sequence[str | Path]) -> Cost:
    """Run a command with its output thrown away, but for what it says on stderr."""
    with tempfile.TemporaryFile() as stderr:
        start = time.perf_counter()
        child = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=stderr)
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        stderr.seek(0)
        return Cost(
            cpu=usage.ru_utime + usage.ru_stime,
            wall=wall,
            max_rss=usage.ru_maxrss * 1024,
            exit_code=child.returncode,
            stderr=stderr.read().decode(errors="replace")[-500:],
        )


def succeed(command: Sequence[str | Path]) -> Cost:
    """Run a command that must end well."""
    cost = run(command)
    if not cost.ok:
        shown = " ".join(Path(word).name for word in command)
        last = cost.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise RuntimeError(f"`{shown}` ended with {cost.exit_code}: {last[0]}")
    return cost


def record(python: Path, tool: str, capture: Path, program: str, *arguments: str) -> None:
    """Leave a capture of one of bench/programs."""
    script = PROGRAMS / f"{program}.py"
    succeed([python, "-m", tool, "run", "-q", "-f", "-o", capture, script, *arguments])


def size_and_remove(prefix: Path) -> int:
    """The size of the files a tool left under this name, which are deleted: captures are large."""
    total = 0
    for path in prefix.parent.glob(prefix.name + "*"):
        total += path.stat().st_size
        path.unlink()
    return total
