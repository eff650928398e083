"""Finds the objects that were created during a recording and are still alive, and where they were allocated.

A recording with Python's allocators contains every live block that was allocated during it. An object is a survivor if
it lies in such a block. Objects come from the garbage collector and from references of its objects, so this module
neither needs a hook for each object nor reads memory that may have been freed.
"""

from __future__ import annotations

import gc
import os
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from heaptide.compat.memray.capture_data import EventList, StackNumbers
from heaptide.compat.memray.records import AllocatorType, TrackedObjectRecord


class _LiveBlocks:
    """The blocks that were live at the end, by address."""

    def __init__(self, events: EventList) -> None:
        live: dict[int, tuple[int, int, int]] = {}
        for address, size, stack, thread, _, allocator, _, _ in events:
            if allocator in (AllocatorType.FREE, AllocatorType.PYMALLOC_FREE):
                live.pop(address, None)
            elif allocator and allocator != AllocatorType.MUNMAP:
                live[address] = size, thread, stack
        self._addresses = sorted(live)
        self._live = live

    def find(self, address: int) -> tuple[int, int, int] | None:
        """Return size, thread and stack of the block that contains an address."""
        at = bisect_right(self._addresses, address) - 1
        if at < 0:
            return None
        block = self._live[self._addresses[at]]
        return block if address < self._addresses[at] + block[0] else None


def survivors(path: str) -> tuple[Any, ...]:
    """Return the objects in blocks that were allocated and not freed during the recording."""
    # Called before other objects are created. The list does not contain itself.
    tracked = gc.get_objects()
    blocks = _LiveBlocks(EventList(path, StackNumbers()))
    known = {id(tracked)}
    found: list[Any] = []
    waiting = [tracked]
    while waiting:
        for item in waiting.pop():
            if id(item) in known:
                continue
            known.add(id(item))
            if blocks.find(id(item)) is not None:
                found.append(item)
            if not gc.is_tracked(item):
                continue
            # Strings and numbers are not tracked, but tracked objects refer to them.
            rest = [other for other in gc.get_referents(item) if not gc.is_tracked(other)]
            if rest:
                waiting.append(rest)
    return tuple(found)


def records(path: str, events: EventList, objects: Iterable[Any] | None) -> list[TrackedObjectRecord]:
    """Return the allocations of the given objects, or of all survivors that are still alive."""
    blocks = _LiveBlocks(events)
    found = []
    for item in survivors(os.fspath(path)) if objects is None else objects:
        block = blocks.find(id(item))
        if block is not None:
            tid, name = events.threads.get(block[1], (0, ""))
            found.append(TrackedObjectRecord(tid, id(item), True, name, events.trace(block[2])))
    return found
