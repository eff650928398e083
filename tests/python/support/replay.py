"""Reads the records of a capture from the lines of `heaptide parse`: each allocation with its thread and stack."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Allocation:
    """One allocation."""

    thread: int
    address: int
    size: int
    allocator: str
    stack: tuple[str, ...]
    """Outermost first, as `function:file:line`."""


@dataclass
class Replay:
    """The threads and all allocations of a capture. `threads` maps a thread's number to its system ID and its name."""

    threads: dict[int, tuple[int, str]] = field(default_factory=dict)
    allocations: list[Allocation] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    """Addresses of freed blocks, in order."""

    def of_size(self, size: int) -> list[Allocation]:
        """Return the allocations of this size, in order."""
        return [allocation for allocation in self.allocations if allocation.size == size]


def replay(lines: Iterable[str]) -> Replay:
    """Replay the lines of `heaptide parse`."""
    result = Replay()
    stacks: dict[int, list[str]] = {}
    stack: list[str] = []
    for line in lines:
        record, _, rest = line.partition(" ")
        if record == "CONTEXT_SWITCH":
            stack = stacks.setdefault(int(rest.removeprefix("thread=")), [])
        elif record == "FRAME_PUSH":
            stack.append(rest.split(" location=")[1])
        elif record == "FRAME_POP":
            del stack[len(stack) - int(rest.removeprefix("count=")) :]
        elif record == "THREAD":
            fields, _, name = rest.partition(" name=")
            values = dict(part.split("=") for part in fields.split())
            result.threads[int(values["thread"])] = int(values["tid"]), name
        elif record in ("ALLOCATION", "FREE"):
            values = dict(part.split("=") for part in rest.split())
            address = int(values["address"], 16)
            if record == "FREE":
                result.released.append(address)
                continue
            thread, size = int(values["thread"]), int(values["size"])
            result.allocations.append(Allocation(thread, address, size, values["allocator"], tuple(stack)))
    return result
