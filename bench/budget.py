"""The performance budget: a table with one limit per line, which a measurement meets or misses.

A missed line stays in the table with its figure. Its reason is written by hand in reasons.json, under the name of the
line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fixed_costs import STATE_WORKLOADS, Figures
from reports import LIVE_BLOCKS, LONG_LIVE_BLOCKS, LONG_REPORTS, REPORTS, Reports

if TYPE_CHECKING:
    from overhead import Result

STATES = {"imported": "installed and never started", "stopped": "stopped"}

# Maximum CPU time in exact mode, as a ratio to the bare run, by workload. `SAMPLED` is the same for sampling.
EXACT = {
    "calls": 1.10,
    "small_objects": 1.10,
    "json_docs": 1.10,
    "frames": 1.10,
    "threads": 1.10,
    "imports": 1.10,
    "big_blocks": 1.30,
    "deep_stack": 2.0,
}
SAMPLED = 1.03
# Maximum cost of objects mode, as a share of memray's extra cost with --trace-python-allocators.
OBJECTS_SHARE = {"deep_stack": 0.7}
DEFAULT_OBJECTS_SHARE = 0.5
# Maximum extra cost of --native, as a share of memray's, and the workloads it is measured on.
NATIVE_SHARE = 0.5
NATIVE = ("big_blocks", "deep_stack", "frames", "imports")
# Tolerance for a ratio of 1.00: the difference of two bare runs.
NOISE = 0.01
START_MS = 60.0
# Limit for the line of heaptide.pth that every interpreter runs at start-up. A lower limit would be within the noise.
INSTALLED_MS = 0.5
DECODE_EVENTS_PER_SECOND = 30e6
REPORT_BYTES, REPORT_BYTES_PER_BLOCK = 64e6, 48
REPORT_TIMES_FASTER = 10
AGENT_BYTES = 16e6
TIMELINE_SHARE = 0.01
# Line-by-line profiling of a tight loop: minimum ratio of memory_profiler's slow-down to Heaptide's, and the maximum of
# Heaptide's.
LINES_TIMES_LESS = 100
LINES_SLOWER = 2.0
# Three million objects: minimum speed-up over guppy3 by query, and maximum memory of a traversal per object.
HEAP_TIMES_FASTER = {"census": 10, "via": 50}
HEAP_BYTES_PER_OBJECT = 32
AGENT_WORKLOAD = "calls"

REASONS = Path(__file__).resolve().parent / "reasons.json"


@dataclass(frozen=True)
class Line:
    """One line of the table: the limit, the measurement, and whether it meets the limit."""

    name: str
    budget: str
    measured: str
    ok: bool

    @property
    def verdict(self) -> str:
        """Return the cell of the table, with the reason if there is one."""
        if self.ok:
            return "ok"
        reason = json.loads(REASONS.read_text()).get(self.name, "") if REASONS.exists() else ""
        return f"MISS: {reason}" if reason else "MISS"


def lines(result: Result) -> list[Line]:
    """Return every requested line. A line whose measurement failed counts as missed."""
    found = [*ratios(result), *sizes(result), *agent_memory(result)]
    return found + [*fixed_cost_lines(result.fixed_costs)] if result.fixed_costs.attempted else found


def at_most(name: str, measured: float | None, limit: float, slack: float = 0.0, note: str = "") -> Line:
    """Return the line of a ratio with an upper limit."""
    if measured is None:
        return unmeasured(name, f"≤ {limit:.2f}{note}")
    return Line(name, f"≤ {limit:.2f}{note}", f"{measured:.3f}", measured <= limit + slack)


def unmeasured(name: str, budget: str) -> Line:
    """Return a line without a measurement."""
    return Line(name, budget, "not measured", False)


def ratios(result: Result) -> Iterator[Line]:
    """Yield CPU time in each mode, for the workloads and tools that were run."""
    ran = {workload: costs for workload, costs in result.overhead.items() if workload in EXACT}
    for workload in ran:
        if "heaptide" in ran[workload]:
            yield at_most(f"exact: {workload}", result.ratio(workload, "heaptide"), EXACT[workload])
    for workload in ran:
        if "heaptide-objects" in ran[workload] and "memray-objects" in ran[workload]:
            own, memray = result.ratio(workload, "heaptide-objects"), result.ratio(workload, "memray-objects")
            share = OBJECTS_SHARE.get(workload, DEFAULT_OBJECTS_SHARE)
            if memray is None:
                yield unmeasured(f"objects: {workload}", f"{share} of memray's extra cost")
            else:
                limit = 1 + share * (memray - 1)
                yield at_most(f"objects: {workload}", own, limit, note=f" (memray {memray:.2f})")
    yield from native(result)
    for workload in ran:
        if "heaptide-sample" in ran[workload]:
            yield at_most(f"sampled: {workload}", result.ratio(workload, "heaptide-sample"), SAMPLED)


def native(result: Result) -> Iterator[Line]:
    """Yield the extra cost of native stacks over exact mode, compared with memray's."""
    wanted = {"heaptide", "heaptide-native", "memray", "memray-native"}
    for workload in NATIVE:
        if not wanted <= result.overhead.get(workload, {}).keys():
            continue
        own, own_native = result.ratio(workload, "heaptide"), result.ratio(workload, "heaptide-native")
        memray, memray_native = result.ratio(workload, "memray"), result.ratio(workload, "memray-native")
        if own is None or own_native is None or memray is None or memray_native is None:
            yield unmeasured(f"native: {workload}", f"{NATIVE_SHARE} of memray's extra cost")
            continue
        extra = memray_native - memray
        note = f" more than without --native (memray {extra:.2f})"
        yield at_most(f"native: {workload}", own_native - own, NATIVE_SHARE * extra, note=note)


