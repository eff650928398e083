"""The records of a capture, read from the lines of `heaptide parse`, each allocation with its thread and stack."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Allocation:
    thread: int
    address: int
    size: int
    allocator: str
    stack: tuple[str, ...]
    """Outermost first, as `function:file:line`."""


@dataclass
class Replayed:
    """Threads by their number in the capture as (number of the system, name), and all allocations in order."""

    threads: dict[int, tuple[int, str]] = field(default_factory=dict)
    allocations: list[Allocation] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    """Addresses of single blocks that were freed, in order."""

    def of_size(self, size: int) -> list[Allocation]:
        return [allocation for allocation in self.allocations if allocation.size == size]


def replayed(lines: Iterable[str]) -> Replayed:
    told = Replayed()
    stacks: dict[int, list[str]] = {}
    stack: list[str] = []
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "CONTEXT_SWITCH":
            stack = stacks.setdefault(int(rest.removeprefix("thread=")), [])
        elif kind == "FRAME_PUSH":
            stack.append(rest.split(" location=")[1])
        elif kind == "FRAME_POP":
            del stack[len(stack) - int(rest.removeprefix("count=")) :]
        elif kind == "THREAD":
            fields, _, name = rest.partition(" name=")
            values = dict(part.split("=") for part in fields.split())
            told.threads[int(values["thread"])] = int(values["tid"]), name
        elif kind in ("ALLOCATION", "FREE"):
            values = dict(part.split("=") for part in rest.split())
            address = int(values["address"], 16)
            if kind == "FREE":
                told.released.append(address)
                continue
            thread, size = int(values["thread"]), int(values["size"])
            told.allocations.append(Allocation(thread, address, size, values["allocator"], tuple(stack)))
    return told
