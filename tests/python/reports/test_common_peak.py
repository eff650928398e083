"""Tests that all reports of several processes show the same peak: the common one, or the sum of each process's own."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from support.commands import heaptide, python

pytestmark = pytest.mark.once

# Worker n allocates when it reads a line and frees when it reads another one. The capture's clock has a resolution of a
# millisecond, so steps are ten milliseconds apart: within one clock unit the order of two processes is unknown.
PROGRAM = """
import json, os, sys, time

def work(number, commands, done):
    while size := json.loads(commands.readline()):
        block = bytearray(size + number)
        done.write("held\\n"), done.flush()
        commands.readline()
        del block
        done.write("freed\\n"), done.flush()

def start(number):
    (command, to_worker), (from_worker, done) = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(to_worker), os.close(from_worker)
        work(number, os.fdopen(command), os.fdopen(done, "w"))
        sys.exit(0)
    os.close(command), os.close(done)
    return os.fdopen(to_worker, "w"), os.fdopen(from_worker)

def send(worker, message):
    time.sleep(0.01)
    worker[0].write(json.dumps(message) + "\\n"), worker[0].flush()
    worker[1].readline()

def spike(size):
    time.sleep(0.01)
    bytearray(size)

steps = json.loads(sys.argv[1])
workers = [start(number) for number in range(2)]
kept = []
for who, size in steps:
    if who == "main":
        kept.append(bytearray(size))
    elif who == "spike":
        spike(size)
    else:
        send(workers[who], size)
for worker in workers:
    worker[0].write("0\\n"), worker[0].flush(), worker[0].close()
for _ in workers:
    os.wait()
"""

MB = 1_000_000
SCENARIOS = {
    "workers one after the other": [
        (0, 20 * MB),
        (0, ""),
        (1, 30 * MB),
        (1, ""),
        ("main", 5 * MB),
        (0, 10 * MB),
        (0, ""),
    ],
    "workers together": [(0, 20 * MB), (1, 9 * MB), (0, ""), (1, ""), (0, 25 * MB), (0, "")],
    "short spike": [(0, 8 * MB), ("spike", 12 * MB), (0, ""), (1, 19 * MB), (1, "")],
}


@dataclass
class Heap:
    """The heap of a process after each event, from the lines of `heaptide parse`."""

    start: datetime
    states: list[tuple[timedelta, int]] = field(default_factory=lambda: [(timedelta(), 0)])
    end: timedelta = timedelta.max

    @classmethod
    def parse(cls, capture: Path, start: datetime) -> Heap:
        """Replay the records of a capture without Heaptide's own code."""
        heap = cls(start)
        blocks: dict[int, int] = {}
        now = 0
        for line in heaptide("parse", capture).stdout.splitlines():
            record, _, rest = line.partition(" ")
            if record not in ("ALLOCATION", "FREE", "FREE_RANGE", "TRAILER"):
                assert record != "FREE_REFUSED"
                continue
            values = dict(part.split("=") for part in rest.split())
            time = timedelta(seconds=float(values["time"]))
            if record == "TRAILER":
                heap.end = time
                continue
            address = int(values["address"], 16)
            if record == "ALLOCATION" and values["allocator"] != "mmap_file":
                blocks[address] = int(values["size"])
                now += blocks[address]
            elif record == "FREE":
                now -= blocks.pop(address, 0)
            elif record == "FREE_RANGE":
                assert blocks.get(address, 0) in (0, int(values["size"])), "only whole mappings are freed"
                now -= blocks.pop(address, 0)
            heap.states.append((max(time, heap.states[-1][0]), now))
        return heap

    def possible_at(self, moment: datetime) -> set[int]:
        """Return the sizes that the heap may have had at a moment, within the resolution of the capture's clock."""
        elapsed = moment - self.start
        resolution = timedelta(milliseconds=1.5)
        if elapsed < -resolution or elapsed > self.end + resolution:
            return {0}
        sizes = {0} if elapsed > self.end - resolution else set()
        followed = pairwise([*self.states, (timedelta.max, 0)])
        return sizes | {
            size
            for (since, size), (until, _) in followed
            if since - resolution <= elapsed and until >= elapsed - resolution
        }


def record(folder: Path, scenario: str, *options: str) -> list[Path]:
    """Record the program with its workers, and return all captures, the parent's first."""
    (folder / "job.py").write_text(PROGRAM)
    arguments = ("--follow-fork", "-q", "-o", "job.tide", *options, "job.py", json.dumps(SCENARIOS[scenario]))
    python("-m", "heaptide", "run", *arguments, cwd=folder)
    captures = sorted(folder.glob("job.tide*"), key=lambda path: (len(path.name), path.name))
    assert len(captures) == 3
    return captures


