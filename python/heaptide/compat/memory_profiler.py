"""memory_profiler's API on Heaptide's engine: ``from heaptide.compat.memory_profiler import profile``.

Code with ``import memory_profiler`` runs unchanged after :func:`install`, which replaces an installed memory_profiler
only with `force`. ``python -m heaptide.compat.memory_profiler script.py`` takes memory_profiler's options.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import logging
import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from heaptide.lines import brackets, report
from heaptide.lines.monitor import BACKENDS, Entered, Watched
from heaptide.lines.profile import profile as _profile
from heaptide.lines.profile import user_function
from heaptide.lines.report import Call
from heaptide.lines.usage import memory_usage
from heaptide.notebook import Magics as MemoryProfilerMagics
from heaptide.notebook import MemitResult, load_ipython_extension

if TYPE_CHECKING:
    from heaptide._native import LineWatch

__all__ = [
    "LineProfiler",
    "LogFile",
    "MemitResult",
    "MemoryProfilerMagics",
    "choose_backend",
    "install",
    "load_ipython_extension",
    "memory_usage",
    "profile",
    "show_results",
]

# The version of memory_profiler whose API this module has.
__version__ = "0.61.0"

_MIB = 1 << 20


def profile(func: Any = None, stream: Any = None, precision: int = 1, backend: str = "psutil") -> Any:
    """Report the memory of every call of a function, line by line."""
    decorate = _profile(True, precision, backend, stream)
    return decorate if func is None else decorate(func)


profile.timestamp = brackets.timestamp  # type: ignore[attr-defined]


class LineProfiler:
    """Counts the lines of functions while it is enabled, and keeps the measurements for :func:`show_results`."""

    def __init__(self, backend: str = "psutil", include_children: bool = False, **_: Any) -> None:
        self.backend = backend
        self.include_children = include_children
        self.enable_count = 0
        self._watched: list[tuple[Watched, LineWatch]] = []
        self._entered: list[Entered] = []

    def __call__(self, func: Any = None, precision: int = 1) -> Any:
        """Decorate a function: all of its calls are measured."""
        if func is None:
            return self
        self.add_function(func)
        return functools.wraps(func)(self.wrap_function(func))

    def add_function(self, func: Any) -> None:
        """Measure a function while the profiler is enabled."""
        code = user_function(func).__code__
        if not any(watched.code is code for watched, _ in self._watched):
            watched = Watched(code, self.backend)
            self._watched.append((watched, watched.watch()))

    def wrap_function(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that enables the profiler while it runs."""
        if inspect.iscoroutinefunction(func):

            async def coroutine(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await func(*args, **kwargs)

            return coroutine

        def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return func(*args, **kwargs)

        return call

    def enable_by_count(self) -> None:
        """Enable the profiler if this is the first of several calls."""
        if self.enable_count == 0:
            self.enable()
        self.enable_count += 1

    def disable_by_count(self) -> None:
        """Disable the profiler with the last of several calls."""
        if self.enable_count > 0:
            self.enable_count -= 1
            if self.enable_count == 0:
                self.disable()

    def enable(self) -> None:
        """Start to measure on this thread."""
        self._entered = [watched.entered(watch) for watched, watch in self._watched]
        for entered in self._entered:
            entered.__enter__()

    def disable(self) -> None:
        """Stop measuring."""
        for entered in reversed(self._entered):
            entered.__exit__(None, None, None)
        self._entered = []

    def run(self, cmd: str) -> LineProfiler:
        """Run a statement in the main module."""
        names = vars(sys.modules["__main__"])
        return self.runctx(cmd, names, names)

    def runctx(self, cmd: str, globals: dict[str, Any], locals: dict[str, Any]) -> LineProfiler:
        """Run a statement."""
        with self:
            exec(cmd, globals, locals)
        return self

    def runcall(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function and measure it."""
        self.add_function(func)
        with self:
            return func(*args, **kwargs)

    def __enter__(self) -> None:
        self.enable_by_count()

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.disable_by_count()

    def calls(self) -> list[tuple[Watched, Call]]:
        """Return the measurements of every function that ran."""
        seen = [(watched, Call(watch.rows(), *watch.first_and_last(), 0, 0)) for watched, watch in self._watched]
        return [(watched, call) for watched, call in seen if call.rows]

    @property
    def code_map(self) -> CodeMap:
        """The measurements as numbers."""
        return CodeMap(self)


class CodeMap:
    """Measurements: for every file, lines with increment and size in MiB and the number of visits, or None."""

    def __init__(self, profiler: LineProfiler) -> None:
        self._profiler = profiler

    def items(self) -> Iterator[tuple[str, Iterator[tuple[int, tuple[float, float, int] | None]]]]:
        """Return files with their lines."""
        for watched, call in self._profiler.calls():
            lines = report.source(watched.code, call)
            yield (
                report.file_name(watched.code),
                iter([(line, seen and (seen[2] / _MIB, seen[1] / _MIB, seen[0])) for line, _, seen, _ in lines]),
            )


def show_results(prof: LineProfiler, stream: TextIO | None = None, precision: int = 1) -> None:
    """Write the tables of a profiler."""
    functions = [report.described(watched.code, call) for watched, call in prof.calls()]
    text = report.render_all(functions, precision, ())
    (sys.stdout if stream is None else stream).write(text)


class LogFile:
    """A stream that passes lines to a logger; with `reportIncrementFlag`, only rows that added memory."""

    def __init__(self, name: str | None = None, reportIncrementFlag: bool = False) -> None:
        self.logger = logging.getLogger(name)
        self.reportIncrementFlag = reportIncrementFlag

    def write(self, text: str) -> None:
        """Log every line."""
        for line in text.splitlines():
            if line.strip() and (not self.reportIncrementFlag or self._is_wanted(line)):
                self.logger.info(line)

    def _is_wanted(self, line: str) -> bool:
        if line.startswith("Filename:") or "Line Contents" in line:
            return True
        cells = line.split(" MiB")
        return len(cells) > 2 and float(cells[1]) > 0

    def flush(self) -> None:
        """Flush the logger's handlers."""
        for handler in self.logger.handlers:
            handler.flush()


def choose_backend(new_backend: str | None = None) -> str:
    """Return the backend that is used for the requested one."""
    return new_backend if new_backend in BACKENDS or new_backend == "tracemalloc" else "psutil"


def install(force: bool = False) -> None:
    """Make ``import memory_profiler`` mean this module.

    An installed memory_profiler is left alone unless `force` is true.
    """
    if not force:
        present = sys.modules.get("memory_profiler")
        if present is sys.modules[__name__]:
            return
        if present is not None or importlib.util.find_spec("memory_profiler") is not None:
            raise ImportError("memory_profiler is installed: remove it, or replace it with install(force=True)")
    sys.modules["memory_profiler"] = sys.modules[__name__]


def _main() -> int:
    """Run ``python -m memory_profiler``."""
    import argparse

    from heaptide import __main__ as command

    parser = argparse.ArgumentParser(prog="python -m heaptide.compat.memory_profiler", description=_main.__doc__)
    parser.add_argument("--precision", type=int, default=3, help="decimals of the sizes")
    parser.add_argument("-o", dest="output", help="append the report to this file")
    parser.add_argument("--timestamp", action="store_true", help="write brackets of functions instead of tables")
    parser.add_argument("--include-children", action="store_true", help="ignored: tables show only this process")
    parser.add_argument("--backend", default="psutil", help="what is measured")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="a script or -m module, and its arguments")
    options = parser.parse_args()
    if not options.program:
        parser.error("there is nothing to run: name a script")
    if options.timestamp:
        import os

        os.environ[brackets.VARIABLE] = options.output or "/dev/stdout"
    output = ["-o", options.output] if options.output and not options.timestamp else []
    words = ["lines", "-p", str(options.precision), "--backend", options.backend, *output, *options.program]
    sys.argv = [sys.argv[0], *words]
    return command.main()


if __name__ == "__main__":
    sys.exit(_main())
