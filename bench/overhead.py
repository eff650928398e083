"""Measures the cost of profiling, compares it with memray's, and checks it against the budget.

Every workload runs several times without a tool (bare) and under each tool. A figure is the ratio of the best run under
the tool to the best bare run. fixed_costs.py measures a stopped profiler, command start-up and reading a capture. Each
Python needs heaptide, memray, numpy and pandas; `make bench` prepares three Pythons and runs this script.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import fixed_costs
import tables
from measure import Cost, run, size_and_remove

HERE = Path(__file__).resolve().parent
WORKLOADS = ("calls", "small_objects", "json_docs", "frames", "threads", "imports", "big_blocks", "deep_stack")


def tools(python: Path, capture: Path) -> dict[str, list[str]]:
    """Return, by tool, the command line to which the script is appended."""
    heaptide = [str(python), "-m", "heaptide", "run", "-q", "-f", "-o", str(capture)]
    memray = [str(python), "-m", "memray", "run", "-q", "-f", "-o", str(capture)]
    return {
        "bare": [str(python)],
        # A second bare run: the difference of its ratio from 1 is the error of all other ratios.
        "bare-again": [str(python)],
        "heaptide": heaptide,
        "heaptide-objects": heaptide + ["--objects"],
        "heaptide-sample": heaptide + ["--sample"],
        "heaptide-aggregate": heaptide + ["--aggregate"],
        "heaptide-native": heaptide + ["--native"],
        "heaptide-tracer": [str(python), str(HERE / "programs" / "traced.py")],
        "memray": memray,
        "memray-aggregate": memray + ["--aggregate"],
        "memray-objects": memray + ["--trace-python-allocators"],
        "memray-native": memray + ["--native"],
        "tracemalloc": [str(python), "-X", "tracemalloc=25"],
    }


@dataclass
class Result:
    """All measurements with one interpreter."""

    python: str
    date: str
    command: str
    machine: dict[str, str]
    versions: dict[str, str]
    repetitions: int
    overhead: dict[str, dict[str, Cost]] = field(default_factory=dict)
    fixed_costs: fixed_costs.Figures = field(default_factory=fixed_costs.Figures)

    def ratio(self, workload: str, tool: str) -> float | None:
        """Return CPU time as a ratio to the bare run; None if either is missing."""
        costs = self.overhead.get(workload, {})
        bare, cost = costs.get("bare"), costs.get(tool)
        return cost.cpu / bare.cpu if bare and cost and bare.ok and cost.ok else None


def measure(python: Path, workload: Path, names: list[str], repetitions: int) -> dict[str, Cost]:
    """Run one workload under each tool, interleaved so that other load affects all of them."""
    best: dict[str, Cost] = {}
    with tempfile.TemporaryDirectory(prefix="heaptide-bench-") as scratch:
        capture = Path(scratch) / "capture"
        commands = tools(python, capture)
        for _ in range(repetitions):
            for name in names:
                cost = run([*commands[name], workload])
                cost.capture_size = size_and_remove(capture)
                cost.stderr = "" if cost.ok else cost.stderr
                best[name] = best[name].better_of(cost) if name in best else cost
    return best


def report(workload: str, result: Result) -> None:
    """Print one workload as soon as it is measured, because the whole run takes many minutes."""
    costs = result.overhead[workload]
    bare = costs["bare"]
    print(f"{workload:15} bare {bare.cpu:.2f} s CPU, {bare.wall:.2f} s wall")
    for tool, cost in costs.items():
        if tool == "bare":
            continue
        if not cost.ok:
            print(f"    {tool:20} FAILED with {cost.exit_code}: {cost.stderr.strip()}")
            continue
        ratio, wall, size = cost.cpu / bare.cpu, cost.wall / bare.wall, cost.capture_size / 1e6
        print(f"    {tool:20} CPU x{ratio:5.3f}  wall x{wall:5.3f}  {size:9.2f} MB")
    sys.stdout.flush()


def report_means(result: Result, names: list[str]) -> None:
    """Print the geometric mean over the workloads, by tool."""
    for tool in names:
        found = ((result.ratio(workload, tool), workload) for workload in result.overhead)
        ratios = [(ratio, workload) for ratio, workload in found if ratio]
        if tool != "bare" and ratios:
            mean = math.exp(math.fsum(math.log(ratio) for ratio, _ in ratios) / len(ratios))
            worst, where = max(ratios)
            print(f"mean {tool:20} CPU x{mean:5.3f} over {len(ratios)} workloads, worst x{worst:.3f} ({where})")


def describe_machine() -> dict[str, str]:
    """Return processor, kernel and C library, so that readers can judge the figures."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "cpu": model,
        "cores": str(os.cpu_count()),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
    }


