"""The figures beside the overhead table: a profiler that is not on, the command's start, and reading a capture.

Each is measured on a program that knows by construction what it does, so that no tool is asked to count for itself.
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
# What bench/programs/churn.py and live_blocks.py do.
CHURN_EVENTS = 20_000_000
LIVE_BLOCKS = 1_000_000
STATE_WORKLOADS = ("calls", "small_objects", "big_blocks")
START_REPETITIONS = 20
# The figure is the difference of two short things: many runs, of which the best counts.
INSTALLED_REPETITIONS = 200
WHERE = "import heaptide, os, sys; print(os.path.dirname(heaptide.__file__), file=sys.stderr)"
WHERE_PACKAGES = "import sys, sysconfig; print(sysconfig.get_path('purelib'), file=sys.stderr)"


@dataclass
class Figures:
    """What was measured; a figure that could not be taken is None and has its reason in `failed`."""

    # False where these figures were not asked for: then their absence means nothing.
    attempted: bool = False
    # State of the profiler (imported, stopped), then workload: CPU time over the bare run's.
    states: dict[str, dict[str, float]] = field(default_factory=dict)
    # CPU time that an interpreter takes more to start and end where Heaptide is installed and nothing is set.
    installed_start_ms: float | None = None
    command_start_ms: float | None = None
    python_start_ms: float | None = None
    decode_events_per_second: float | None = None
    # How many times longer `memray stats` takes on its own capture of the same program.
    decode_memray_ratio: float | None = None
    # Of churn.py's capture, for each tool.
    bytes_per_event: dict[str, float] = field(default_factory=dict)
    report_max_rss: int | None = None
    report_live_blocks: int = LIVE_BLOCKS
    reports: Reports = field(default_factory=Reports)
    # Of one core, while `heaptide record` watches 64 children at 10 Hz.
    timeline_share: float | None = None
    # A tight loop, line by line.
    line_cost: LineCost | None = None
    # Questions about three million objects.
    heap: HeapCosts | None = None
    failed: list[str] = field(default_factory=list)


def measure(python: Path, repetitions: int) -> Figures:
    """Take all figures, printing each; one that fails does not stop the others."""
    figures = Figures(attempted=True)
    with tempfile.TemporaryDirectory(prefix="heaptide-bench-") as scratch:
        for part in (
            measure_states,
            measure_installed,
            measure_start,
            measure_decode,
            measure_report_memory,
            measure_page_making,
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
    """A program that has Heaptide loaded, or had it running, against one that never heard of it."""
    for workload in STATE_WORKLOADS:
        best: dict[str, float] = {}
        for _ in range(repetitions):
            for state in ("bare", "imported", "stopped"):
                capture = scratch / "state.tide"
                program = [HERE / "programs" / "inside.py", state, HERE / "workloads" / f"{workload}.py", capture]
                seconds = float(succeed([python, *program]).stderr.splitlines()[-1])
                best[state] = min(best.get(state, seconds), seconds)
                capture.unlink(missing_ok=True)
        for state in ("imported", "stopped"):
            ratio = best[state] / best["bare"]
            figures.states.setdefault(state, {})[workload] = ratio
            print(f"{state:15} {workload:15} CPU x{ratio:5.3f}", flush=True)


def measure_installed(python: Path, scratch: Path, repetitions: int, figures: Figures) -> None:
    """The start of an interpreter with `heaptide.pth` in its environment, against one of the same kind without it."""
    packages = Path(succeed([python, "-c", WHERE]).stderr.strip())
    starts = {}
    for name in ("without", "with"):
        folder = scratch / f"venv-{name}"
        succeed([python, "-m", "venv", "--without-pip", folder])
        starts[name] = [folder / "bin" / "python", HERE / "programs" / "empty.py"]
    place = Path(succeed([starts["with"][0], "-c", WHERE_PACKAGES]).stderr.strip())
    (place / "heaptide").symlink_to(packages)
    shutil.copy(packages.parent / "heaptide.pth", place)
    best: dict[str, float] = {}
    for _ in range(INSTALLED_REPETITIONS):
        for name, command in starts.items():
            best[name] = min(best.get(name, math.inf), succeed(command).cpu)
    figures.installed_start_ms = 1000 * (best["with"] - best["without"])
    print(f"installed       {figures.installed_start_ms:.2f} ms more for an interpreter's start", flush=True)


def measure_start(python: Path, scratch: Path, repetitions: int, figures: Figures) -> None:
    """The wall time of the shortest command, with the interpreter's own start beside it."""
    command: list[str | Path] = [python.parent / "heaptide", "--version"]
    bare: list[str | Path] = [python, HERE / "programs" / "empty.py"]
    figures.command_start_ms = 1000 * min(succeed(command).wall for _ in range(START_REPETITIONS))
    figures.python_start_ms = 1000 * min(succeed(bare).wall for _ in range(START_REPETITIONS))
    print(
        f"command start   {figures.command_start_ms:.0f} ms (python alone {figures.python_start_ms:.0f} ms)", flush=True
    )


