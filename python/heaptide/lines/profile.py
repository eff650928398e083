"""``@profile``: reports a function's memory line by line, cheaply enough to stay in the code.

Works with and without arguments, above and below other decorators, on functions, methods, generators, coroutines and
asynchronous generators. The report is printed when the call ends, also if it raises an exception; under
``heaptide lines`` it is part of the report of that command.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import sys
import threading
import types
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from heaptide import _native
from heaptide.lines import brackets, report
from heaptide.lines.monitor import Watched, check_backend
from heaptide.lines.recording import LineRecording
from heaptide.lines.report import Call
from heaptide.messages import print_message

if TYPE_CHECKING:
    from heaptide._native import LineWatch

Function = TypeVar("Function", bound=Callable[..., Any])

_numbers = itertools.count()
LAYOUTS = ("plain", "compss")
COLUMNS = ("allocated", "peak", "alive", "allocations")
# The decorator that `heaptide lines` uses instead while it runs the program: it sums the calls and prints at exit.
collector: Callable[[Any], Any] | None = None
# Attributes in which decorators store the function that they wrap.
_WRAPPING_ATTRIBUTES = ("__wrapped__", "__func__", "user_function", "func", "function", "run", "__call__")


@overload
def profile(full_report: Function) -> Function: ...
@overload
def profile(
    full_report: bool = ...,
    precision: int = ...,
    backend: str = ...,
    stream: Any = ...,
    *,
    columns: Sequence[str] = ...,
    html: str | None = ...,
    layout: str = ...,
) -> Callable[[Function], Function]: ...
def profile(
    full_report: Any = True,
    precision: int = 1,
    backend: str = "psutil",
    stream: Any = None,
    *,
    columns: Sequence[str] = (),
    html: str | None = None,
    layout: str = "plain",
) -> Any:
    """Report the memory of every call of a function, line by line.

    full_report   the whole table, or if false one line: file, function, peak
    precision     decimals of the sizes
    backend       what is measured: resident size (``psutil``, ``posix``), proportional set size (``psutil_pss``),
                  unique set size (``psutil_uss``), or Python's own tracing (``tracemalloc``)
    stream        file object for the report; by default the file named by HEAPTIDE_PROFILING_FILE or
                  COMPSS_PROFILING_FILE, else standard output
    columns       further columns, from a recording of the call: ``allocated``, ``peak``, ``alive``, ``allocations``
    html          file for the report as a page with a bar for every line
    layout        ``plain``, or ``compss`` for the lines that COMPSs 3.3 adds
    """
    if isinstance(columns, str):
        columns = (columns,)
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown:
        raise ValueError(f"unknown column {unknown[0]!r}: use some of {', '.join(COLUMNS)}")
    if layout not in LAYOUTS:
        raise ValueError(f"unknown layout {layout!r}: use one of {', '.join(LAYOUTS)}")
    if not isinstance(precision, int) or not 0 <= precision <= 15:
        raise ValueError(f"precision must be a number of decimals from 0 to 15, not {precision!r}")
    check_backend(backend)

    is_plain = stream is None and html is None and layout == "plain" and not columns

    def decorate(function: Any, full: bool = True) -> Any:
        if collector is not None and is_plain and full:
            return collector(function)

        def finish(profiled: Profiled, call: Call) -> None:
            if html is not None:
                report.write_page(os.fspath(html), profiled.code, call, precision, columns)
            text = report.render(profiled.code, call, full=full, precision=precision, columns=columns, layout=layout)
            report.deliver(text, stream, profiled.name)

        return wrap(function, backend, finish, record=bool(columns))

    if callable(full_report) or isinstance(full_report, (staticmethod, classmethod)):
        return decorate(full_report)
    return functools.partial(decorate, full=bool(full_report))


def wrap(
    function: Any,
    backend: str,
    finish: Callable[[Profiled, Call], None],
    *,
    accumulate: bool = False,
    record: bool = False,
    reading: Callable[[], int] | None = None,
) -> Any:
    """Return a wrapper of the function that passes the measurements of every call to `finish`.

    With `accumulate`, calls after the first start at the current size of the process, not at zero. With `record`,
    every call is also recorded, for its allocations by line. `reading` returns the size, instead of the backend.
    """
    if isinstance(function, (staticmethod, classmethod)):
        inner = wrap(function.__func__, backend, finish, accumulate=accumulate, record=record, reading=reading)
        return type(function)(inner)
    return Profiled(function, backend, finish, accumulate, record, reading).wrapper()


def user_function(function: Any) -> types.FunctionType:
    """Return the function that the user wrote, under any other decorators."""
    seen = set()
    while id(function) not in seen:
        seen.add(id(function))
        inner = getattr(function, "__wrapped__", None)
        if inner is None and isinstance(function, types.FunctionType):
            inner = _function_in_closure(function)
        if inner is None and not isinstance(function, types.FunctionType) and not isinstance(function, type):
            candidates = (getattr(function, name, None) for name in _WRAPPING_ATTRIBUTES)
            inner = next(
                (each for each in candidates if isinstance(each, (types.FunctionType, types.MethodType))), None
            )
        if inner is None:
            break
        function = inner
    if not isinstance(function, types.FunctionType):
        what = "the class" if isinstance(function, type) else "an object without Python source:"
        raise TypeError(f"lines of {what} {function!r} cannot be reported: decorate a function or a method")
    return function


def _function_in_closure(wrapper: types.FunctionType) -> types.FunctionType | None:
    """Return the function that a library's wrapper holds in its closure.

    Returns None unless exactly one function in the closure is defined in the file that applies the decorator.
    """
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "heaptide":
        frame = frame.f_back
    if frame is None or wrapper.__code__.co_filename == frame.f_code.co_filename:
        return None
    functions = []
    for cell in wrapper.__closure__ or ():
        try:
            content = cell.cell_contents
        except ValueError:  # the cell is still empty
            continue
        if isinstance(content, types.FunctionType) and content.__code__.co_filename == frame.f_code.co_filename:
            functions.append(content)
    return functions[0] if len(functions) == 1 else None


class Profiled:
    """One decorated function."""

    def __init__(
        self,
        function: Any,
        backend: str,
        finish: Callable[[Profiled, Call], None],
        accumulate: bool = False,
        record: bool = False,
        reading: Callable[[], int] | None = None,
    ) -> None:
        self.function = function
        user = user_function(function)
        self.code = user.__code__
        self.name = user.__name__
        self.full_name = f"{user.__module__}.{user.__qualname__}"
        self._watched = Watched(self.code, backend, reading=reading)
        self._finish = finish
        self._thread = threading.local()
        self._accumulate = accumulate
        self.record = record
        self.number = next(_numbers)
        self._n_calls = 0

    def wrapper(self) -> Any:
        """Return a wrapper of the function's type: plain, coroutine, generator or asynchronous generator function."""
        if inspect.isasyncgenfunction(self.function):
            replacement: Any = self._asynchronous_generator
        elif inspect.iscoroutinefunction(self.function):
            replacement = self._coroutine
        elif inspect.isgeneratorfunction(self.function):
            replacement = self._generator
        else:
            replacement = self._call
        wrapper = replacement()
        try:
            return functools.wraps(self.function)(wrapper)
        except (AttributeError, TypeError):
            return wrapper

    def _call(self) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            # Recursive calls are part of the outer call and its report.
            if getattr(self._thread, "is_inside", False):
                return self.function(*args, **kwargs)
            self._thread.is_inside = True
            try:
                with self._measured() as watch, self._watched.entered(watch):
                    return self.function(*args, **kwargs)
            finally:
                self._thread.is_inside = False

        return call

    def _generator(self) -> Any:
        def generate(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            with self._measured() as watch:
                return (yield from self._steps(self.function(*args, **kwargs), watch))

        return generate

    def _coroutine(self) -> Any:
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with self._measured() as watch:
                return await awaited(self._steps(self.function(*args, **kwargs), watch))

        return coroutine

    def _asynchronous_generator(self) -> Any:
        async def generate(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            with self._measured() as watch:
                inner = self.function(*args, **kwargs)
                step: Any = inner.__anext__()
                try:
                    while True:
                        try:
                            value = await awaited(self._steps(step.__await__(), watch))
                        except StopAsyncIteration:
                            return
                        try:
                            sent = yield value
                            step = inner.asend(sent)
                        except GeneratorExit:
                            raise
                        except BaseException as error:
                            step = inner.athrow(error)
                finally:
                    await awaited(self._steps(inner.aclose().__await__(), watch))

        return generate

    def _steps(self, inner: Any, watch: LineWatch) -> Generator[Any, Any, Any]:
        return steps(inner, functools.partial(self._watched.entered, watch))

    def _measured(self) -> _Measured:
        return _Measured(self)

    def begin(self) -> LineWatch:
        """Start the measurement of a call."""
        from_nothing = not (self._accumulate and self._n_calls)
        self._n_calls += 1
        return self._watched.watch(from_nothing)

    def end(self, watch: LineWatch, started: float, elapsed: float, recording: LineRecording | None) -> None:
        """Pass the measurements of a call to `finish`. Never raises."""
        before = _native.resident_bytes()
        try:
            call = Call(watch.rows(), *watch.first_and_last(), started, elapsed)
            if recording is not None:
                call.heap = recording.lines(self.code)
                recording.remove()
            self._finish(self, call)
        except Exception as error:
            print_message(f"the lines of {self.name} could not be reported ({type(error).__name__}: {error})")
        after = _native.resident_bytes()
        if before is not None and after is not None:
            # Memory that the report allocates must not count as an increment of the calling line.
            _native.set_aside(after - before)


class _Measured:
    """Measures one call, however it ends."""

    def __init__(self, profiled: Profiled) -> None:
        self._profiled = profiled

    def __enter__(self) -> LineWatch:
        self._bracket = brackets.begin(self._profiled.full_name)
        self._recording = LineRecording.begin(self._profiled.name) if self._profiled.record else None
        self._watch = self._profiled.begin()
        self._started, self._ticks = report.now()
        return self._watch

    def __exit__(self, *_: object) -> None:
        elapsed = report.now()[1] - self._ticks
        if self._recording is not None:
            self._recording.end()
        brackets.end(self._bracket)
        self._profiled.end(self._watch, self._started, elapsed, self._recording)


def steps(inner: Any, entered: Callable[[], Any]) -> Generator[Any, Any, Any]:
    """Drive a generator or a coroutine. `entered()` counts its lines while it runs, and not while it is suspended."""
    sent: Any = None
    thrown: BaseException | None = None
    while True:
        try:
            with entered():
                if thrown is not None:
                    value = inner.throw(thrown)
                elif sent is None and hasattr(inner, "__next__"):
                    value = next(inner)
                else:
                    value = inner.send(sent)
        except StopIteration as end:
            return end.value
        sent, thrown = None, None
        try:
            sent = yield value
        except GeneratorExit:
            with entered():
                inner.close()
            raise
        except BaseException as error:
            thrown = error


@types.coroutine
def awaited(inner: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Make a generator awaitable."""
    return (yield from inner)


# As in memory_profiler: a named block in the timeline.
profile.timestamp = brackets.timestamp  # type: ignore[attr-defined]
