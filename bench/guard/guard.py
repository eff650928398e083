"""Fails when recording becomes more expensive: compares instruction counts of three programs with fixed ceilings.

    make guard                 compare with ceilings.json
    make guard ARGS=--lower    lower each ceiling that is above its ratio, and write them

Each program runs bare and in each recording mode under valgrind's callgrind. A result is the recorded run's count of
instructions divided by the bare run's, so the machine's load and speed do not matter. Interpreter start and `heaptide
run` are included. A ratio may exceed its ceiling by 2%. A ratio more than 2% below its ceiling also fails, so that
every improvement lowers the ceiling. Ratios depend on the Python version, so the guard runs on one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
CEILINGS = HERE / "ceilings.json"
PROGRAMS = ("calls", "imports", "objects")
MODES = {"exact": [], "objects": ["--objects"], "sampled": ["--sample"]}
TOLERANCE = 0.02
COUNTED = re.compile(r"Collected : (\d+)")


def run(program: str, mode: str | None, cache: str, *wrapper: str) -> str:
    """Run a program to its end and return its stderr; `mode` None runs it bare."""
    with tempfile.TemporaryDirectory(prefix="heaptide-guard-") as scratch:
        heaptide = [] if mode is None else ["-m", "heaptide", "run", "-q", "-o", "capture.tide", *MODES[mode]]
        command = [*wrapper, sys.executable, *heaptide, str(HERE / "programs" / f"{program}.py")]
        # Fixed variables and hashes: neither the caller's environment nor dictionary order may change the count.
        environment = {"PATH": os.environ["PATH"], "HOME": scratch, "PYTHONHASHSEED": "0", "PYTHONPYCACHEPREFIX": cache}
        done = subprocess.run(command, capture_output=True, text=True, cwd=scratch, env=environment)
    if done.returncode != 0:
        sys.exit(f"{program} ({mode or 'bare'}) failed with exit code {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stderr


def count(program: str, mode: str | None, cache: str) -> int:
    """Count the instructions of one run in user space."""
    run(program, mode, cache)  # fills the bytecode cache, so that no measured run compiles
    counted = COUNTED.search(run(program, mode, cache, "valgrind", "--tool=callgrind", "--callgrind-out-file=counts"))
    if counted is None:
        sys.exit(f"valgrind printed no count for {program} ({mode or 'bare'})")
    return int(counted[1])


def measure() -> dict[str, dict[str, float]]:
    """Return the ratio of every program in every mode; two runs at a time."""
    tasks = [(program, mode) for program in PROGRAMS for mode in (None, *MODES)]
    with tempfile.TemporaryDirectory(prefix="heaptide-guard-") as cache, ThreadPoolExecutor(2) as pool:
        counts = dict(zip(tasks, pool.map(lambda task: count(*task, cache), tasks), strict=True))
    return {
        program: {mode: round(counts[program, mode] / counts[program, None], 4) for mode in MODES}
        for program in PROGRAMS
    }


def main() -> int:
    """Print the table; return 1 if a ratio differs from its ceiling by more than the tolerance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lower", action="store_true", help="write lower ratios as the new ceilings")
    options = parser.parse_args()
    ceilings: dict[str, dict[str, float]] = json.loads(CEILINGS.read_text())
    failures = 0
    for program, ratios in measure().items():
        for mode, ratio in ratios.items():
            ceiling = ceilings[program][mode]
            if ratio > ceiling * (1 + TOLERANCE):
                verdict = "FAILED: above the ceiling"
            elif ratio < ceiling * (1 - TOLERANCE):
                verdict = "lowered" if options.lower else "FAILED: below the ceiling; run make guard ARGS=--lower"
            else:
                verdict = "ok"
            failures += verdict.startswith("FAILED")
            print(f"{program:8} {mode:8} {ratio:7.3f} x bare, ceiling {ceiling:7.3f}  {verdict}")
            if options.lower:
                ceilings[program][mode] = min(ceiling, ratio)
    if options.lower:
        CEILINGS.write_text(json.dumps(ceilings, indent=2) + "\n")
    print(f"{len(PROGRAMS) * len(MODES) - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
