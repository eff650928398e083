"""Counts the instructions of workloads, bare and recorded. Other load hardly changes the counts.

    build/bench-3.12/bin/python bench/instructions.py --results bench/results imports frames

The programs run under valgrind's callgrind, which counts instructions in user space. The count is not a time: it
excludes the kernel and waiting for memory. But two runs of one program have nearly the same count, while CPU time on a
shared machine varies by 20%. Therefore even a small change of the hot path is visible.
"""

from __future__ import annotations

import argparse
import platform
import re
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tables
from measure import run
from overhead import HERE, WORKLOADS, tools

COUNTED = re.compile(r"Collected : (\d+)")
# The other tools are compared with the first.
USUAL = ("bare", "bare-again", "heaptide", "heaptide-sample")


def count(workload: str, name: str) -> int | None:
    """Count the instructions of one run, including the start of the command. Returns None if the run failed."""
    with tempfile.TemporaryDirectory(prefix="heaptide-bench-") as scratch:
        command = tools(Path(sys.executable), Path(scratch) / "capture")[name]
        # Fixed hashes: dictionary order must not change the count.
        valgrind = ["env", "PYTHONHASHSEED=0", "valgrind", "--tool=callgrind"]
        output = f"--callgrind-out-file={scratch}/counts"
        cost = run([*valgrind, output, *command, HERE / "workloads" / f"{workload}.py"])
    found = COUNTED.search(cost.stderr)
    if not cost.ok or found is None:
        print(f"{workload} under {name} failed with {cost.exit_code}: {cost.stderr.strip()[-300:]}", file=sys.stderr)
        return None
    return int(found[1])


def row(workload: str, counts: list[int | None]) -> list[str]:
    """Return the bare run in millions of instructions, and the others as ratios to it."""
    bare, *others = counts
    if not bare:
        return [workload, "failed", *("" for _ in others)]
    return [workload, f"{bare / 1e6:,.0f} M", *(f"{other / bare:.3f}" if other else "failed" for other in others)]


def main() -> int:
    """Count, two runs at a time, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"{', '.join(WORKLOADS)} (default: all)")
    parser.add_argument("--tools", default=",".join(USUAL), help="names of overhead.py (default %(default)s)")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="also write instructions.md to this folder")
    wanted = parser.parse_args()
    chosen = wanted.workloads or list(WORKLOADS)
    unknown = [name for name in chosen if name not in WORKLOADS]
    if unknown:
        parser.error(f"there is no workload {unknown[0]}: choose from {', '.join(WORKLOADS)}")
    if shutil.which("valgrind") is None:
        parser.error("valgrind is not installed: install the package valgrind")
    names = wanted.tools.split(",")
    unknown = [name for name in names if name not in tools(Path(), Path())]
    if unknown:
        parser.error(f"there is no tool {unknown[0]}: choose from {', '.join(tools(Path(), Path()))}")
    tasks = [(workload, name) for workload in chosen for name in names]
    with ThreadPoolExecutor(2) as both:
        counted = list(both.map(lambda task: count(*task), tasks))
    rows = [row(workload, counted[at * len(names) :][: len(names)]) for at, workload in enumerate(chosen)]
    page = "\n".join(tables.table([["workload", *names], *rows])) + "\n"
    print(page)
    if wanted.results:
        title = "# Instructions, counted\n\n"
        command = f"bench/instructions.py --tools {wanted.tools} {' '.join(chosen)}"
        how = f"Created by `{command}` with Python {platform.python_version()}: "
        what = "instructions in user space as a ratio to the bare run, including the start of the command.\n\n"
        (wanted.results / "instructions.md").write_text(title + how + what + page)
    return 0 if all(counted) else 1


if __name__ == "__main__":
    sys.exit(main())
