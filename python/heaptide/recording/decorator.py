"""Decorators that record the calls of a function and make a report of each.

::

    @heaptide.profile_memory
    def load(path): ...

    @heaptide.profile_memory(reporter="table", reporter_args=["--leaks"])
    async def serve(): ...

The function's result, its exceptions and its looks stay its own. Whatever fails, the function runs, and one line on
standard error says what failed.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import os
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from heaptide.messages import reason, say
from heaptide.platforms.flyte import FOLDER
from heaptide.reports import Report, Sink, deliver, render

if TYPE_CHECKING:
    from heaptide.recording.tracker import RecordingOptions

Function = TypeVar("Function", bound=Callable[..., Any])

REPORTERS = ("flamegraph", "table")


@overload
def profile_memory(function: Function) -> Function: ...
@overload
def profile_memory(
    function: None = None,
    *,
    objects: bool = ...,
    native: bool = ...,
    sample: int | bool | None = ...,
    aggregate: bool = ...,
    follow_fork: bool = ...,
    interval_ms: int = ...,
    reporter: str = ...,
    reporter_args: Sequence[str] | None = ...,
    folder: str | os.PathLike[str] = ...,
    sink: Sink | None = ...,
) -> Callable[[Function], Function]: ...
def profile_memory(
    function: Function | None = None,
    *,
    objects: bool = False,
    native: bool = False,
    sample: int | bool | None = None,
    aggregate: bool = False,
    follow_fork: bool = False,
    interval_ms: int = 10,
    reporter: str = "flamegraph",
    reporter_args: Sequence[str] | None = None,
    folder: str | os.PathLike[str] = FOLDER,
    sink: Sink | None = None,
) -> Any:
    """Record every call of the function and make a report of it.

    objects, native, sample, aggregate, follow_fork, interval_ms   how to record, as for :class:`heaptide.Tracker`
    reporter        `flamegraph` or `table`
    reporter_args   further options of that command, such as `["--leaks"]`; a wrong one raises ValueError here and now
    folder          where `<function>.<time>.bin` and `<reporter>.<function>.<time>.html` are put
    sink            what gets the report, in place of the one set by :func:`heaptide.reports.set_sink`

    Decorates functions, async functions, generators, async generators and methods. Calls that overlap share one
    recording, and each has a report of it; a call of the function within itself has none of its own.
    """
    options = check_options(
        objects=objects,
        native=native,
        sample=sample,
        aggregate=aggregate,
        follow_fork=follow_fork,
        interval_ms=interval_ms,
    )
    profile = Profile("Memory", options, reporter, reporter_args, folder, sink)
    return profile if function is None else profile(function)


class Profile:
    """How calls are to be recorded and reported; calling it decorates a function."""

    def __init__(
        self,
        family: str,
        options: RecordingOptions | None,
        reporter: str,
        reporter_args: Sequence[str] | None,
        folder: str | os.PathLike[str],
        sink: Sink | None,
    ) -> None:
        self.reporter = reporter
        self.arguments = check_reporter(reporter, reporter_args)
        self.title = f"{family} {reporter.capitalize()}"
        self.folder = os.fspath(folder)
        self.sink = sink
        self.options = options

    def __call__(self, function: Function) -> Function:
        if isinstance(function, (staticmethod, classmethod)):
            return cast("Function", type(function)(self(function.__func__)))
        if not callable(function):
            raise TypeError(f"a function is to be decorated, not {function!r}")
        within = contextvars.ContextVar("within", default=False)
        kind = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
        if inspect.isasyncgenfunction(kind):
            wrapper = self._async_generator(function, within)
        elif inspect.iscoroutinefunction(kind):
            wrapper = self._coroutine(function, within)
        elif inspect.isgeneratorfunction(kind):
            wrapper = self._generator(function, within)
        else:
            wrapper = self._plain(function, within)
        return cast("Function", functools.wraps(function)(wrapper))

    def _plain(self, function: Callable[..., Any], within: contextvars.ContextVar[bool]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if within.get():
                return function(*args, **kwargs)
            call = Call(self, function)
            mark = within.set(True)
            try:
                return function(*args, **kwargs)
            finally:
                _unmark(within, mark)
                call.end()

        return wrapper

    def _coroutine(self, function: Callable[..., Any], within: contextvars.ContextVar[bool]) -> Callable[..., Any]:
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            if within.get():
                return await function(*args, **kwargs)
            call = Call(self, function)
            mark = within.set(True)
            try:
                result = await function(*args, **kwargs)
            except GeneratorExit:  # closed without a loop that could wait
                call.end()
                raise
            except BaseException:
                _unmark(within, mark)
                await call.end_async()
                raise
            _unmark(within, mark)
            await call.end_async()
            return result

        return wrapper

    def _generator(self, function: Callable[..., Any], within: contextvars.ContextVar[bool]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            generator = function(*args, **kwargs)
            if within.get():
                return (yield from generator)
            call = Call(self, function)
            step, value = generator.send, None
            try:
                while True:
                    # Marked only while the function runs, not while its caller does.
                    mark = within.set(True)
                    try:
                        item = step(value)
                    except StopIteration as stop:
                        return stop.value
                    finally:
                        _unmark(within, mark)
                    try:
                        step, value = generator.send, (yield item)
                    except GeneratorExit:
                        generator.close()
                        raise
                    except BaseException as error:
                        step, value = generator.throw, error
            finally:
                call.end()

        return wrapper

    def _async_generator(
        self, function: Callable[..., Any], within: contextvars.ContextVar[bool]
    ) -> Callable[..., Any]:
        async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            generator = function(*args, **kwargs)
            call = None if within.get() else Call(self, function)
            step = generator.__anext__()
            try:
                while True:
                    mark = within.set(True)
                    try:
                        item = await step
                    except StopAsyncIteration:
                        break
                    finally:
                        _unmark(within, mark)
                    try:
                        step = generator.asend((yield item))
                    except GeneratorExit:
                        await generator.aclose()
                        raise
                    except BaseException as error:
                        step = generator.athrow(error)
            except GeneratorExit:
                if call is not None:
                    call.end()
                raise
            except BaseException:
                if call is not None:
                    await call.end_async()
                raise
            if call is not None:
                await call.end_async()

        return wrapper


def _unmark(within: contextvars.ContextVar[bool], mark: contextvars.Token[bool]) -> None:
    try:
        within.reset(mark)
    except ValueError:  # somebody runs the parts of a coroutine in different contexts; then no mark was left here
        pass


class Call:
    """One call that is being recorded, or that runs unrecorded because something failed."""

    def __init__(self, profile: Profile, function: Callable[..., Any]) -> None:
        self.profile = profile
        self.name = getattr(function, "__name__", type(function).__name__)
        self.place = None
        try:
            from heaptide.recording import shared

            self.place = shared.enter(profile.folder, self.name, profile.reporter, profile.options)
        except Exception as error:
            say(f"{self.name}: {reason(error)}; it runs without being recorded")

    def end(self) -> None:
        """Stop, make the report, hand it over."""
        report = self._stop()
        if report is not None:
            self._render(report)
            self._deliver(report)

    async def end_async(self) -> None:
        """The same, while the event loop goes on."""
        report = self._stop()
        if report is None:
            return
        asyncio = sys.modules.get("asyncio")
        try:
            waiting = asyncio.get_running_loop().run_in_executor(None, self._render, report) if asyncio else None
        except RuntimeError:  # another kind of loop, or one that is being closed
            waiting = None
        if waiting is None:
            self._render(report)
        else:
            await waiting
        self._deliver(report)

    def _stop(self) -> Report | None:
        if self.place is None or self.place.pid != os.getpid():
            return None  # a forked child that comes back through here has nothing to report
        try:
            from heaptide.recording import shared

            shared.leave(self.place)
        except Exception as error:
            say(f"{self.name}: {reason(error)}; there is no report")
            return None
        return Report(self.name, self.profile.reporter, self.profile.title, self.place.capture, self.place.page)

    def _render(self, report: Report) -> None:
        assert self.place is not None
        render(report, self.profile.arguments, self.place.captures())

    def _deliver(self, report: Report) -> None:
        if report.error is not None:
            say(f"{self.name}: no {report.reporter} could be made: {report.error}")
        try:
            deliver(report, self.profile.sink)
        except Exception as error:
            say(f"{self.name}: the report in {report.path} could not be handed over: {reason(error)}")


def check_reporter(reporter: str, arguments: Sequence[str] | None) -> list[str]:
    """The options as a list, if the reporter is known and takes them; else ValueError says what is wrong."""
    if reporter not in REPORTERS:
        raise ValueError(f"{reporter!r} is no reporter: use {' or '.join(REPORTERS)}")
    if arguments is None:
        return []
    if isinstance(arguments, str) or not all(isinstance(word, str) for word in arguments):
        raise ValueError(f'options of {reporter} are a list of text, such as ["--leaks"], not {arguments!r}')
    try:
        from heaptide import _native
    except ImportError:  # told when the function is called; a program is not stopped by its profiler
        return list(arguments)
    wrong = _native.check_report_options(reporter, list(arguments))
    if wrong is not None:
        raise ValueError(f"{reporter} does not take {list(arguments)!r}: {wrong}")
    return list(arguments)


def check_options(**options: Any) -> RecordingOptions | None:
    """Return the options of :class:`heaptide.Tracker`, checked; None if the native module cannot be loaded."""
    try:
        from heaptide.recording.tracker import RecordingOptions
    except ImportError:
        return None  # reported when the function is called: the profiler must not stop a program
    return RecordingOptions.checked(**options)