def sizes(result: Result) -> Iterator[Line]:
    """Yield the size of captures, compared with memray's of the same program."""
    for workload, costs in result.overhead.items():
        own, memray = costs.get("heaptide"), costs.get("memray")
        if own is None or memray is None:
            continue
        name, size, limit = f"capture size: {workload}", own.capture_size, memray.capture_size
        if own.ok and memray.ok and size:
            yield Line(name, f"< {limit:,} bytes", f"{size:,} bytes", size < limit)
        else:
            yield unmeasured(name, "< memray's")


def agent_memory(result: Result) -> Iterator[Line]:
    """Yield the memory that the agent adds to a program that hardly allocates."""
    costs = result.overhead.get(AGENT_WORKLOAD, {})
    if "heaptide" in costs:
        name, limit = f"agent's own memory: {AGENT_WORKLOAD}", f"≤ {AGENT_BYTES / 1e6:.0f} MB + stacks"
        if costs["heaptide"].ok and costs["bare"].ok:
            extra = costs["heaptide"].max_rss - costs["bare"].max_rss
            yield Line(name, limit, f"{extra / 1e6:.1f} MB", extra <= AGENT_BYTES)
        else:
            yield unmeasured(name, limit)


def fixed_cost_lines(figures: Figures) -> Iterator[Line]:
    """Yield the lines of fixed costs."""
    for state, label in STATES.items():
        for workload in STATE_WORKLOADS:
            ratio = figures.states.get(state, {}).get(workload)
            yield at_most(f"{label}: {workload}", ratio, 1.0, slack=NOISE, note=f" (noise {NOISE})")
    name, extra = "installed and never started: an interpreter's start", figures.installed_start_ms
    if extra is None:
        yield unmeasured(name, f"≤ {INSTALLED_MS} ms more")
    else:
        yield Line(name, f"≤ {INSTALLED_MS} ms more", f"{extra:.2f} ms", extra <= INSTALLED_MS)
    own, memray = figures.bytes_per_event.get("heaptide"), figures.bytes_per_event.get("memray")
    if own is None or memray is None:
        yield unmeasured("bytes per event", "< memray's")
    else:
        yield Line("bytes per event", f"< {memray:.2f}", f"{own:.2f}", own < memray)
    rss, limit = figures.report_max_rss, REPORT_BYTES + REPORT_BYTES_PER_BLOCK * figures.report_live_blocks
    if rss is None:
        yield unmeasured("memory of a report", f"≤ {limit / 1e6:.0f} MB")
    else:
        yield memory_line("memory of a report", rss, limit)
    start = figures.command_start_ms
    if start is None:
        yield unmeasured("command-line start", f"≤ {START_MS:.0f} ms")
    else:
        yield Line("command-line start", f"≤ {START_MS:.0f} ms", f"{start:.0f} ms", start <= START_MS)
    yield from report_lines(figures.reports)
    rate, least = figures.decode_events_per_second, f"≥ {DECODE_EVENTS_PER_SECOND / 1e6:.0f} M events/s"
    if rate is None:
        yield unmeasured("decode rate", least)
    else:
        yield Line("decode rate", least, f"{rate / 1e6:.1f} M events/s", rate >= DECODE_EVENTS_PER_SECOND)
    name, share = "timeline of 64 children at 10 Hz", figures.timeline_share
    if share is None:
        yield unmeasured(name, f"≤ {TIMELINE_SHARE:.0%} of a core")
    else:
        yield Line(name, f"≤ {TIMELINE_SHARE:.0%} of a core", f"{share:.2%}", share <= TIMELINE_SHARE)
    yield from line_by_line(figures)
    yield from heap_lines(figures)


