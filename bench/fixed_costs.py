"""Measures costs that are independent of the workload: a profiler that is off, command start-up, and reading a capture.

The number of events of each program is known, so the figures do not depend on a tool's own count.
"""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import timeline_cost
from heap import HeapCosts, measure_heap
from lines import LineCost, measure_line_cost
from measure import record, succeed
from reports import Reports, measure_long_capture, measure_reports

HERE = Path(__file__).resolve().parent
# Events of bench/programs/churn.py, and live blocks of live_blocks.py.
CHURN_EVENTS = 20_000_000
LIVE_BLOCKS = 1_000_000
STATE_WORKLOADS = ("calls", "small_objects", "big_blocks")
START_REPETITIONS = 20
# The figure is a small difference between two short runs, so it needs the best of many repetitions.
INSTALLED_REPETITIONS = 200
PRINT_PACKAGE_FOLDER = "import heaptide, os, sys; print(os.path.dirname(heaptide.__file__), file=sys.stderr)"
PRINT_SITE_PACKAGES = "import sys, sysconfig; print(sysconfig.get_path('purelib'), file=sys.stderr)"


@dataclass
class Figures:
    """All figures; one that could not be measured is None and has its reason in `failed`."""

    # False if these figures were not requested, so that missing figures do not count as failures.
    attempted: bool = False
    # CPU time as a ratio to the bare run, by state of the profiler (imported, stopped) and workload.
    states: dict[str, dict[str, float]] = field(default_factory=dict)
    # Extra CPU time to start and end an interpreter where Heaptide is installed and not enabled.
    installed_start_ms: float | None = None
    command_start_ms: float | None = None
    python_start_ms: float | None = None
    decode_events_per_second: float | None = None
    # Time of `memray stats` on memray's capture of the same program, as a multiple of Heaptide's.
    decode_memray_ratio: float | None = None
    # Size of churn.py's capture, by tool.
    bytes_per_event: dict[str, float] = field(default_factory=dict)
    report_max_rss: int | None = None
    report_live_blocks: int = LIVE_BLOCKS
    reports: Reports = field(default_factory=Reports)
    # Share of one core that `heaptide record` uses while it samples 64 children at 10 Hz.
    timeline_share: float | None = None
    # Slow-down of a tight loop by line-by-line profiling.
    line_cost: LineCost | None = None
    # Queries on three million objects.
    heap: HeapCosts | None = None
    failed: list[str] = field(default_factory=list)


def measure(python: Path, repetitions: int) -> Figures:
    """Measure and print all figures; a failure does not stop the others."""
    figures = Figures(attempted=True)
    with tempfile.TemporaryDirectory(prefix="heaptide-bench-") as scratch:
        for part in (
            measure_states,
            measure_installed,
            measure_start,
            measure_decode,
            measure_report_memory,
            measure_report_costs,
            measure_timeline,
            measure_lines,
            measure_objects,
        ):
            try:
                part(python, Path(scratch), repetitions, figures)
            except RuntimeError as failure:
                figures.failed.append(str(failure))
                print(f"{part.__name__}: {failure}", file=sys.stderr)
    return figures


def measure_states(python: Path, scratch: Path, repetitions: int, figures: Figures) -> None:
    """Compare a program that has imported Heaptide, or has stopped a recording, with one that did neither."""
    for workload in STATE_WORKLOADS:
        best: dict[str, float] = {}
        for _ in range(repetitions):
            for state in ("bare", "imported", "stopped"):
                capture = scratch / "state.tide"
                program = [
                    HERE / "programs" / "workload_in_state.py",
                    state,
                    HERE / "workloads" / f"{workload}.py",
                    capture,
                ]
                seconds = float(succeed([python, *program]).stderr.splitlines()[-1])
                best[state] = min(best.get(state, seconds), seconds)
                capture.unlink(missing_ok=True)
        for state in ("imported", "stopped"):
            ratio = best[state] / best["bare"]
            figures.states.setdefault(state, {})[workload] = ratio
            print(f"{state:15} {workload:15} CPU x{ratio:5.3f}", flush=True)