def measure_decode(python: Path, scratch: Path, repetitions: int, figures: Figures) -> None:
    """The rate at which `stats` reads a capture of known length, start-up included."""
    ours, theirs = scratch / "churn.tide", scratch / "churn.bin"
    record(python, "heaptide", ours, "churn")
    wall = min(succeed([python, "-m", "heaptide", "stats", "--json", ours]).wall for _ in range(repetitions))
    figures.decode_events_per_second = CHURN_EVENTS / wall
    figures.bytes_per_event["heaptide"] = ours.stat().st_size / CHURN_EVENTS
    print(f"decode          {figures.decode_events_per_second / 1e6:.1f} M events/s", flush=True)
    record(python, "memray", theirs, "churn")
    their_wall = succeed([python, "-m", "memray", "stats", theirs]).wall
    figures.decode_memray_ratio = their_wall / wall
    figures.bytes_per_event["memray"] = theirs.stat().st_size / CHURN_EVENTS
    print(f"memray's stats takes {figures.decode_memray_ratio:.1f} times as long", flush=True)


def measure_report_memory(python: Path, scratch: Path, repetitions: int, figures: Figures) -> None:
    """The greatest resident size of `stats` on a capture with a known number of live blocks."""
    capture = scratch / "live.tide"
    record(python, "heaptide", capture, "live_blocks")
    figures.report_max_rss = succeed([python, "-m", "heaptide", "stats", "--json", capture]).max_rss
    print(f"report memory   {figures.report_max_rss / 1e6:.0f} MB for {LIVE_BLOCKS:,} live blocks", flush=True)


def measure_page_making(python: Path, scratch: Path, repetitions: int, figures: Figures) -> None:
    """Reports beside memray's, and reports of a very long capture."""
    measure_reports(python, scratch, repetitions, figures.reports)
    measure_long_capture(python, scratch, repetitions, figures.reports)


def measure_timeline(python: Path, scratch: Path, repetitions: int, figures: Figures) -> None:
    """What watching a run from outside costs."""
    figures.timeline_share = timeline_cost.share(python)
    print(f"sampler         {figures.timeline_share:.2%} of one core, {timeline_cost.CHILDREN} children", flush=True)


def measure_lines(python: Path, scratch: Path, repetitions: int, figures: Figures) -> None:
    """What watching a function line by line costs, beside memory_profiler."""
    cost = figures.line_cost = measure_line_cost(python)
    print(f"line by line    x{cost.heaptide:.2f}, memory_profiler x{cost.memory_profiler:.0f}", flush=True)


def measure_objects(python: Path, scratch: Path, repetitions: int, figures: Figures) -> None:
    """Questions about the objects of a process, beside the tools that answer them."""
    figures.heap = measure_heap(python)