def heap_lines(figures: Figures) -> Iterator[Line]:
    """Yield the speed of heap queries compared with guppy3, and the memory of a heap walk."""
    for query, least in HEAP_TIMES_FASTER.items():
        name, limit = f"heap: {query}", f"≥ {least} times as fast as guppy3"
        ratio = figures.heap and figures.heap.times_faster(query)
        yield Line(name, limit, f"{ratio:.1f} times", ratio >= least) if ratio else unmeasured(name, limit)
    name, limit = "heap: memory of the walk", f"≤ {HEAP_BYTES_PER_OBJECT} bytes for each object"
    needed = figures.heap and figures.heap.walker_bytes
    if needed is None:
        yield unmeasured(name, limit)
    else:
        yield Line(name, limit, f"{needed:.1f} bytes", needed <= HEAP_BYTES_PER_OBJECT)


def line_by_line(figures: Figures) -> Iterator[Line]:
    """Yield the slow-down of a tight loop line by line, compared with memory_profiler."""
    cost = figures.line_cost
    name, least = "line by line: tight loop", f"≥ {LINES_TIMES_LESS} times less than memory_profiler"
    if cost is None:
        yield unmeasured(name, least)
    else:
        yield Line(name, least, f"{cost.times_less:.0f} times", cost.times_less >= LINES_TIMES_LESS)
    yield at_most("line by line: slow-down of a tight loop", cost and cost.heaptide, LINES_SLOWER)


def report_lines(reports: Reports) -> Iterator[Line]:
    """Yield times of reports compared with memray's, and memory of reports on a very long capture."""
    least = f"≥ {REPORT_TIMES_FASTER} times as fast as memray"
    limit = REPORT_BYTES + REPORT_BYTES_PER_BLOCK * LIVE_BLOCKS
    for name in REPORTS:
        cost = reports.compared.get(name)
        if cost is None:
            yield unmeasured(f"report, 6 M events: {name}", least)
            yield unmeasured(f"memory of a report, 6 M events: {name}", f"≤ {limit / 1e6:.0f} MB")
        else:
            measured = f"{cost.times_faster:.1f} times ({cost.heaptide:.2f} s, {cost.memray:.1f} s)"
            yield Line(f"report, 6 M events: {name}", least, measured, cost.times_faster >= REPORT_TIMES_FASTER)
            yield memory_line(f"memory of a report, 6 M events: {name}", cost.heaptide_max_rss, limit)
    limit = REPORT_BYTES + REPORT_BYTES_PER_BLOCK * LONG_LIVE_BLOCKS
    for name in LONG_REPORTS:
        line = f"memory of a report, 100 M events: {name}"
        rss = reports.long_max_rss.get(name)
        yield unmeasured(line, f"≤ {limit / 1e6:.0f} MB") if rss is None else memory_line(line, rss, limit)


def memory_line(name: str, rss: int, limit: float) -> Line:
    """Return the line of a maximum resident size."""
    return Line(name, f"≤ {limit / 1e6:.0f} MB", f"{rss / 1e6:.1f} MB", rss <= limit)
