"""The records that a reader returns, with memray's names: allocations, their lifetimes, and sizes over time."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

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


FREES = frozenset((int(AllocatorType.PYMALLOC_FREE), int(AllocatorType.FREE), int(AllocatorType.MUNMAP)))
# Records with these allocators raise an error if their stack is read. Records of PYMALLOC_FREE have an empty stack.
WITHOUT_STACK = frozenset((int(AllocatorType.FREE), int(AllocatorType.MUNMAP)))
# Name of an allocator → memray's number. memray does not distinguish all of them.
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
    """Sizes in bytes at one time. The time is in milliseconds since 1970."""

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


# Deeper stacks are not cached, because a thousand of them have millions of frames.
_MAX_CACHED = 100


class Trace:
    """The call stack of a record, resolved when it is read."""

    __slots__ = ("_cached", "_resolve", "stack_id")

    def __init__(self, stack_id: int, resolve: Callable[[], tuple[list[Frame], str]]) -> None:
        self.stack_id = stack_id
        # Returns the frames, innermost first, and a letter for each: n for native, p for Python.
        self._resolve = resolve
        # Requested letters → the frames.
        self._cached: dict[str, list[Frame]] = {}

    def frames(self, wanted: str, max_stacks: int | None) -> list[Frame]:
        """Return the innermost frames whose letter is in `wanted`."""
        found = self._cached.get(wanted)
        if found is None:
            frames, letters = self._resolve()
            pairs = zip(frames, letters, strict=True)
            found = frames if wanted == "np" else [frame for frame, letter in pairs if letter in wanted]
            if len(frames) <= _MAX_CACHED:
                self._cached[wanted] = found
        return found[:max_stacks]


class _Traced:
    """The common part of all records with a call stack."""

    __slots__ = ()

    # A stack contains native and Python frames, so native stacks have no separate number.
    native_stack_id = 0
    native_segment_generation = 0

    @property
    def _trace(self) -> Trace:
        raise NotImplementedError

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


class Source(Protocol):
    """The threads and stacks that the fields of a record refer to."""

    # Number of a thread in fields → its ID and its name.
    threads: dict[int, tuple[int, str]]

    def trace(self, stack: Any) -> Trace:
        """Return a call stack."""


# Address, bytes, stack, thread, milliseconds, allocator, number of blocks, whether it is a mapping of a file.
Fields = tuple[int, int, Any, int, int, int, int, int]


class AllocationRecord(_Traced):
    """One allocation or free, or the sum of the blocks that one thread allocated at one site.

    A capture has millions of records, so a record stores the tuple from the capture, and computes attributes when read.
    """

    __slots__ = ("_fields", "_source")

    def __init__(self, fields: Fields, source: Source) -> None:
        self._fields = fields
        self._source = source

    @property
    def tid(self) -> int:
        """The ID of the thread."""
        return self._thread[0]

    @property
    def thread_name(self) -> str:
        """The name of the thread."""
        return self._thread[1]

    @property
    def _thread(self) -> tuple[int, str]:
        number = self._fields[3]
        return self._source.threads.get(number, (number, ""))

    @property
    def address(self) -> int:
        """The address of the block; 0 in a sum."""
        return self._fields[0]

    @property
    def size(self) -> int:
        """Bytes."""
        return self._fields[1]

    @property
    def allocator(self) -> int:
        """The number of the function: see :class:`AllocatorType`."""
        return self._fields[5]

    @property
    def n_allocations(self) -> int:
        """Number of blocks."""
        return self._fields[6]

    @property
    def _trace(self) -> Trace:
        return self._source.trace(self._fields[2])

    @property
    def stack_id(self) -> int:
        """The number of the call stack, the same for all records of a reader with that stack."""
        return self._source.trace(self._fields[2]).stack_id

    def _key(self) -> tuple[int, ...]:
        return self.tid, self.address, self.size, self.allocator, self.stack_id, self.n_allocations

    def __eq__(self, other: object) -> Any:
        if isinstance(other, AllocationRecord):
            return self._key() == other._key()
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def _frames(self, wanted: str, max_stacks: int | None) -> list[Frame]:
        if self._fields[5] in WITHOUT_STACK:
            raise NotImplementedError("Stack traces for deallocations aren't captured.")
        return self._source.trace(self._fields[2]).frames(wanted, max_stacks)

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
    """An allocation site, and the intervals in which its blocks were live."""

    def __init__(self, tid: int, allocator: int, thread_name: str, trace: Trace, intervals: list[Interval]) -> None:
        self.tid = tid
        self.allocator = allocator
        self.thread_name = thread_name
        self._stack = trace
        self.intervals = intervals

    @property
    def _trace(self) -> Trace:
        return self._stack

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
        self._stack = trace

    @property
    def _trace(self) -> Trace:
        return self._stack

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
