"""Counts the instructions that a workload takes bare and recorded: a figure that a busy machine does not change.

    build/bench-3.12/bin/python bench/instructions.py --results bench/results imports frames

The programs run under valgrind's callgrind, which counts what the processor is told to do outside of the kernel. That
is not time: what waits for memory, and the kernel's part, are not in it. But two runs of one program differ by next to
nothing, where CPU time on a shared machine differs by a fifth; so a change of the hot path can be seen here at once.
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
# The first is what all others are compared with.
USUAL = ("bare", "bare-again", "heaptide", "heaptide-sample")


def count(workload: str, name: str) -> int | None:
    """All instructions of one run, those of the command's start among them; None if the run failed."""
    with tempfile.TemporaryDirectory(prefix="heaptide-bench-") as scratch:
        command = tools(Path(sys.executable), Path(scratch) / "capture")[name]
        # The same hashes in every run, so that every dict is searched alike.
        valgrind = ["env", "PYTHONHASHSEED=0", "valgrind", "--tool=callgrind"]
        output = f"--callgrind-out-file={scratch}/counts"
        cost = run([*valgrind, output, *command, HERE / "workloads" / f"{workload}.py"])
    found = COUNTED.search(cost.stderr)
    if not cost.ok or found is None:
        print(f"{workload} under {name} failed with {cost.exit_code}: {cost.stderr.strip()[-300:]}", file=sys.stderr)
        return None
    return int(found[1])


def row(workload: str, counts: list[int | None]) -> list[str]:
    """The bare run in millions of instructions, all others as ratios to it."""
    bare, *others = counts
    if not bare:
        return [workload, "failed", *("" for _ in others)]
    return [workload, f"{bare / 1e6:,.0f} M", *(f"{other / bare:.3f}" if other else "failed" for other in others)]


def main() -> int:
    """Count, two runs at a time, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(WORKLOADS)}; all without any")
    parser.add_argument("--tools", default=",".join(USUAL), help="how, as overhead.py calls it; without it %(default)s")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="write instructions.md there, too")
    wanted = parser.parse_args()
    chosen = wanted.workloads or list(WORKLOADS)
    unknown = [name for name in chosen if name not in WORKLOADS]
    if unknown:
        parser.error(f"there is no workload {unknown[0]}: choose of {', '.join(WORKLOADS)}")
    if shutil.which("valgrind") is None:
        parser.error("valgrind is not installed: install the package valgrind")
    names = wanted.tools.split(",")
    unknown = [name for name in names if name not in tools(Path(), Path())]
    if unknown:
        parser.error(f"there is no tool {unknown[0]}: choose of {', '.join(tools(Path(), Path()))}")
    tasks = [(workload, name) for workload in chosen for name in names]
    with ThreadPoolExecutor(2) as both:
        counted = list(both.map(lambda task: count(*task), tasks))
    rows = [row(workload, counted[at * len(names) :][: len(names)]) for at, workload in enumerate(chosen)]
    page = "\n".join(tables.table([["workload", *names], *rows])) + "\n"
    print(page)
    if wanted.results:
        title = "# Instructions, counted\n\n"
        command = f"bench/instructions.py --tools {wanted.tools} {' '.join(chosen)}"
        how = f"Made by `{command}` with Python {platform.python_version()}: "
        what = "instructions outside of the kernel as a ratio to the bare run, the command's start included.\n\n"
        (wanted.results / "instructions.md").write_text(title + how + what + page)
    return 0 if all(counted) else 1


if __name__ == "__main__":
    sys.exit(main())
