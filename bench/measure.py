"""Runs one process to its end and measures CPU seconds, wall seconds and maximum resident size.

CPU time is what the kernel reports for that child (wait4), so it excludes other processes. Wall time is reliable only
on an idle machine.
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
    """Cost of one run. Sizes in bytes, times in seconds."""

    cpu: float
    wall: float
    max_rss: int
    exit_code: int
    stderr: str
    capture_size: int = 0

    @property
    def ok(self) -> bool:
        """Return whether the program succeeded. The cost of a failed run is meaningless."""
        return self.exit_code == 0

    def better_of(self, other: Cost) -> Cost:
        """Return the minimum of each figure, because noise only increases it. If a run failed, return that run."""
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
    """Run a command, discard its output, and keep its standard error."""
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
    """Run a command that must succeed."""
    cost = run(command)
    if not cost.ok:
        shown = " ".join(Path(word).name for word in command)
        last = cost.stderr.strip().splitlines()[-1:] or ["no message"]
        raise RuntimeError(f"`{shown}` exited with {cost.exit_code}: {last[0]}")
    return cost


def record(python: Path, tool: str, capture: Path, program: str, *arguments: str) -> None:
    """Record a capture of one of bench/programs."""
    script = PROGRAMS / f"{program}.py"
    succeed([python, "-m", tool, "run", "-q", "-f", "-o", capture, script, *arguments])


def size_and_remove(prefix: Path) -> int:
    """Return the size of the files with this prefix, and delete them, because captures are large."""
    total = 0
    for path in prefix.parent.glob(prefix.name + "*"):
        total += path.stat().st_size
        path.unlink()
    return total
