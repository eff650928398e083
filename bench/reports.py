"""Compares time and memory of reports with memray's on the same program, and measures reports on a very long capture.

Each tool reads its own capture and writes its page to a file; times include the start of the command. One page of
Heaptide may contain what memray shows on several pages, so each row compares pages that show the same data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from measure import Cost, record, succeed

# Live blocks of bench/programs/six_million.py.
LIVE_BLOCKS = 100_003
# bench/programs/churn.py causes two events per block.
LONG_EVENTS = 100_000_000
LONG_LIVE_BLOCKS = 1021

# Report → Heaptide's command, and memray's.
REPORTS = {
    "flame graph": (["flamegraph"], ["flamegraph"]),
    "table": (["table"], ["table"]),
    "stats": (["stats", "--json"], ["stats", "--json"]),
    "leaks": (["flamegraph", "--leaks"], ["flamegraph", "--leaks"]),
    "temporal": (["flamegraph"], ["flamegraph", "--temporal"]),
}
LONG_REPORTS = {"stats": ["stats", "--json"], "flame graph": ["flamegraph"]}


@dataclass
class ReportCost:
    """One report by each tool: wall seconds, and maximum resident size in bytes."""

    heaptide: float
    memray: float
    heaptide_max_rss: int
    memray_max_rss: int

    @property
    def times_faster(self) -> float:
        """Return memray's time as a multiple of Heaptide's."""
        return self.memray / self.heaptide


@dataclass
class Reports:
    """All measurements, by report."""

    compared: dict[str, ReportCost] = field(default_factory=dict)
    # Maximum resident size and wall seconds of reports on the long capture.
    long_max_rss: dict[str, int] = field(default_factory=dict)
    long_seconds: dict[str, float] = field(default_factory=dict)


def measure_reports(python: Path, scratch: Path, repetitions: int, reports: Reports) -> None:
    """Measure every report of the same program with both tools in turn."""
    own_capture, memray_capture = scratch / "six.tide", scratch / "six.bin"
    record(python, "heaptide", own_capture, "six_million")
    record(python, "memray", memray_capture, "six_million")
    for name, (own_command, memray_command) in REPORTS.items():
        own = write_report(python, "heaptide", own_command, own_capture)
        memray = write_report(python, "memray", memray_command, memray_capture)
        for _ in range(repetitions - 1):
            own = own.better_of(write_report(python, "heaptide", own_command, own_capture))
        cost = ReportCost(own.wall, memray.wall, own.max_rss, memray.max_rss)
        reports.compared[name] = cost
        print(
            f"report          {name:12} {own.wall:.2f} s, {own.max_rss / 1e6:.0f} MB; "
            f"memray {memray.wall:.1f} s, {memray.max_rss / 1e6:.0f} MB: {cost.times_faster:.1f} times as long",
            flush=True,
        )


def measure_long_capture(python: Path, scratch: Path, repetitions: int, reports: Reports) -> None:
    """Measure reports of a hundred million events: their memory must not grow with the events."""
    capture = scratch / "long.tide"
    record(python, "heaptide", capture, "churn", str(LONG_EVENTS // 2))
    for name, command in LONG_REPORTS.items():
        cost = write_report(python, "heaptide", command, capture)
        reports.long_max_rss[name], reports.long_seconds[name] = cost.max_rss, cost.wall
        print(f"100 M events    {name:12} {cost.wall:.2f} s, {cost.max_rss / 1e6:.0f} MB", flush=True)


def write_report(python: Path, tool: str, command: list[str], capture: Path) -> Cost:
    """Write one report next to the capture, and return the cost of the command."""
    page = capture.with_suffix(f".{tool}.out")
    return succeed([python, "-m", tool, *command, "-f", "-o", page, capture])
