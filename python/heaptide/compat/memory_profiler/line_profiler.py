"""memory_profiler's ``LineProfiler`` and ``CodeMap``, with lines counted natively.

A code map is a dict from code objects to the measurements of their lines. The profiler measures every code object in
the map, also those that a subclass such as PySpark's adds, and writes the measurements into the map when it is
disabled. If a subclass overrides ``trace``, the profiler uses memory_profiler's slower trace function instead.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import os
import sys
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from types import CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from heaptide.lines import report
from heaptide.lines.monitor import Entered, Watched
from heaptide.lines.profile import awaited, steps, user_function

from .readings import _get_memory, choose_backend

if TYPE_CHECKING:
    from heaptide._native import LineWatch

_MIB = 1 << 20

# Increment and size in MiB, and number of visits.
Measure = tuple[float, float, int]


class CodeMap(dict[Any, Any]):
    """The measurements of functions: for each code object, increment, size and visits of its lines.

    A function and the functions and comprehensions within it share one dict of measurements.
    """

    def __init__(self, include_children: bool, backend: str) -> None:
        super().__init__()
        self.include_children = include_children
        self.backend = backend
        self._toplevel: list[tuple[str, CodeType, Any]] = []

    def add(self, code: CodeType, toplevel_code: CodeType | None = None) -> None:
        """Measure a code object from now on; with `toplevel_code`, as a part of that function."""
        if code in self:
            return
        if toplevel_code is None:
            toplevel_code = code
            self._toplevel.append((report.file_name(code), code, _lines_of(code)))
            self[code] = {}
        else:
            self[code] = self[toplevel_code]
        for constant in code.co_consts:
            if inspect.iscode(constant):
                self.add(constant, toplevel_code=toplevel_code)

    def trace(self, code: CodeType, lineno: int, prev_lineno: int | None) -> None:
        """Add one visit of a line."""
        size = _get_memory(-1, self.backend, include_children=self.include_children, filename=code.co_filename)
        lines: dict[int, Measure] = self[code]
        increment, largest, visits = lines.get(lineno, (0.0, 0.0, 0))
        before = lines[prev_lineno][1] if prev_lineno in lines else 0.0
        lines[lineno] = (increment + size - before, max(size, largest), visits + 1)

    def items(self) -> Iterator[tuple[str, Iterator[tuple[int, Measure | None]]]]:  # type: ignore[override]
        """Yield each measured function: its file, and for each line its measure, or None if the line did not run."""
        for filename, code, numbers in self._toplevel:
            lines = self[code]
            if lines:
                yield filename, iter([(number, lines.get(number)) for number in numbers])


def _lines_of(code: CodeType) -> Any:
    try:
        source, first = inspect.getsourcelines(code)
    except (OSError, TypeError, SyntaxError):
        return sorted({line for _, _, line in code.co_lines() if line})
    return range(first, first + len(source))


class _Function:
    """Code objects that share one dict of measurements, and their native table."""

    def __init__(
        self, codes: list[CodeType], measures: dict[int, Measure], backend: str, include_children: bool
    ) -> None:
        self.codes = codes
        self.measures = measures
        reading = functools.partial(_bytes_with_children, backend) if include_children else None
        self._watched = Watched(codes[0], backend, codes, reading)
        self._watch: LineWatch = self._watched.watch()

    def entered(self) -> Entered:
        return self._watched.entered(self._watch)

    def store(self) -> None:
        """Write the measurements into the code map."""
        self.measures.update(in_mib(self._watch.rows()))


def in_mib(rows: Iterable[tuple[int, int, int, int]]) -> dict[int, Measure]:
    """Return rows of line, visits, size and increment in bytes as the measurements of a code map."""
    return {line: (increment / _MIB, most / _MIB, visits) for line, visits, most, increment in rows}


def _bytes_with_children(backend: str) -> int:
    return int(_get_memory(-1, backend, include_children=True) * _MIB)


class LineProfiler:
    """Counts the lines of functions while it is enabled, and keeps the measurements in its `code_map`."""

    def __init__(self, **kw: Any) -> None:
        self.backend = choose_backend(kw.get("backend"))
        self.code_map: Any = CodeMap(include_children=kw.get("include_children", False), backend=self.backend)
        self.max_mem: float | None = kw.get("max_mem")
        self.enable_count = 0
        self.prevlines: list[int] = []
        self.prev_lineno: int | None = None
        self._functions: dict[int, _Function] = {}
        self._thread = threading.local()

    def __call__(self, func: Any = None, precision: int = 1) -> Any:
        """Decorate a function: all of its calls are measured."""
        if func is None:
            return functools.partial(self.__call__, precision=precision)
        if isinstance(func, (staticmethod, classmethod)):
            return type(func)(self(func.__func__))
        self.add_function(func)
        return functools.wraps(func)(self.wrap_function(func))

    def add_function(self, func: Any) -> None:
        """Measure a function while the profiler is enabled."""
        try:
            code = user_function(func).__code__
        except TypeError:
            warnings.warn(f"Could not extract a code object for the object {func!r}", stacklevel=2)
        else:
            self.code_map.add(code)

    def wrap_function(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that enables the profiler while it runs."""
        if inspect.iscoroutinefunction(func):

            async def coroutine(*args: Any, **kwargs: Any) -> Any:
                return await awaited(steps(func(*args, **kwargs), self._counted))

            return coroutine
        if inspect.isgeneratorfunction(func):

            def generate(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
                return (yield from steps(func(*args, **kwargs), self._counted))

            return generate

        def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return func(*args, **kwargs)

        return call

    def _counted(self) -> LineProfiler:
        return self

    def enable_by_count(self) -> None:
        """Enable the profiler on this thread, unless an earlier call has enabled it."""
        count = getattr(self._thread, "count", 0)
        if count == 0:
            self.enable()
        self._thread.count = count + 1
        self.enable_count += 1

    def disable_by_count(self) -> None:
        """Undo one call of :meth:`enable_by_count` on this thread; undoing the last one disables the profiler there."""
        count = getattr(self._thread, "count", 0)
        if count > 0:
            self._thread.count = count - 1
            self.enable_count -= 1
            if count == 1:
                self.disable()

    def enable(self) -> None:
        """Start to measure on this thread."""
        trace = getattr(type(self.code_map), "trace", None)
        if self.max_mem is not None or trace is not CodeMap.trace:
            self._original_trace_function = sys.gettrace()
            sys.settrace(self.trace_memory_usage if self.max_mem is None else self.trace_max_mem)
            self._thread.entered = None
            return
        functions = self._measured()
        self._thread.entered = entered = [(function, function.entered()) for function in functions]
        for _, each in entered:
            each.__enter__()

    def disable(self) -> None:
        """Stop measuring, and write the measurements into the code map."""
        entered = getattr(self._thread, "entered", ())
        if entered is None:
            sys.settrace(self._original_trace_function)
            return
        for function, each in reversed(entered):
            each.__exit__(None, None, None)
            function.store()
        self._thread.entered = ()

    def _measured(self) -> list[_Function]:
        """Return the functions of the code map. Other code may have replaced the map or added to it."""
        groups: dict[int, list[CodeType]] = {}
        for code, measures in dict.items(self.code_map):
            groups.setdefault(id(measures), []).append(code)
        for key, codes in groups.items():
            known = self._functions.get(key)
            measures = dict.__getitem__(self.code_map, codes[0])
            if known is None or known.measures is not measures or len(known.codes) != len(codes):
                backend = getattr(self.code_map, "backend", self.backend)
                children = getattr(self.code_map, "include_children", False)
                self._functions[key] = _Function(codes, measures, backend, children)
        return [self._functions[key] for key in groups]

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

    def trace_memory_usage(self, frame: FrameType, event: Any, arg: Any) -> Any:
        """Pass the lines of measured functions to ``code_map.trace``. Used if a subclass overrides that method."""
        if frame.f_code in self.code_map:
            if event == "call":
                self.prevlines.append(frame.f_lineno)
            elif event in ("line", "return") and self.prevlines:
                ended = self.prevlines.pop()
                self.code_map.trace(frame.f_code, ended, self.prev_lineno)
                self.prev_lineno = ended
                if event == "line":
                    self.prevlines.append(frame.f_lineno)
        if self._original_trace_function is not None:
            self._original_trace_function(frame, event, arg)
        return self.trace_memory_usage

    def trace_max_mem(self, frame: FrameType, event: Any, arg: Any) -> Any:
        """Start the debugger in a measured function at the first line at which the process has `max_mem` MiB."""
        if event in ("line", "return") and frame.f_code in self.code_map and self.max_mem is not None:
            size = _get_memory(-1, self.backend, filename=frame.f_code.co_filename)
            if size >= self.max_mem:
                import pdb

                print(f"Current memory {size:.2f} MiB exceeded the maximum of {self.max_mem:.2f} MiB")
                print("Stepping into the debugger ", flush=True)
                debugger = pdb.Pdb()
                debugger.set_trace(frame)
                return debugger.trace_dispatch
        if self._original_trace_function is not None:
            self._original_trace_function(frame, event, arg)
        return self.trace_max_mem


def show_results(prof: Any, stream: TextIO | None = None, precision: int = 1) -> None:
    """Write the tables of a profiler."""
    functions: list[tuple[str, str, list[report.SourceLine]]] = []
    for filename, lines in prof.code_map.items():
        texts = linecache.getlines(filename)
        rows: list[report.SourceLine] = []
        for number, seen in lines:
            text = texts[number - 1].rstrip("\r\n") if number <= len(texts) else ""
            in_bytes = (seen[2], round(seen[1] * _MIB), round(seen[0] * _MIB)) if seen else None
            rows.append((number, text, in_bytes, None))
        functions.append((os.fspath(filename), "", rows))
    text = report.render_all(functions, precision, ())
    (sys.stdout if stream is None else stream).write(text)
