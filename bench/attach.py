"""Attach and detach many times in a row, and report what it cost the process.

    python bench/attach.py --python build/venv/bin/python --rounds 200

`attach_everywhere.py` does this on every Python of the machine. `heaptide` must be installed for the interpreter that
`--python` names; the process runs on it, too, or on the one that `--target` names. Two programs are entered: one with
eight busy threads, one that is blocked in a system call. After the last round each must have computed, read and
printed exactly what it would have without us.
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
SAID = re.compile(r"attaching took ([\d.]+) ms, of which it stood still for ([\d.]+) ms")
BUDGET_STILL_MS = 50.0
BUDGET_ATTACH_MS = 500.0


class Figures(NamedTuple):
    """What many rounds against one program took, in milliseconds: the median and the most."""

    python: str
    program: str
    rounds: int
    attach: tuple[float, float]
    still: tuple[float, float]
    detach: tuple[float, float]

    HEADER = f"{'milliseconds':24} {'rounds':>6} {'attach: median, most':>17} {'still':>14} {'detach':>17}"

    def line(self) -> str:
        """One row of the table."""
        cells = (f"{middle:8.1f} {most:8.1f}" for middle, most in (self.attach, self.still, self.detach))
        return " ".join([f"{self.python + ' ' + self.program:24}", f"{self.rounds:6}", *cells])

    def is_within_budget(self) -> bool:
        """Whether the worst round was good enough."""
        return self.still[1] <= BUDGET_STILL_MS and self.attach[1] <= BUDGET_ATTACH_MS


class Rounds:
    """What is measured, round by round."""

    def __init__(self) -> None:
        self.attach_ms: list[float] = []
        self.still_ms: list[float] = []
        self.detach_ms: list[float] = []

    def once(self, python: str, pid: int, capture: Path, options: list[str]) -> None:
        """Attach, detach."""
        command = [python, "-m", "heaptide"]
        done = subprocess.run(
            [*command, "attach", str(pid), "-f", "-o", str(capture), *options], capture_output=True, text=True
        )
        found = SAID.search(done.stderr)
        if done.returncode != 0 or found is None:
            raise SystemExit(f"attach ended with {done.returncode}: {done.stderr}")
        self.attach_ms.append(float(found[1]))
        self.still_ms.append(float(found[2]))
        began = time.monotonic()
        done = subprocess.run([*command, "detach", "-q", str(pid)], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"detach ended with {done.returncode}: {done.stderr}")
        self.detach_ms.append((time.monotonic() - began) * 1e3)

    def figures(self, python: str, program: str) -> Figures:
        """The middle and the worst."""

        def middle_and_most(values: list[float]) -> tuple[float, float]:
            ordered = sorted(values)
            return ordered[len(ordered) // 2], ordered[-1]

        attach, still, detach = map(middle_and_most, (self.attach_ms, self.still_ms, self.detach_ms))
        return Figures(python, program, len(self.attach_ms), attach, still, detach)


def busy(python: str, target: str, n_rounds: int, folder: Path, options: list[str]) -> Rounds:
    """Enter a program with eight busy threads."""
    output = folder / "busy.txt"
    rounds = Rounds()
    with output.open("w") as file:
        program = subprocess.Popen(
            [target, str(PROGRAMS / "busy_with_eight_threads.py")], stdin=subprocess.PIPE, stdout=file, stderr=file
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
        raise SystemExit(f"the busy program ended with {program.returncode}: {odd[:20]}, {lines[-5:]}")
    return rounds


def blocked(python: str, target: str, n_rounds: int, folder: Path, options: list[str]) -> Rounds:
    """Enter a program that waits inside a system call."""
    rounds = Rounds()
    program = subprocess.Popen(
        [target, str(PROGRAMS / "blocked_in_a_read.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert program.stdin is not None and program.stdout is not None
    said = [program.stdout.readline()]
    for number in range(n_rounds):
        rounds.once(python, program.pid, folder / "blocked.tide", options)
        program.stdin.write("x" * number + "\n")
        program.stdin.flush()
        said.append(program.stdout.readline())
    said += program.communicate()[0].splitlines(keepends=True)
    expected = ["ready\n", *(f"{number}\n" for number in range(n_rounds))]
    expected += ["threading imported: False\n", "main thread: True\n"]
    if program.returncode != 0 or said != expected:
        raise SystemExit(f"the blocked program ended with {program.returncode}: {said[-5:]}")
    return rounds


def main() -> int:
    """Measure, print, and say whether the budget holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", help="an interpreter with heaptide installed; may be repeated")
    parser.add_argument("--target", help="the interpreter of the programs, if it is another")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument(
        "--strict", action="store_true", help="end with 1 if the budget is missed; a wrong result always does"
    )
    parser.add_argument("--options", default="", help="further options of attach, such as --objects")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, for a program to read")
    asked = parser.parse_args()
    if not asked.json:
        print(Figures.HEADER)
    found = []
    for python in asked.python or [sys.executable]:
        target = asked.target or python
        version = subprocess.run([target, "-V"], capture_output=True, text=True).stdout.split()[-1]
        for enter in (busy, blocked):
            with tempfile.TemporaryDirectory() as folder:
                rounds = enter(python, target, asked.rounds, Path(folder), asked.options.split())
            found.append(rounds.figures(version, enter.__name__))
            if not asked.json:
                print(found[-1].line(), flush=True)
    is_kept = all(figures.is_within_budget() for figures in found)
    print(json.dumps(found) if asked.json else verdict(is_kept))
    return 1 if asked.strict and not is_kept else 0


def verdict(is_kept: bool) -> str:
    """The last line."""
    return "within the budget" if is_kept else "OVER THE BUDGET of 50 ms still and 500 ms to attach"


if __name__ == "__main__":
    sys.exit(main())
