"""Attaches and detaches many times in a row, and reports the cost for the process.

    python bench/attach.py --python build/venv/bin/python --rounds 200

`attach_everywhere.py` does this on every supported Python. `heaptide` must be installed for the interpreter named by
`--python`; the process runs on the same one, or on the one named by `--target`. There are two programs: one with eight
busy threads, one blocked in a system call. After the last round, the results and output of each must be the same as
without Heaptide.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

PROGRAMS = Path(__file__).resolve().parent.parent / "tests" / "programs"
# The message of `heaptide attach`: duration of the attach, then of the pause.
DURATIONS = re.compile(r"attaching took ([\d.]+) (µs|ms|s)\D+([\d.]+) (µs|ms|s)")
MILLISECONDS = {"µs": 1e-3, "ms": 1.0, "s": 1e3}
BUDGET_PAUSE_MS = 50.0
BUDGET_ATTACH_MS = 500.0


class Figures(NamedTuple):
    """Milliseconds of many rounds against one program: median and maximum."""

    python: str
    program: str
    rounds: int
    attach: tuple[float, float]
    pause: tuple[float, float]
    detach: tuple[float, float]

    HEADER = f"{'milliseconds':24} {'rounds':>6} {'attach: median, max':>17} {'pause':>14} {'detach':>17}"

    def line(self) -> str:
        """Return one row of the table."""
        cells = (f"{median:8.1f} {largest:8.1f}" for median, largest in (self.attach, self.pause, self.detach))
        return " ".join([f"{self.python + ' ' + self.program:24}", f"{self.rounds:6}", *cells])

    def is_within_budget(self) -> bool:
        """Return whether the worst round is within the budget."""
        return self.pause[1] <= BUDGET_PAUSE_MS and self.attach[1] <= BUDGET_ATTACH_MS


class Rounds:
    """Measurements of all rounds."""

    def __init__(self) -> None:
        self.attach_ms: list[float] = []
        self.pause_ms: list[float] = []
        self.detach_ms: list[float] = []

    def once(self, python: str, pid: int, capture: Path, options: list[str]) -> None:
        """Attach and detach once."""
        command = [python, "-m", "heaptide"]
        done = subprocess.run(
            [*command, "attach", str(pid), "-f", "-o", str(capture), *options], capture_output=True, text=True
        )
        found = DURATIONS.search(done.stderr)
        if done.returncode != 0 or found is None:
            raise SystemExit(f"attach exited with {done.returncode}: {done.stderr}")
        self.attach_ms.append(float(found[1]) * MILLISECONDS[found[2]])
        self.pause_ms.append(float(found[3]) * MILLISECONDS[found[4]])
        began = time.monotonic()
        done = subprocess.run([*command, "detach", "-q", str(pid)], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"detach exited with {done.returncode}: {done.stderr}")
        self.detach_ms.append((time.monotonic() - began) * 1e3)

    def figures(self, python: str, program: str) -> Figures:
        """Return medians and maxima."""

        def median_and_maximum(values: list[float]) -> tuple[float, float]:
            ordered = sorted(values)
            return ordered[len(ordered) // 2], ordered[-1]

        attach, pause, detach = map(median_and_maximum, (self.attach_ms, self.pause_ms, self.detach_ms))
        return Figures(python, program, len(self.attach_ms), attach, pause, detach)


def busy(python: str, target: str, n_rounds: int, folder: Path, options: list[str]) -> Rounds:
    """Attach to a program with eight busy threads."""
    output = folder / "busy.txt"
    rounds = Rounds()
    with output.open("w") as file:
        program = subprocess.Popen(
            [target, str(PROGRAMS / "attach/busy_with_eight_threads.py")],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
        )
        while not output.stat().st_size and program.poll() is None:
            time.sleep(0.01)
        for _ in range(n_rounds):
            rounds.once(python, program.pid, folder / "busy.tide", options)
        program.communicate()
    lines = output.read_text().splitlines()
    expected = [str(number) for number in range(len(lines) - 1)]
    if program.returncode != 0 or lines[:-1] != expected or lines[-1] != f"right {len(expected)} True":
        odd = [line for line in lines[:-1] if not line.isdecimal()]
        raise SystemExit(f"the busy program exited with {program.returncode}: {odd[:20]}, {lines[-5:]}")
    return rounds


def blocked(python: str, target: str, n_rounds: int, folder: Path, options: list[str]) -> Rounds:
    """Attach to a program that waits in a system call."""
    rounds = Rounds()
    program = subprocess.Popen(
        [target, str(PROGRAMS / "attach/blocked_in_a_read.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert program.stdin is not None and program.stdout is not None
    output = [program.stdout.readline()]
    for number in range(n_rounds):
        rounds.once(python, program.pid, folder / "blocked.tide", options)
        program.stdin.write("x" * number + "\n")
        program.stdin.flush()
        output.append(program.stdout.readline())
    output += program.communicate()[0].splitlines(keepends=True)
    expected = ["ready\n", *(f"{number}\n" for number in range(n_rounds))]
    expected += ["threading imported: False\n", "main thread: True\n"]
    if program.returncode != 0 or output != expected:
        raise SystemExit(f"the blocked program exited with {program.returncode}: {output[-5:]}")
    return rounds


def main() -> int:
    """Measure, print, and compare with the budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", help="an interpreter with heaptide installed; may be repeated")
    parser.add_argument("--target", help="interpreter of the programs, if different")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 if the budget is missed; a wrong result always does"
    )
    parser.add_argument("--options", default="", help="more options for attach, such as --objects")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    if not options.json:
        print(Figures.HEADER)
    found = []
    for python in options.python or [sys.executable]:
        target = options.target or python
        version = subprocess.run([target, "-V"], capture_output=True, text=True).stdout.split()[-1]
        for attach in (busy, blocked):
            with tempfile.TemporaryDirectory() as folder:
                rounds = attach(python, target, options.rounds, Path(folder), options.options.split())
            found.append(rounds.figures(version, attach.__name__))
            if not options.json:
                print(found[-1].line(), flush=True)
    is_kept = all(figures.is_within_budget() for figures in found)
    print(json.dumps(found) if options.json else verdict(is_kept))
    return 1 if options.strict and not is_kept else 0


def verdict(is_kept: bool) -> str:
    """Return the last line of the table."""
    return "within the budget" if is_kept else "OVER THE BUDGET of 50 ms pause and 500 ms to attach"


if __name__ == "__main__":
    sys.exit(main())
