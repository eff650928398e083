"""Reads memray's and Heaptide's numbers of the same program in one form: bytes and blocks by call stack."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.commands import heaptide

# (function, file, line), innermost first.
Stack = tuple[tuple[str, str, int], ...]
# (bytes, blocks)
Amount = tuple[int, int]

memray = pytest.importorskip("memray", reason="memray has no wheel for this interpreter")


@dataclass(frozen=True)
class Numbers:
    """The numbers of a profiler by call stack; `total` is None if the capture does not contain it."""

    total: Mapping[Stack, Amount] | None
    peak: Mapping[Stack, Amount]
    leaked: Mapping[Stack, Amount]


def memray_run(folder: Path, program: Path, *options: str) -> Path:
    """Record a program with memray, in `folder`."""
    capture = folder / ("memray" + "".join(options) + ".bin")
    command = [sys.executable, "-m", "memray", "run", "-q", "-f", *options, "-o", capture.name, program]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return capture


def memray_numbers(capture: Path) -> Numbers:
    """Read a capture of memray with memray itself."""
    with memray.FileReader(capture) as reader:
        is_aggregated = reader.metadata.file_format == memray.FileFormat.AGGREGATED_ALLOCATIONS
        total = None if is_aggregated else summed(reader.get_allocation_records())
        peak = summed(reader.get_high_watermark_allocation_records(merge_threads=True))
        leaked = summed(reader.get_leaked_allocation_records(merge_threads=True))
    return Numbers(total, peak, leaked)


def summed(records: Iterable[Any]) -> dict[Stack, Amount]:
    """Sum memray's records by call stack, without releases."""
    releases = {memray.AllocatorType.FREE, memray.AllocatorType.MUNMAP, memray.AllocatorType.PYMALLOC_FREE}
    sums: dict[Stack, Amount] = defaultdict(lambda: (0, 0))
    for record in records:
        if record.allocator not in releases:
            stack = tuple((function, file, line) for function, file, line in record.stack_trace())
            size, count = sums[stack]
            sums[stack] = (size + record.size, count + record.n_allocations)
    return dict(sums)


def heaptide_numbers(capture: Path) -> Numbers:
    """Read a capture of Heaptide or memray with Heaptide."""
    model = json.loads(heaptide("transform", "json", "-o", "-", capture).stdout)
    frames = [(frame["function"], frame["file"], frame["line"]) for frame in model["frames"]]

    def stack_of(number: int | None) -> Stack:
        stack = []
        while number is not None:
            stack.append(frames[model["stacks"][number]["frame"]])
            number = model["stacks"][number]["parent"]
        return tuple(stack)

    def by_stack(what: str) -> dict[Stack, Amount]:
        sums: dict[Stack, Amount] = defaultdict(lambda: (0, 0))
        for process in model["processes"]:
            for site in process["sites"]:
                size, count = sums[stack_of(site["stack"])]
                sums[stack_of(site["stack"])] = (size + site[what]["bytes"], count + site[what]["count"])
        return {stack: amount for stack, amount in sums.items() if amount != (0, 0)}

    return Numbers(by_stack("total") or None, by_stack("peak"), by_stack("leaked"))


def by_location(sums: Mapping[Stack, Amount], is_wanted: Callable[[str], bool]) -> dict[tuple[str, int], Amount]:
    """Sum by function and line of the innermost frame, for the files that are wanted."""
    found: dict[tuple[str, int], Amount] = defaultdict(lambda: (0, 0))
    for stack, (size, count) in sums.items():
        if stack and is_wanted(stack[0][1]):
            function, _, line = stack[0]
            before, n_before = found[function, line]
            found[function, line] = (before + size, n_before + count)
    return dict(found)
