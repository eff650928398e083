"""Lifetimes of blocks between snapshots of the resident size, for memray's temporal records."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

from heaptide.compat.memray.capture_data import EventList
from heaptide.compat.memray.records import FREES, AllocatorType, Interval, TemporalAllocationRecord, Trace

T = TypeVar("T")

# Thread, allocator and stack.
Site = tuple[int, int, int]


def thinned(items: list[T], limit: int) -> list[T]:
    """Return at most `limit` items: repeatedly remove every second one until few enough remain."""
    while len(items) > limit:
        items = items[1::2] or items[-1:]
    return items


class _Block(NamedTuple):
    """A block's site, and the numbers of the events at which it was allocated and freed."""

    site: Site
    birth: int
    death: int | None
    size: int
    n_blocks: int


class _Lives:
    """All blocks of a capture, with the number of the event after each snapshot."""

    def __init__(self, events: EventList, max_snapshots: int, merge_threads: bool) -> None:
        self.blocks: list[_Block] = []
        self.traces: dict[int, Trace] = {}
        # ID of a thread → its name. With merged threads, a site has the ID of its first thread.
        self.threads: dict[int, str] = {}
        self.merged: dict[tuple[int, int], int] = {}
        self.n_events = 0
        snapshots: list[int] = []
        self.steps: list[int] = []
        live: dict[int, list[tuple[Site, int, int]]] = {}
        mapped: dict[int, tuple[Site, int, int]] = {}
        for address, size, stack, thread, _, allocator, _, is_file in events:
            if not allocator:
                snapshots.append(self.n_events)
                continue
            change = 0
            if allocator == AllocatorType.MUNMAP:
                change = -sum(self._unmap(mapped, address, size))
            elif allocator in FREES:
                entries = live.get(address)
                if entries:
                    site, birth, freed = entries.pop()
                    self._end(site, birth, freed, 1)
                    change = -freed
                    if not entries:
                        del live[address]
            else:
                tid, name = events.threads.get(thread, (thread, ""))
                self.threads[tid] = name
                change = 0 if is_file else size
                self.traces.setdefault(stack, events.trace(stack))
                if merge_threads:
                    tid = self.merged.setdefault((allocator, stack), tid)
                entry = ((tid, allocator, stack), self.n_events, change)
                if allocator == AllocatorType.MMAP:
                    mapped[address] = entry
                else:
                    live.setdefault(address, []).append(entry)
            self.steps.append(change)
            self.n_events += 1
        for entries in live.values():
            self.blocks += [_Block(site, birth, None, size, 1) for site, birth, size in entries]
        self.blocks += [_Block(site, birth, None, size, 1) for site, birth, size in mapped.values()]
        self.snapshots = thinned(snapshots, max_snapshots)

    def _end(self, site: Site, birth: int, size: int, count: int) -> None:
        self.blocks.append(_Block(site, birth, self.n_events, size, count))

    def _unmap(self, mapped: dict[int, Any], start: int, length: int) -> Iterator[int]:
        """Release the parts of mappings in a range; the rest of each mapping remains. Yields the released bytes."""
        end = start + length
        for address in [at for at, entry in mapped.items() if at < end and at + entry[2] > start]:
            site, birth, size = mapped.pop(address)
            before, after = max(0, start - address), max(0, address + size - end)
            if before:
                mapped[address] = (site, birth, before)
            if after:
                mapped[end] = (site, birth, after)
            released = size - before - after
            self._end(site, birth, released, 0 if before or after else 1)
            yield released

    def records(self, intervals: dict[Site, dict[Any, Interval]]) -> list[TemporalAllocationRecord]:
        """Return a record for each site with intervals."""
        return [
            TemporalAllocationRecord(
                tid, allocator, self.threads.get(tid, ""), self.traces[stack], list(of_site.values())
            )
            for (tid, allocator, stack), of_site in intervals.items()
        ]


def lifetimes(events: EventList, max_snapshots: int, merge_threads: bool) -> list[TemporalAllocationRecord]:
    """Return the sites with the snapshots between which their blocks were live.

    Blocks that were freed before the next snapshot are left out.
    """
    lives = _Lives(events, max_snapshots, merge_threads)
    intervals: dict[Site, dict[Any, Interval]] = {}
    for block in lives.blocks:
        first = bisect_left(lives.snapshots, block.birth + 1)
        last = None if block.death is None else bisect_left(lives.snapshots, block.death + 1)
        if first != last:
            _add(intervals, block, first, last)
    return lives.records(intervals)


def high_water_marks(
    events: EventList, max_snapshots: int, merge_threads: bool
) -> tuple[list[TemporalAllocationRecord], list[int]]:
    """Return the sites of blocks that were live at the peak of an interval between snapshots, and the peaks."""
    lives = _Lives(events, max_snapshots, merge_threads)
    # For each interval between snapshots: the number of the event that led to the peak, and the peak.
    moments: list[int] = []
    peaks: list[int] = []
    heap = at = 0
    for end in [*lives.snapshots, lives.n_events]:
        peak, moment = heap, at - 1
        while at < end:
            heap += lives.steps[at]
            if heap > peak:
                peak, moment = heap, at
            at += 1
        moments.append(moment)
        peaks.append(peak)
    intervals: dict[Site, dict[Any, Interval]] = {}
    for block in lives.blocks:
        first = bisect_left(moments, block.birth)
        last = len(moments) if block.death is None else bisect_left(moments, block.death)
        if first < last:
            _add(intervals, block, first, None if block.death is None else last)
    return lives.records(intervals), peaks


def _add(intervals: dict[Site, dict[Any, Interval]], block: _Block, first: int, last: int | None) -> None:
    of_site = intervals.setdefault(block.site, {})
    interval = of_site.setdefault((first, last), Interval(first, last, 0, 0))
    interval.n_allocations += block.n_blocks
    interval.n_bytes += block.size
