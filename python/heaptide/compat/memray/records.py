"""The records that a reader returns, with memray's names: allocations, their lifetimes, and sizes over time."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

Frame = tuple[str, str, int]


class AllocatorType(enum.IntEnum):
    """The allocator function that was called."""

    PYMALLOC_FREE = 1
    PYMALLOC_MALLOC = 2
    PYMALLOC_CALLOC = 3
    PYMALLOC_REALLOC = 4
    FREE = 5
    MALLOC = 6
    REALLOC = 7
    CALLOC = 8
    POSIX_MEMALIGN = 9
    ALIGNED_ALLOC = 10
    MEMALIGN = 11
    VALLOC = 12
    PVALLOC = 13
    MMAP = 14
    MUNMAP = 15


# Records of these refuse to return a stack. Those of PYMALLOC_FREE have an empty one.
WITHOUT_STACK = frozenset((AllocatorType.FREE, AllocatorType.MUNMAP))
# Functions that memray does not distinguish.
ALLOCATORS = {
    **{name: int(member) for name, member in AllocatorType.__members__.items()},
    "REALLOCARRAY": int(AllocatorType.REALLOC),
    "MMAP_FILE": int(AllocatorType.MMAP),
    "MREMAP": int(AllocatorType.MMAP),
}


class FileFormat(enum.IntEnum):
    """The content of a file: every event, or sums in a file that stays small."""

    ALL_ALLOCATIONS = 0
    AGGREGATED_ALLOCATIONS = 1


class PymallocDomain(enum.IntEnum):
    """The domains of Python's allocators."""

    PYMALLOC_RAW = 1
    PYMALLOC_MEM = 2
    PYMALLOC_OBJECT = 3


class PythonAllocatorType(enum.IntEnum):
    """The allocator that Python uses for objects."""

    PYTHON_ALLOCATOR_PYMALLOC = 1
    PYTHON_ALLOCATOR_PYMALLOC_DEBUG = 2
    PYTHON_ALLOCATOR_MALLOC = 3
    PYTHON_ALLOCATOR_OTHER = 4
    PYTHON_ALLOCATOR_MIMALLOC = 5
    PYTHON_ALLOCATOR_MIMALLOC_DEBUG = 6


class SymbolicSupport(enum.IntEnum):
    """How much is known about native functions of the interpreter."""

    NONE = 1
    FUNCTION_NAME_ONLY = 2
    TOTAL = 3


class MemorySnapshot(NamedTuple):
    """Sizes in bytes at one time, in milliseconds since 1970."""

    time: int
    rss: int
    heap: int


@dataclass
class Metadata:
    """Facts about a capture."""

    start_time: datetime.datetime
    end_time: datetime.datetime
    total_allocations: int
    total_frames: int
    peak_memory: int
    command_line: str
    pid: int
    main_thread_id: int
    python_allocator: str
    has_native_traces: bool
    trace_python_allocators: bool
    file_format: FileFormat


class Trace:
    """The call stack of a record, resolved when it is read: a thousand deep stacks have millions of frames."""

    def __init__(self, stack_id: int, resolve: Callable[[], tuple[list[Frame], str]]) -> None:
        self.stack_id = stack_id
        # Returns the frames, innermost first, and a letter for each: n for native, p for Python.
        self._resolve = resolve

    def frames(self, wanted: str, max_stacks: int | None) -> list[Frame]:
        """Return the innermost frames whose letter is in `wanted`."""
        frames, kinds = self._resolve()
        found = frames if wanted == "np" else [at for at, kind in zip(frames, kinds, strict=True) if kind in wanted]
        return found[:max_stacks]


