"""Measures the CPU share of `heaptide record` while it samples, from the CPU time that the kernel reports.

It takes ten samples a second of a program with 64 idle children.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHILDREN = 64
INTERVAL = 0.1
SECONDS = 10.0
# Seconds before the measurement, to exclude start-up: imports, finding all children, their first sizes.
SETTLED = 3.0


def share(python: Path, seconds: float = SECONDS, children: int = CHILDREN) -> float:
    """Return the share of one core, from CPU time: other load does not increase it."""
    with tempfile.TemporaryDirectory(prefix="heaptide-bench-") as scratch:
        program = [str(python), str(HERE / "programs" / "many_children.py"), str(children)]
        command = [str(python), "-m", "heaptide", "record", "-q", "-T", str(INTERVAL), "-o", "run.timeline", "--"]
        with subprocess.Popen(
            [*command, *program], cwd=scratch, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as recorder:
            assert recorder.stdin is not None and recorder.stdout is not None
            if recorder.stdout.readline() != "ready\n":
                raise RuntimeError("`heaptide record` did not start its program")
            time.sleep(SETTLED)
            before, start = spent(recorder.pid), time.perf_counter()
            time.sleep(seconds)
            used, passed = spent(recorder.pid) - before, time.perf_counter() - start
            recorder.stdin.close()
        if recorder.returncode:
            raise RuntimeError(f"`heaptide record` exited with {recorder.returncode}")
        return used / passed


def spent(pid: int) -> float:
    """Return CPU seconds of all threads that are running."""
    nanoseconds = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            nanoseconds += int((task / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9


def main() -> int:
    """Print the share; the budget is in budget.py."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="interpreter with heaptide installed")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args()
    print(f"sampler         {share(options.python, options.seconds):.2%} of one core, {CHILDREN} children at 10 Hz")
    return 0


if __name__ == "__main__":
    sys.exit(main())
