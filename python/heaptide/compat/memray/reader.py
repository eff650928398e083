"""memray's `FileReader` for Heaptide's captures: returns the numbers of Heaptide's reports in memray's classes."""

from __future__ import annotations

import bisect
import datetime
import itertools
import json
import operator
import os
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from heaptide.compat.memray import temporal
from heaptide.compat.memray.capture_data import EventList, StackNumbers, output, series, summed_records
from heaptide.compat.memray.records import (
    AllocationRecord,
    FileFormat,
    MemorySnapshot,
    Metadata,
    TemporalAllocationRecord,
    TrackedObjectRecord,
)

if TYPE_CHECKING:
    from typing_extensions import Self

# memray's names for Python's allocators.
PYTHON_ALLOCATORS = {"pymalloc_debug": "pymalloc debug", "malloc_debug": "malloc debug"}


class FileReader:
    """Reads a capture of Heaptide or memray."""

    def __init__(
        self, file_name: str | os.PathLike[str], *, report_progress: bool = False, max_memory_records: int = 10000
    ) -> None:
        self._path = os.path.abspath(file_name)
        if os.path.isdir(self._path) or not os.path.exists(self._path):
            reason = "Is a directory" if os.path.isdir(self._path) else "No such file or directory"
            raise OSError(f"Could not open file {os.fspath(file_name)}: {reason}")
        self._max_memory_records = max(1, max_memory_records)
        self._is_closed = False
        self._stacks = StackNumbers()
        facts = json.loads(output("stats", "--json", "--hide-native", "--", self._path))["metadata"]
        for name in ("start_time", "end_time"):
            facts[name] = datetime.datetime.fromisoformat(facts[name])
        facts["file_format"] = FileFormat(facts["file_format"])
        facts["python_allocator"] = PYTHON_ALLOCATORS.get(facts["python_allocator"], facts["python_allocator"])
        self._metadata = Metadata(**{name: facts[name] for name in Metadata.__dataclass_fields__})

    @property
    def metadata(self) -> Metadata:
        """Facts about the capture."""
        return self._metadata

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._is_closed

    def get_allocation_records(self) -> Iterator[AllocationRecord]:
        """Return every allocation and free, in order."""
        events = self._events("get all allocations from")
        # Samples of the resident size have no allocator.
        return map(AllocationRecord, filter(operator.itemgetter(5), events), itertools.repeat(events))

    def get_high_watermark_allocation_records(self, merge_threads: bool = True) -> Iterator[AllocationRecord]:
        """Return the records of memory that was live at the peak."""
        return self._records(merge_threads)

    def get_leaked_allocation_records(self, merge_threads: bool = True) -> Iterator[AllocationRecord]:
        """Return the records of memory that was live when the recording ended."""
        return self._records(merge_threads, "--leaks")

    def get_temporary_allocation_records(
        self, merge_threads: bool = True, threshold: int = 1
    ) -> Iterator[AllocationRecord]:
        """Return the records of memory that was freed after at most `threshold` other allocations of its thread."""
        if self._metadata.file_format is FileFormat.AGGREGATED_ALLOCATIONS:
            self._check_open()
            raise NotImplementedError("Can't find temporary allocations using a pre-aggregated capture file.")
        return self._records(merge_threads, "--temporary-allocation-threshold", str(threshold))

    def get_temporal_allocation_records(self, merge_threads: bool = True) -> Iterator[TemporalAllocationRecord]:
        """Return the allocation sites, with the snapshots between which their blocks were live."""
        events = self._events("get allocation history using")
        return iter(temporal.lifetimes(events, self._max_memory_records, merge_threads))

    def get_temporal_high_water_mark_allocation_records(
        self, merge_threads: bool = True
    ) -> tuple[list[TemporalAllocationRecord], list[int]]:
        """Return the sites of blocks that were live at the peak of an interval between snapshots, and the peaks."""
        events = self._events("get allocation history using")
        return temporal.high_water_marks(events, self._max_memory_records, merge_threads)

    def get_memory_snapshots(self) -> Iterator[MemorySnapshot]:
        """Return the sizes of the process and of its heap over time."""
        self._check_open()
        model = json.loads(output("transform", "json", "-o", "-", "--", self._path))
        (process,) = model["processes"]
        start = self._metadata.start_time.timestamp() * 1000
        heap = series(process["heap"])
        times = [time for time, _ in heap]
        snapshots = []
        for time, resident in series(process["resident"]):
            at = bisect.bisect_right(times, time) - 1
            size = heap[at][1] if at >= 0 else 0
            snapshots.append(MemorySnapshot(round(start + time / 1e6), resident, size))
        return iter(temporal.thinned(snapshots, self._max_memory_records))

    def get_tracked_objects(self, filter_objs: Iterable[Any] | None = None) -> Iterator[TrackedObjectRecord]:
        """Return the allocations of objects that are still alive, if the Tracker followed the lifetimes of objects."""
        from heaptide.compat.memray import object_tracking

        events = self._events("get tracked objects from")
        return iter(object_tracking.records(self._path, events, filter_objs))

    get_object_lifetime_events = get_tracked_objects

    def close(self) -> None:
        """Close the reader; reading from it then raises ValueError."""
        self._is_closed = True

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError("Operation on a closed FileReader")

    def _events(self, purpose: str) -> EventList:
        self._check_open()
        if self._metadata.file_format is FileFormat.AGGREGATED_ALLOCATIONS:
            raise NotImplementedError(f"Can't {purpose} a pre-aggregated capture file.")
        return EventList(self._path, self._stacks)

    def _records(self, merge_threads: bool, *options: str) -> Iterator[AllocationRecord]:
        self._check_open()
        return summed_records(self._path, self._stacks, merge_threads, *options)