class _Traced:
    """The common part of all records with a call stack."""

    tid: int
    allocator: int
    thread_name: str
    # Native frames are part of the one stack, so there is no separate number for them.
    native_stack_id = 0
    native_segment_generation = 0
    _trace: Trace

    @property
    def stack_id(self) -> int:
        """The number of the call stack, the same for all records of a reader with that stack."""
        return self._trace.stack_id

    def stack_trace(self, max_stacks: int | None = None) -> list[Frame]:
        """Return the Python frames as (function, file, line), innermost first."""
        return self._frames("p", max_stacks)

    def hybrid_stack_trace(self, max_stacks: int | None = None) -> list[Frame]:
        """Return native and Python frames in call order, innermost first."""
        return self._frames("np", max_stacks)

    def native_stack_trace(self, max_stacks: int | None = None) -> list[Frame]:
        """Return the native frames, innermost first, without those of the interpreter's evaluation loop."""
        return self._frames("n", max_stacks)

    def _frames(self, wanted: str, max_stacks: int | None) -> list[Frame]:
        return self._trace.frames(wanted, max_stacks)


class AllocationRecord(_Traced):
    """One allocation or free, or the sum of the blocks that one thread allocated at one site."""

    def __init__(
        self, tid: int, address: int, size: int, allocator: int, n_allocations: int, thread_name: str, trace: Trace
    ) -> None:
        self.tid = tid
        self.address = address
        self.size = size
        self.allocator = allocator
        self.n_allocations = n_allocations
        self.thread_name = thread_name
        self._trace = trace

    def _key(self) -> tuple[int, ...]:
        return self.tid, self.address, self.size, self.allocator, self.stack_id, self.n_allocations

    def __eq__(self, other: object) -> Any:
        if isinstance(other, AllocationRecord):
            return self._key() == other._key()
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def _frames(self, wanted: str, max_stacks: int | None) -> list[Frame]:
        if self.allocator in WITHOUT_STACK:
            raise NotImplementedError("Stack traces for deallocations aren't captured.")
        return super()._frames(wanted, max_stacks)

    def __repr__(self) -> str:
        return (
            f"AllocationRecord<tid={hex(self.tid)}, address={hex(self.address)}, size={size_fmt(self.size)}, "
            f"allocator={self.allocator}, allocations={self.n_allocations}>"
        )


@dataclass
class Interval:
    """Blocks that were allocated before one snapshot and freed before another, or never."""

    allocated_before_snapshot: int
    deallocated_before_snapshot: int | None
    n_allocations: int
    n_bytes: int


class TemporalAllocationRecord(_Traced):
    """An allocation site, and when its blocks were allocated."""

    def __init__(self, tid: int, allocator: int, thread_name: str, trace: Trace, intervals: list[Interval]) -> None:
        self.tid = tid
        self.allocator = allocator
        self.thread_name = thread_name
        self._trace = trace
        self.intervals = intervals

    def __eq__(self, other: object) -> Any:
        if isinstance(other, TemporalAllocationRecord):
            return self._key() == other._key() and self.intervals == other.intervals
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[int, ...]:
        return self.tid, self.allocator, self.stack_id


class TrackedObjectRecord(_Traced):
    """An object that was created while a Tracker followed the lifetimes of objects."""

    def __init__(self, tid: int, address: int, is_created: bool, thread_name: str, trace: Trace) -> None:
        self.tid = tid
        self.address = address
        self.is_created = is_created
        self.thread_name = thread_name
        self.native_frame_id = 0
        self._trace = trace

    @property
    def frame_index(self) -> int:
        """The same as `stack_id`."""
        return self.stack_id

    def __eq__(self, other: object) -> Any:
        if isinstance(other, TrackedObjectRecord):
            return self._key() == other._key()
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[int, ...]:
        return self.tid, self.address, self.is_created, self.stack_id

    def __repr__(self) -> str:
        return f"TrackedObjectRecord<tid={hex(self.tid)}, address={hex(self.address)}, is_created={self.is_created}>"


def size_fmt(num: float, suffix: str = "B") -> str:
    """Return a size with a decimal unit, such as 1.500kB."""
    for unit in ("", "k", "M", "G", "T", "P", "E", "Z"):
        if abs(num) < 1000.0:
            return f"{num:5.3f}{unit}{suffix}"
        num /= 1000.0
    return f"{num:.1f}Y{suffix}"
