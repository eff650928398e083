"""memory_profiler's API on Heaptide: ``from heaptide.compat.memory_profiler import profile``.

Code with ``import memory_profiler`` runs unchanged with ``HEAPTIDE_COMPAT=memory_profiler`` in its environment, or
after :func:`install`, which replaces an installed memory_profiler only with `force`.
``python -m heaptide.compat.memory_profiler script.py`` takes memory_profiler's options.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import sys
from typing import Any

from heaptide.lines import brackets
from heaptide.lines.profile import profile as _profile
from heaptide.lines.usage import memory_usage as _memory_usage
from heaptide.notebook import MemitResult

from .line_profiler import CodeMap, LineProfiler, show_results
from .magics import MemoryProfilerMagics, load_ipython_extension
from .program import exec_with_profiler, run_module_with_profiler
from .readings import MemTimer, _get_child_memory, _get_memory, choose_backend
from .time_stamper import TimeStamper

__all__ = [
    "CodeMap",
    "LineProfiler",
    "LogFile",
    "MemTimer",
    "MemitResult",
    "MemoryProfilerMagics",
    "TimeStamper",
    "_get_child_memory",
    "_get_memory",
    "choose_backend",
    "exec_with_profiler",
    "has_tracemalloc",
    "install",
    "load_ipython_extension",
    "memory_usage",
    "profile",
    "run_module_with_profiler",
    "show_results",
]

# The version of memory_profiler whose API this module has.
__version__ = "0.61.0"

# Every supported Python has it.
has_tracemalloc = True


def profile(func: Any = None, stream: Any = None, precision: int = 1, backend: str | None = "psutil") -> Any:
    """Report the memory of every call of a function, line by line."""
    decorate = _profile(True, precision, choose_backend(backend), stream)
    return decorate if func is None else decorate(func)


profile.timestamp = brackets.timestamp  # type: ignore[attr-defined]


@functools.wraps(_memory_usage)
def memory_usage(*args: Any, **options: Any) -> Any:
    """Return the memory of a process over time. An unknown backend raises KeyError."""
    target = args[0] if args else options.get("proc", -1)
    function = target[0] if isinstance(target, (list, tuple)) and 1 <= len(target) <= 3 else None
    if isinstance(target, str) or (function is not None and not callable(function)):
        raise TypeError(f"memory_usage takes a function, a process ID or a Popen, not {target!r}")
    # `backend` is the tenth parameter.
    choose_backend(args[9] if len(args) > 9 else options.get("backend"))
    return _memory_usage(*args, **options)


class LogFile:
    """A stream that passes lines to a logger; with `reportIncrementFlag`, only rows that added memory."""

    def __init__(self, name: str | None = None, reportIncrementFlag: bool = False) -> None:
        self.logger = logging.getLogger(name)
        self.reportIncrementFlag = reportIncrementFlag

    def write(self, msg: str, level: int = logging.INFO) -> None:
        """Log every line."""
        for line in msg.splitlines():
            if line.strip() and (not self.reportIncrementFlag or self._is_wanted(line)):
                self.logger.log(level, line)

    def _is_wanted(self, line: str) -> bool:
        if line.startswith("Filename:") or "Line Contents" in line:
            return True
        cells = line.split(" MiB")
        return len(cells) > 2 and float(cells[1]) > 0

    def flush(self) -> None:
        """Flush the logger's handlers."""
        for handler in self.logger.handlers:
            handler.flush()


def install(force: bool = False) -> None:
    """Make ``import memory_profiler`` return this module.

    If memory_profiler is installed, raise ImportError unless `force` is true.
    """
    if not force:
        present = sys.modules.get("memory_profiler")
        if present is sys.modules[__name__]:
            return
        if present is not None or importlib.util.find_spec("memory_profiler") is not None:
            raise ImportError("memory_profiler is installed: remove it, or replace it with install(force=True)")
    sys.modules["memory_profiler"] = sys.modules[__name__]
