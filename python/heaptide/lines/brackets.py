"""Brackets in a timeline: when a call started and ended, and the size of the process at both times.

While a timeline is recorded, HEAPTIDE_TIMELINE_FUNCTIONS names the file for brackets. Each bracket is one line in
mprof's format: ``FUNC name MiB-at-entry time MiB-at-exit time level``.
"""

from __future__ import annotations

import os
import threading
import time
from types import TracebackType

from heaptide import _native

VARIABLE = "HEAPTIDE_TIMELINE_FUNCTIONS"
_MIB = 1 << 20
_thread = threading.local()


class Bracket:
    """A call or a block of code that has started and not ended."""

    def __init__(self, path: str, name: str, level: int, include_children: bool = False) -> None:
        self.path = path
        self.name = name
        self.level = level
        self.include_children = include_children
        self.began = _reading(include_children)


def begin(name: str, include_children: bool = False) -> Bracket | None:
    """Start a bracket, if a timeline is being recorded. Sizes are of this process, or also of its descendants."""
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    level = getattr(_thread, "level", 0)
    _thread.level = level + 1
    return Bracket(path, name, level, include_children)


def end(bracket: Bracket | None) -> None:
    """Append the bracket to the file. Never raises: a failure must not stop the program."""
    if bracket is None:
        return
    _thread.level = max(0, getattr(_thread, "level", 1) - 1)
    numbers = (*bracket.began, *_reading(bracket.include_children))
    line = f"FUNC {bracket.name} " + " ".join(f"{number:.4f}" for number in numbers) + f" {bracket.level}\n"
    try:
        from heaptide.lines.report import append

        append(bracket.path, line, os.O_NOFOLLOW)
    except Exception as error:
        from heaptide.messages import print_message_once, reason

        print_message_once(f"brackets of functions could not be written to {bracket.path}: {reason(error)}")


class timestamp:
    """Marks a block of code in the timeline: ``with profile.timestamp("load"):``."""

    def __init__(self, name: str = "<block>") -> None:
        # A line of mprof's format names `module.function`, without blanks. For a block, mprof leaves the module empty.
        self._name = "." + "_".join(name.split())

    def __enter__(self) -> None:
        self._bracket = begin(self._name)

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        end(self._bracket)


def bytes_with_children() -> int:
    """Return the resident bytes of this process and its descendants."""
    sample = _native.MemoryReader(os.getpid(), "resident", True).sample()
    return _resident_bytes() if sample is None else sample[1] + sum(size for _, size in sample[2])


def _resident_bytes() -> int:
    return _native.resident_bytes() or 0


def _reading(include_children: bool) -> tuple[float, float]:
    size = bytes_with_children() if include_children else _resident_bytes()
    return size / _MIB, time.time()
