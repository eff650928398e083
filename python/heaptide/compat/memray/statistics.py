"""memray's `compute_statistics` and `dump_all_records`."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from heaptide.compat.memray.capture_data import EventList, StackNumbers, output
from heaptide.compat.memray.reader import FileReader
from heaptide.compat.memray.records import FREES, FileFormat, Frame, Metadata


@dataclass
class Stats:
    """The numbers of ``memray stats``."""

    metadata: Metadata
    total_num_allocations: int
    total_memory_allocated: int
    peak_memory_allocated: int
    allocation_count_by_size: dict[int, int]
    allocation_count_by_allocator: dict[str, int]
    top_locations_by_size: list[tuple[Frame, int]]
    top_locations_by_count: list[tuple[Frame, int]]
    top_modules_by_allocation_size: list[tuple[str, int, int]] = field(default_factory=list)
    top_modules_by_allocation_count: list[tuple[str, int, int]] = field(default_factory=list)


def compute_statistics(
    file_name: str | os.PathLike[str], *, report_progress: bool = False, num_largest: int = 5
) -> Stats:
    """Return the statistics of a capture of all allocations."""
    reader = FileReader(file_name)
    if reader.metadata.file_format is FileFormat.AGGREGATED_ALLOCATIONS:
        raise NotImplementedError("Can't compute statistics using a pre-aggregated capture file.")
    path = os.path.abspath(file_name)
    numbers = json.loads(output("stats", "--json", "-n", str(num_largest), "--", path))
    events = EventList(path, StackNumbers())
    sizes = Counter(size for _, size, _, _, _, allocator, _, _ in events if allocator and allocator not in FREES)
    return Stats(
        reader.metadata,
        numbers["total_num_allocations"],
        numbers["total_bytes_allocated"],
        reader.metadata.peak_memory,
        dict(sizes),
        numbers["allocator_type_distribution"],
        [(_location(row["location"]), row["size"]) for row in numbers["top_allocations_by_size"]],
        [(_location(row["location"]), row["count"]) for row in numbers["top_allocations_by_count"]],
        _modules(numbers["top_modules_by_allocation_size"]),
        _modules(numbers["top_modules_by_allocation_count"]),
    )


def _location(text: str) -> Frame:
    function, _, rest = text.partition(":")
    file, _, line = rest.rpartition(":")
    return function, file, int(line or 0) if line.isdigit() else 0


def _modules(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    return [(row["module"], row["num_allocations"], row["total_bytes"]) for row in rows]


def dump_all_records(file_name: str | os.PathLike[str]) -> None:
    """Print every record of a capture, as ``heaptide parse`` does."""
    path = os.path.abspath(file_name)
    if not os.path.exists(path):
        raise OSError(f"Could not open file {path}: No such file or directory")
    sys.stdout.write(output("parse", "--", path))