def measure_installed(python: Path, scratch: Path, repetitions: int, figures: Figures) -> None:
    """Compare the start of an interpreter whose environment contains `heaptide.pth` with one without it."""
    package = Path(succeed([python, "-c", PRINT_PACKAGE_FOLDER]).stderr.strip())
    starts = {}
    for name in ("without", "with"):
        folder = scratch / f"venv-{name}"
        succeed([python, "-m", "venv", "--without-pip", folder])
        starts[name] = [folder / "bin" / "python", HERE / "programs" / "empty.py"]
    site_packages = Path(succeed([starts["with"][0], "-c", PRINT_SITE_PACKAGES]).stderr.strip())
    (site_packages / "heaptide").symlink_to(package)
    shutil.copy(package.parent / "heaptide.pth", site_packages)
    best: dict[str, float] = {}
    for _ in range(INSTALLED_REPETITIONS):
        for name, command in starts.items():
            best[name] = min(best.get(name, math.inf), succeed(command).cpu)
    figures.installed_start_ms = 1000 * (best["with"] - best["without"])
    print(f"installed       {figures.installed_start_ms:.2f} ms added to the start of an interpreter", flush=True)


def measure_start(python: Path, scratch: Path, repetitions: int, figures: Figures) -> None:
    """Measure the wall time of the shortest command, and of the interpreter alone."""
    command: list[str | Path] = [python.parent / "heaptide", "--version"]
    bare: list[str | Path] = [python, HERE / "programs" / "empty.py"]
    figures.command_start_ms = 1000 * min(succeed(command).wall for _ in range(START_REPETITIONS))
    figures.python_start_ms = 1000 * min(succeed(bare).wall for _ in range(START_REPETITIONS))
    print(
        f"command start   {figures.command_start_ms:.0f} ms (python alone {figures.python_start_ms:.0f} ms)", flush=True
    )


def measure_decode(python: Path, scratch: Path, repetitions: int, figures: Figures) -> None:
    """Measure how fast `stats` reads a capture of known length, start-up included."""
    own_capture, memray_capture = scratch / "churn.tide", scratch / "churn.bin"
    record(python, "heaptide", own_capture, "churn")
    wall = min(succeed([python, "-m", "heaptide", "stats", "--json", own_capture]).wall for _ in range(repetitions))
    figures.decode_events_per_second = CHURN_EVENTS / wall
    figures.bytes_per_event["heaptide"] = own_capture.stat().st_size / CHURN_EVENTS
    print(f"decode          {figures.decode_events_per_second / 1e6:.1f} M events/s", flush=True)
    record(python, "memray", memray_capture, "churn")
    memray_wall = succeed([python, "-m", "memray", "stats", memray_capture]).wall
    figures.decode_memray_ratio = memray_wall / wall
    figures.bytes_per_event["memray"] = memray_capture.stat().st_size / CHURN_EVENTS
    print(f"memray's stats takes {figures.decode_memray_ratio:.1f} times as long", flush=True)


def measure_report_memory(python: Path, scratch: Path, repetitions: int, figures: Figures) -> None:
    """Measure the maximum resident size of `stats` on a capture with a known number of live blocks."""
    capture = scratch / "live.tide"
    record(python, "heaptide", capture, "live_blocks")
    figures.report_max_rss = succeed([python, "-m", "heaptide", "stats", "--json", capture]).max_rss
    print(f"report memory   {figures.report_max_rss / 1e6:.0f} MB for {LIVE_BLOCKS:,} live blocks", flush=True)


def measure_report_costs(python: Path, scratch: Path, repetitions: int, figures: Figures) -> None:
    """Measure time and memory of reports, compared with memray's, and of reports on a very long capture."""
    measure_reports(python, scratch, repetitions, figures.reports)
    measure_long_capture(python, scratch, repetitions, figures.reports)


def measure_timeline(python: Path, scratch: Path, repetitions: int, figures: Figures) -> None:
    """Measure the cost of sampling a process tree."""
    figures.timeline_share = timeline_cost.share(python)
    print(f"sampler         {figures.timeline_share:.2%} of one core, {timeline_cost.CHILDREN} children", flush=True)


def measure_lines(python: Path, scratch: Path, repetitions: int, figures: Figures) -> None:
    """Measure line-by-line profiling, compared with memory_profiler."""
    cost = figures.line_cost = measure_line_cost(python)
    print(f"line by line    x{cost.heaptide:.2f}, memory_profiler x{cost.memory_profiler:.0f}", flush=True)


def measure_objects(python: Path, scratch: Path, repetitions: int, figures: Figures) -> None:
    """Measure queries on the objects of a process, compared with other tools."""
    figures.heap = measure_heap(python)