def describe_python(python: Path) -> tuple[str, dict[str, str]]:
    """Return the versions of the interpreter and of relevant packages."""
    code = """if True:
        import importlib.metadata as m, json, platform
        versions = {}
        for name in ("heaptide", "memray", "guppy3", "numpy", "objgraph", "pandas", "pympler"):
            try:
                versions[name] = m.version(name)
            except m.PackageNotFoundError:
                pass
        print(json.dumps([platform.python_version(), versions]))
    """
    version, versions = json.loads(subprocess.run([str(python), "-c", code], check=True, capture_output=True).stdout)
    return version, versions


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, action="append", help="interpreter to measure with; may be repeated")
    parser.add_argument(
        "--tools",
        default="bare,bare-again,heaptide,heaptide-objects,heaptide-sample,heaptide-native,"
        "memray,memray-objects,memray-native",
        help="comma-separated names; all: " + ", ".join(tools(Path(), Path())),
    )
    parser.add_argument("--reps", type=int, default=3, help="repetitions of each run, the best is kept (default 3)")
    parser.add_argument("--no-fixed-costs", action="store_true", help="measure only the overhead table")
    parser.add_argument("--results", type=Path, help="folder for <date>-<python>.json and latest.md")
    parser.add_argument("--command", default="", help="command line that the results show as their source")
    parser.add_argument("workloads", nargs="*", help="names of workloads, or paths of other scripts (default: all)")
    options = parser.parse_args()
    options.python = [Path(os.path.abspath(path)) for path in options.python or [sys.executable]]  # noqa: PTH100
    options.tools = options.tools.split(",")
    unknown = [name for name in options.tools if name not in tools(Path(), Path())]
    if unknown or "bare" not in options.tools:
        parser.error(f"unknown tool {unknown[0]!r}" if unknown else "--tools must include bare, the baseline")
    return options


def main() -> int:
    """Measure with each interpreter, print, and write the results."""
    options = arguments()
    names = options.workloads or list(WORKLOADS)
    results = []
    for python in options.python:
        version, versions = describe_python(python)
        command = options.command or " ".join(["python", "bench/overhead.py", "--reps", str(options.reps), *names])
        result = Result(version, time.strftime("%Y-%m-%d"), command, describe_machine(), versions, options.reps)
        print(f"\nPython {version}, " + ", ".join(f"{name} {number}" for name, number in versions.items()), flush=True)
        for name in names:
            path = HERE / "workloads" / f"{name}.py" if name in WORKLOADS else Path(name)
            result.overhead[path.stem] = measure(python, path, options.tools, options.reps)
            report(path.stem, result)
        report_means(result, options.tools)
        if not options.no_fixed_costs:
            result.fixed_costs = fixed_costs.measure(python, options.reps)
        results.append(result)
        if options.results:
            options.results.mkdir(parents=True, exist_ok=True)
            target = options.results / f"{result.date}-{version}.json"
            target.write_text(json.dumps(asdict(result), indent=1) + "\n")
            print(f"wrote {target}")
    page = tables.markdown(results)
    print("\n" + page)
    if options.results:
        (options.results / "latest.md").write_text(page)
        print(f"wrote {options.results / 'latest.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
