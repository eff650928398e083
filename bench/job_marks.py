"""Counts the instructions of job marks: bench/job_marks.py [--jobs N].

    nothing recorded    instructions and system calls of one job that does nothing, for each form of mark; budget
                        10,000 instructions and no system calls
    sampled, exact      instructions of a worker with marked jobs, as a ratio to the same worker without marks; budget
                        1.02 and 1.03. Also the instructions of one recorded mark, and of the smallest job for which
                        the budget holds

valgrind's callgrind counts instructions and strace counts system calls, so other load on the machine does not matter.
Each figure is the difference between two runs of different length, which removes the start of the interpreter. Part of
`make bench`; exits with 1 if a budget is exceeded.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent / "programs" / "jobs.py"
COUNTED = re.compile(r"Collected : (\d+)")
MODES = {"sampled": (["--sample"], 1.02), "exact": ([], 1.03)}
MAX_INSTRUCTIONS = 10_000
# Orders per job: about ten milliseconds of work.
SIZE = 2_000


def execute(wrapper: list[str], heaptide: list[str], *args: str | int) -> str:
    """Run the program to its end, in a minimal environment with fixed hashes, and return its standard error."""
    with tempfile.TemporaryDirectory(prefix="heaptide-bench-") as scratch:
        command = [*wrapper, sys.executable, *heaptide, str(PROGRAM), *map(str, args)]
        environment = {"PATH": os.environ["PATH"], "HOME": scratch, "PYTHONHASHSEED": "0"}
        done = subprocess.run(command, capture_output=True, text=True, cwd=scratch, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return done.stderr


def instructions(heaptide: list[str], *args: str | int) -> int:
    """Count the instructions of one run in user space."""
    found = COUNTED.search(execute(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"], heaptide, *args))
    if found is None:
        sys.exit("valgrind printed no count")
    return int(found[1])


def system_calls(*args: str | int) -> int:
    """Count the system calls of one run."""
    return len(execute(["strace", "-f", "-qq"], [], *args).splitlines())


def per_job(form: str, heaptide: list[str] | None = None) -> float:
    """Count the instructions of one job that does nothing."""
    return (instructions(heaptide or [], form, 2_100, 0) - instructions(heaptide or [], form, 100, 0)) / 2_000


def main() -> int:
    """Count, print, and compare with the budgets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20, help="number of jobs in recorded workers")
    n_jobs = parser.parse_args().jobs
    failures = 0

    def show(what: str, number: float, budget: float) -> None:
        nonlocal failures
        failures += number > budget
        print(f"{what:55} {number:10,.3f}  budget {budget:10,.3f}  {'FAILED' if number > budget else 'ok'}")

    for form in ("block", "calls", "function", "generator", "async function", "async generator"):
        bare = f"plain {form}" if form.endswith(("generator", "async function")) else "plain"
        show(f"nothing recorded: instructions of one job ({form})", per_job(form) - per_job(bare), MAX_INSTRUCTIONS)
        calls = system_calls(form, 20_100, 0) - system_calls(form, 100, 0)
        # The limit is not 0, because the allocator occasionally requests memory from the kernel.
        show(f"nothing recorded: system calls per 1,000 jobs ({form})", calls / 20, 1)
    for mode, (options, budget) in MODES.items():
        heaptide = ["-m", "heaptide", "run", "-q", "-o", "capture.tide", *options]
        marked, plain = (
            instructions(heaptide, form, n_jobs + 1, SIZE) - instructions(heaptide, form, 1, SIZE)
            for form in ("block", "plain")
        )
        show(f"{mode}: ratio of a worker with marks to one without", marked / plain, budget)
        mark = (per_job("block", heaptide) - per_job("plain", heaptide)) / 1_000
        print(f"{mode}: thousand instructions of one mark {mark:13,.1f}")
        print(f"{mode}: the budget holds for jobs of {mark / (budget - 1):18,.0f} thousand instructions or more")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
