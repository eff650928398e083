"""memray's `FileReader` for Heaptide's captures: the numbers of Heaptide's reports, as objects with memray's names."""

from __future__ import annotations

import datetime
import enum
import json
import os
import re
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from heaptide import command_process

if TYPE_CHECKING:
    from typing_extensions import Self

Frame = tuple[str, str, int]

# One field of the table and the character after it. The `csv` module refuses fields of more than 128 KiB, which a deep
# stack exceeds, and its limit is a setting of the whole process, which belongs to the program.
FIELD = re.compile(r'(?:"((?:[^"]+|"")*)"|([^",\n]*))(,|\n|\Z)')


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


class Metadata(NamedTuple):
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
    file_format: int


class AllocationRecord:
    """The sum of blocks that one thread allocated at one site."""

    def __init__(
        self, tid: int, size: int, allocator: int, n_allocations: int, thread: str, stack: str, kinds: str = ""
    ) -> None:
        self.tid = tid
        self.size = size
        self.allocator = allocator
        self.n_allocations = n_allocations
        self.thread_name = thread
        # Divided into frames when needed: a thousand records of deep stacks have millions of frames.
        self._stack_text = stack
        # A letter for each frame: n for native, p for Python; empty if all are Python's.
        self._kinds = kinds

    def stack_trace(self, max_stacks: int | None = None) -> list[Frame]:
        """Return the Python frames as (function, file, line), innermost first."""
        return self._of_kind("p", max_stacks)

    def hybrid_stack_trace(self, max_stacks: int | None = None) -> list[Frame]:
        """Return native and Python frames in call order, innermost first."""
        return [_frame(text) for text in self._frame_texts()[:max_stacks]]

    def native_stack_trace(self, max_stacks: int | None = None) -> list[Frame]:
        """Return the native frames, innermost first, without those of the interpreter's evaluation loop."""
        return self._of_kind("n", max_stacks)

    def _frame_texts(self) -> list[str]:
        return [text for text in self._stack_text.split("|") if text]

    def _of_kind(self, wanted: str, max_stacks: int | None) -> list[Frame]:
        texts = self._frame_texts()
        kinds = self._kinds or "p" * len(texts)
        found = [text for text, kind in zip(texts, kinds, strict=True) if kind == wanted]
        return [_frame(text) for text in found[:max_stacks]]

    def __repr__(self) -> str:
        return f"AllocationRecord<tid={self.tid} size={self.size} n_allocations={self.n_allocations}>"


class FileReader:
    """Reads a capture of Heaptide or memray. Records are sums per allocation site; ``heaptide parse`` prints events."""

    def __init__(
        self, file_name: str | os.PathLike[str], *, report_progress: bool = False, max_memory_records: int = 10000
    ) -> None:
        self._path = os.path.abspath(file_name)
        if not os.path.exists(self._path):
            raise OSError(f"Could not open file {self._path}: No such file or directory")
        self.closed = False
        facts = json.loads(_output("stats", "--json", "--", self._path))["metadata"]
        for name in ("start_time", "end_time"):
            facts[name] = datetime.datetime.fromisoformat(facts[name])
        self.metadata = Metadata(**{name: facts[name] for name in Metadata._fields})

    def get_high_watermark_allocation_records(self, merge_threads: bool = True) -> Iterator[AllocationRecord]:
        """Return the records of memory that was allocated at the peak."""
        return self._records(merge_threads)

    def get_leaked_allocation_records(self, merge_threads: bool = True) -> Iterator[AllocationRecord]:
        """Return the records of memory that was allocated when the recording ended."""
        return self._records(merge_threads, "--leaks")

    def get_temporary_allocation_records(
        self, merge_threads: bool = True, threshold: int = 1
    ) -> Iterator[AllocationRecord]:
        """Return the records of memory that was freed after at most `threshold` other allocations of its thread."""
        return self._records(merge_threads, "--temporary-allocation-threshold", str(threshold))

    def close(self) -> None:
        """Close the reader; reading from it then raises ValueError."""
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("Operation on a closed FileReader")

    def _records(self, merge_threads: bool, *options: str) -> Iterator[AllocationRecord]:
        self._check_open()
        merged: dict[Any, AllocationRecord] = {}
        text = _output("transform", "csv", "-o", "-", *options, "--", self._path)
        for row in _rows(text):
            stack = row["stack_trace"]
            tid, thread = (0, "merged thread") if merge_threads else (int(row["tid"]), row["thread_name"])
            allocator = AllocatorType.__members__.get(row["allocator"], AllocatorType.MALLOC)
            key = (tid, allocator, stack)
            kinds = row.get("frame_kinds") or ""
            record = merged.setdefault(key, AllocationRecord(tid, 0, allocator, 0, thread, stack, kinds))
            record.size += int(row["size"])
            record.n_allocations += int(row["num_allocations"])
        return iter(merged.values())


def _rows(table: str) -> Iterator[dict[str, str]]:
    """Return the rows of a table of comma-separated values, by column name."""
    names: list[str] = []
    row: list[str] = []
    for match in FIELD.finditer(table):
        quoted, plain, end = match.groups()
        row.append(plain if quoted is None else quoted.replace('""', '"'))
        if end == ",":
            continue
        if not names:
            names = row
        elif len(row) == len(names):
            yield dict(zip(names, row, strict=True))
        row = []


def _frame(text: str) -> Frame:
    function, _, rest = text.partition(";")
    file, _, line = rest.rpartition(";")
    return function, file, int(line or 0)


def _output(*words: str) -> str:
    """Return the output of the heaptide command; its message becomes memray's exception for a bad file."""
    done = command_process.run(*words)
    if done.returncode != 0:
        raise OSError((done.stderr.splitlines() or ["the capture cannot be read"])[-1])
    return done.stdout
