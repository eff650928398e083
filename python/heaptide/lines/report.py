"""Renders the line-by-line report of a call and writes it to a stream or a file."""

from __future__ import annotations

import inspect
import linecache
import os
import sys
import time
from collections.abc import Iterable, Sequence
from types import CodeType
from typing import Any, TextIO

from heaptide import _native, platforms, private_files
from heaptide.lines.recording import LineSums
from heaptide.messages import print_message, print_message_once, reason
from heaptide.platforms import compss

# The variable that names a file to append all reports to. Platforms have other names for it.
PROFILING_FILE = "HEAPTIDE_PROFILING_FILE"

# From the native module: line, visits, largest size and increment in bytes.
Rows = Iterable[tuple[int, int, int, int]]
SourceLine = tuple[int, str, tuple[int, int, int] | None, tuple[int, int, int, int] | None]


class Call:
    """The measurements of one call."""

    def __init__(self, rows: Rows, first_bytes: int, last_bytes: int, started: float, elapsed: float) -> None:
        self.rows = list(rows)
        self.first_bytes = first_bytes
        self.last_bytes = last_bytes
        self.started = started
        self.elapsed = elapsed
        self.heap: LineSums = {}

    def add(self, other: Call) -> None:
        """Add the measurements of another call of the same function."""
        rows = {row[0]: row for row in self.rows}
        for line, visits, most, increment in other.rows:
            _, known_visits, known_most, known_increment = rows.get(line, (line, 0, 0, 0))
            rows[line] = (line, known_visits + visits, max(known_most, most), known_increment + increment)
        self.rows = sorted(rows.values())
        self.last_bytes = other.last_bytes
        self.elapsed += other.elapsed

    @property
    def peak_bytes(self) -> int:
        """The largest size at any line, or before and after the call if no line ran in this thread."""
        return max([row[2] for row in self.rows], default=max(self.first_bytes, self.last_bytes))


def source(code: CodeType, call: Call) -> list[SourceLine]:
    """Return every line of a function, with its measurements."""
    texts = _texts(code, [row[0] for row in call.rows])
    # If no line ran in this thread during the call, report the call as a whole.
    rows = call.rows or [(code.co_firstlineno, 1, call.peak_bytes, call.last_bytes)]
    seen = {line: (visits, most, increment) for line, visits, most, increment in rows}
    return [(line, text, seen.get(line), call.heap.get(line)) for line, text in texts]


def render_all(functions: list[tuple[str, str, list[SourceLine]]], precision: int, columns: Sequence[str]) -> str:
    """Return the tables of several functions."""
    return _native.render_lines(functions, precision=precision, columns=list(columns), form="table")


def described(code: CodeType, call: Call) -> tuple[str, str, list[SourceLine]]:
    """Return a function in the form that the native module renders."""
    return file_name(code), code.co_name, source(code, call)


def _texts(code: CodeType, visited: list[int]) -> list[tuple[int, str]]:
    """Return the numbers and texts of a function's lines; without its source, only of the visited lines."""
    linecache.checkcache(code.co_filename)
    try:
        lines, first = inspect.getsourcelines(code)
    except (OSError, TypeError, SyntaxError, IndentationError):
        everything = linecache.getlines(code.co_filename)
        numbers = sorted({code.co_firstlineno, *visited})
        return [(number, "".join(everything[number - 1 : number]).rstrip("\r\n")) for number in numbers]
    return [(first + at, text.rstrip("\r\n")) for at, text in enumerate(lines)]


def render(code: CodeType, call: Call, *, full: bool, precision: int, columns: Sequence[str], layout: str) -> str:
    """Return the report in one of two layouts: memory_profiler's (`plain`) or that of COMPSs 3.3 (`compss`)."""
    if layout == "compss" and not full:
        return compss.one_line(call, file_name(code), code.co_name, precision)
    form = "table" if full else "one line"
    text = _native.render_lines([described(code, call)], precision=precision, columns=list(columns), form=form)
    return text + compss.lines_after_table(call, precision) if layout == "compss" else text


_pages: dict[str, list[tuple[str, str, list[SourceLine]]]] = {}
# A page shows at most this many calls, the latest ones.
_MAX_ON_PAGE = 100


def write_page(path: str, code: CodeType, call: Call, precision: int, columns: Sequence[str]) -> None:
    """Write a page with this call and earlier ones of this process. Never raises."""
    functions = _pages.setdefault(path, [])
    functions.append(described(code, call))
    del functions[:-_MAX_ON_PAGE]
    save_page(path, functions, precision, columns)


def save_page(
    path: str, functions: list[tuple[str, str, list[SourceLine]]], precision: int, columns: Sequence[str]
) -> None:
    """Write a page, whole or not at all. Never raises."""
    try:
        page = _native.render_lines(functions, precision=precision, columns=list(columns), form="page")
        private_files.write(path, page)
    except Exception as error:
        print_message(f"the page {path} could not be written ({reason(error)}): check the folder and the space left")


def file_name(code: CodeType) -> str:
    """Return the file that holds the function's source."""
    name = code.co_filename
    return name[:-1] if name.endswith((".pyc", ".pyo")) else name


def profiling_file() -> str | None:
    """Return the file that reports are appended to, if a variable names one."""
    others = [platform.variables.get("profiling_file", "") for platform in platforms.in_use(os.environ)]
    return next(filter(None, map(os.environ.get, [PROFILING_FILE, *others])), None)


def deliver(text: str, stream: Any, subject: str) -> None:
    """Write a report to its stream or file. Never raises: a failed report must not stop the program."""
    try:
        path = profiling_file()
        if stream is not None:
            _write(stream, text)
        elif path:
            _append_report(path, text)
        else:
            _write(sys.stdout, text)
    except Exception as error:
        print_message_once(
            f"the line report of {subject} could not be written ({reason(error)}): check the stream or file it goes to"
        )


def _append_report(path: str, text: str) -> None:
    try:
        append(path, text)
    except FileNotFoundError:
        # The same path applies to all nodes of a job, and this node may lack the folder.
        os.makedirs(os.path.dirname(path), exist_ok=True)
        append(path, text)


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:
        raise OSError("there is no standard output")
    try:
        stream.write(text)
    except UnicodeEncodeError:  # the source or its name has characters that the stream's encoding lacks
        encoding = getattr(stream, "encoding", None) or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


def append(path: str, text: str, flags: int = 0) -> None:
    """Append to a file under a lock, so that texts of several processes do not mix."""
    import fcntl

    data = text.encode("utf-8", "backslashreplace")
    descriptor = private_files.opener(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | flags)
    try:
        # Appending writes are atomic on a local disk; other file systems need the lock.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        while data:
            data = data[os.write(descriptor, data) :]
    finally:
        os.close(descriptor)


def now() -> tuple[float, float]:
    """Return the wall-clock time, and a monotonic time for measuring durations."""
    return time.time(), time.perf_counter()
