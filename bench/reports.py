"""How long reports take next to memray's, and how much memory, on the same program; and what a very long capture takes.

Each tool reads its own capture, start-up included, and writes its page into a file. memray has one page for each
question where ours answers several; the page that answers it is what is timed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from measure import Cost, record, succeed

# What bench/programs/six_million.py does.
LIVE_BLOCKS = 100_003
# Two for each block of bench/programs/churn.py.
LONG_EVENTS = 100_000_000
LONG_LIVE_BLOCKS = 1021

# By the question: our command, and memray's.
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
    """One report by each tool: wall seconds, and the greatest resident size in bytes."""

    ours: float
    theirs: float
    our_max_rss: int
    their_max_rss: int

    @property
    def times_faster(self) -> float:
        """How many of our reports are made while memray makes one."""
        return self.theirs / self.ours


@dataclass
class Reports:
    """What was measured, by report."""

    beside_memray: dict[str, ReportCost] = field(default_factory=dict)
    # Greatest resident size, and wall seconds, of reports of the long capture.
    long_max_rss: dict[str, int] = field(default_factory=dict)
    long_seconds: dict[str, float] = field(default_factory=dict)


def measure_reports(python: Path, scratch: Path, repetitions: int, reports: Reports) -> None:
    """Every report of the same program, ours and memray's in turn."""
    ours, theirs = scratch / "six.tide", scratch / "six.bin"
    record(python, "heaptide", ours, "six_million")
    record(python, "memray", theirs, "six_million")
    for name, (our_command, their_command) in REPORTS.items():
        mine, memrays = make(python, "heaptide", our_command, ours), make(python, "memray", their_command, theirs)
        for _ in range(repetitions - 1):
            mine = mine.better_of(make(python, "heaptide", our_command, ours))
        cost = ReportCost(mine.wall, memrays.wall, mine.max_rss, memrays.max_rss)
        reports.beside_memray[name] = cost
        print(
            f"report          {name:12} {mine.wall:.2f} s, {mine.max_rss / 1e6:.0f} MB; "
            f"memray {memrays.wall:.1f} s, {memrays.max_rss / 1e6:.0f} MB: {cost.times_faster:.1f} times as long",
            flush=True,
        )


def measure_long_capture(python: Path, scratch: Path, repetitions: int, reports: Reports) -> None:
    """Reports of a hundred million events: their memory must not grow with them."""
    capture = scratch / "long.tide"
    record(python, "heaptide", capture, "churn", str(LONG_EVENTS // 2))
    for name, command in LONG_REPORTS.items():
        cost = make(python, "heaptide", command, capture)
        reports.long_max_rss[name], reports.long_seconds[name] = cost.max_rss, cost.wall
        print(f"100 M events    {name:12} {cost.wall:.2f} s, {cost.max_rss / 1e6:.0f} MB", flush=True)


def make(python: Path, tool: str, command: list[str], capture: Path) -> Cost:
    """One report, written beside the capture."""
    page = capture.with_suffix(f".{tool}.out")
    return succeed([python, "-m", tool, *command, "-f", "-o", page, capture])