def peaks_in_reports(captures: list[Path]) -> dict[str, int]:
    """Return the bytes at the peak in each report."""
    stats = json.loads(heaptide("stats", "--json", *captures).stdout)
    model = json.loads(heaptide("transform", "json", "-o", "-", *captures).stdout)
    largest = [finding for finding in stats["heaptide"]["findings"] if finding["kind"] == "holds_most"]
    rows = heaptide("transform", "csv", "-o", "-", *captures).stdout.splitlines()
    header = rows[0].split(",")
    return {
        "stats": stats["metadata"]["peak_memory"],
        "processes of stats": sum(process["at_peak_bytes"] for process in stats["heaptide"]["processes"]),
        "finding": largest[0]["numbers"]["whole_peak_bytes"],
        "model": model["peak_bytes"],
        "sites": sum(site["peak"]["bytes"] for process in model["processes"] for site in process["sites"]),
        "processes of the model": sum(process["peak"]["bytes"] for process in model["processes"]),
        "csv": sum(int(row.split(",")[header.index("size")]) for row in rows[1:]),
    }


def size_of(text: str) -> float:
    """Return the number of a size in megabytes."""
    found = re.search(r"([\d.]+) MB", text)
    assert found is not None, text
    return float(found[1])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_report_shows_the_moment_of_the_common_peak(tmp_path: Path, scenario: str) -> None:
    captures = record(tmp_path, scenario)
    peaks = peaks_in_reports(captures)
    peak = peaks["stats"]
    assert peaks == dict.fromkeys(peaks, peak)

    model = json.loads(heaptide("transform", "json", "-o", "-", *captures).stdout)
    assert model["peak_moment"]["of"] == "processes together"
    starts = [datetime.fromisoformat(process["start_time"]) for process in model["processes"]]
    moment = min(starts) + timedelta(microseconds=model["peak_moment"]["elapsed_ns"] / 1000)
    heaps = [Heap.parse(capture, start) for capture, start in zip(captures, starts, strict=True)]
    parts = [process["peak"]["bytes"] for process in model["processes"]]
    for heap, part in zip(heaps, parts, strict=True):
        assert part in heap.possible_at(moment)
    # At no moment did the processes hold more, within the error of the clocks.
    for heap in heaps:
        for since, size in heap.states:
            others = [min(other.possible_at(heap.start + since)) for other in heaps if other is not heap]
            assert size + sum(others) <= peak

    text = heaptide("stats", *captures).stdout
    heading, value = re.search(r"Peak memory usage \((.*)\):\n\t(.*)\n", text).groups()  # type: ignore[union-attr]
    assert re.match(r"3 processes at their common peak, .* after the start", heading)
    tree = heaptide("tree", *captures).stdout.splitlines()
    assert tree[0] == heading
    assert size_of(tree[1]) == size_of(value) == pytest.approx(peak / MB, abs=0.05)
    assert heaptide("summary", *captures).stdout.splitlines()[0] == heading
    assert "each at its own peak" not in text


def test_diff_compares_common_peaks(tmp_path: Path) -> None:
    sides = []
    for name in ("workers one after the other", "workers together"):
        folder = tmp_path / name.replace(" ", "-")
        folder.mkdir()
        sides.append(record(folder, name))
    expected = [peaks_in_reports(side)["stats"] for side in sides]
    done = heaptide("diff", "--json", "--before", *sides[0], "--after", *sides[1])
    whole = json.loads(done.stdout)["whole"]["peak"]
    assert [whole["before_bytes"], whole["after_bytes"]] == expected


def test_captures_without_the_events_of_the_moment_are_shown_at_their_own_peaks(tmp_path: Path) -> None:
    captures = record(tmp_path, "workers one after the other", "--aggregate")
    peaks = peaks_in_reports(captures)
    assert peaks == dict.fromkeys(peaks, peaks["stats"])
    stats = json.loads(heaptide("stats", "--json", *captures).stdout)["heaptide"]
    assert stats["peak_moment"] == {"of": "each process"}
    assert sum(process["peak_bytes"] for process in stats["processes"]) == peaks["stats"]
    text = heaptide("stats", *captures).stdout
    assert "Peak memory usage (3 processes, each at its own peak):" in text
    for command in ("tree", "summary"):
        assert heaptide(command, *captures).stdout.startswith("3 processes, each at its own peak\n")


def test_one_capture_has_no_heading_about_processes(tmp_path: Path) -> None:
    captures = record(tmp_path, "workers together")
    assert "📂" in heaptide("tree", captures[0]).stdout.splitlines()[0]
    assert "Peak memory usage:\n" in heaptide("stats", captures[0]).stdout


def test_processes_and_live_blocks_name_their_moment(tmp_path: Path) -> None:
    captures = record(tmp_path, "workers one after the other")
    text = heaptide("stats", "--by", "process", *captures).stdout
    assert "Processes (largest at the common peak first):" in text
    assert len(re.findall(r"- process .*: at the common peak \S+ \S+, allocated", text)) == 3
    for command in ("tree", "summary"):
        assert heaptide(command, "--leaks", *captures).stdout.splitlines()[0] == "3 processes, each at its own end"
    assert "Leaked memory (3 processes, each at its own end):" in heaptide("stats", "--leaks", *captures).stdout
    alone = heaptide("stats", "--leaks", captures[0]).stdout
    assert "Leaked memory (alive at the end):" in alone
