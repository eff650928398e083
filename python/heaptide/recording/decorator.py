"""The decorator ``profile_memory``: records the calls of a function and renders a report of each call.

::

    @heaptide.profile_memory
    def load(path): ...

    @heaptide.profile_memory(reporter="table", reporter_args=["--leaks"])
    async def serve(): ...

Result, exceptions, name and signature of the function are unchanged. One line on standard error names the files of the
process's first report. If recording or rendering fails, the function still runs, and one line on standard error names
what failed.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from heaptide import platforms
from heaptide.messages import print_message, reason
from heaptide.platforms.flyte import FOLDER
from heaptide.reports import Report, Sink, announce, current_sink, render, to_file, wait_for

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
    """Record every call of the function and render a report of it.

    objects, native, sample, aggregate, follow_fork, interval_ms   options of the recording: see :class:`Tracker`
    reporter        `flamegraph` or `table`
    reporter_args   further options of that command, such as `["--leaks"]`; an invalid one raises ValueError at once
    folder          folder for `<function>.<time>.bin` and `<reporter>.<function>.<time>.html`
    sink            callable that receives the report, instead of the one set with :func:`heaptide.reports.set_sink`

    Decorates functions, async functions, generators, async generators and methods. Calls that overlap share one
    recording, and each call gets a report of it. A recursive call is part of the outer call's report.
    """
    options = check_options(
        objects=objects,
        native=native,
        sample=sample,
        aggregate=aggregate,
        follow_fork=follow_fork,
        interval_ms=interval_ms,
    )
    profile = Profile("Memory", options, reporter, reporter_args, folder, sink, is_announced=True)
    return profile if function is None else profile(function)


class Profile:
    """Options for recording and reporting calls. Calling the object decorates a function."""

    def __init__(
        self,
        family: str,
        options: RecordingOptions | None,
        reporter: str,
        reporter_args: Sequence[str] | None,
        folder: str | os.PathLike[str],
        sink: Sink | None,
        *,
        is_announced: bool = False,
    ) -> None:
        self.reporter = reporter
        # False for `memray_profiling`, because Flyte's plugin of that name prints nothing.
        self.is_announced = is_announced
        self.arguments = check_reporter(reporter, reporter_args)
        self.title = f"{family} {reporter.capitalize()}"
        self.folder = os.fspath(folder)
        self.sink = sink
        self.options = options

    def __call__(self, function: Function) -> Function:
        if isinstance(function, (staticmethod, classmethod)):
            return cast("Function", type(function)(self(function.__func__)))
        task = platforms.profile_task(function, self)
        if task is not None:
            return cast("Function", task)
        if not callable(function):
            raise TypeError(f"only a function can be decorated, not {function!r}")
        within = contextvars.ContextVar("within", default=False)
        called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
        if inspect.isasyncgenfunction(called):
            wrapper = self._async_generator(function, within)
        elif inspect.iscoroutinefunction(called):
            wrapper = self._coroutine(function, within)
        elif inspect.isgeneratorfunction(called):
            wrapper = self._generator(function, within)
        else:
            wrapper = self._plain(function, within)
        wrapper = functools.wraps(function)(wrapper)
        # Platforms read this attribute to find the file of the decorated function.
        wrapper.task_function = function  # type: ignore[attr-defined]
        return cast("Function", wrapper)

    def _plain(self, function: Callable[..., Any], within: contextvars.ContextVar[bool]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if within.get():
                return function(*args, **kwargs)
            call = Call(self, function)
            mark = within.set(True)
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                _unmark(within, mark)
                call.end(error)
                raise
            _unmark(within, mark)
            call.end()
            return result

        return wrapper

    def _coroutine(self, function: Callable[..., Any], within: contextvars.ContextVar[bool]) -> Callable[..., Any]:
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            if within.get():
                return await function(*args, **kwargs)
            call = Call(self, function)
            mark = within.set(True)
            try:
                result = await function(*args, **kwargs)
            except GeneratorExit:  # the coroutine is being closed, so it cannot await
                call.end()
                raise
            except BaseException as error:
                _unmark(within, mark)
                await call.end_async(error)
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
                    # Set the mark only while the generator runs, not while its caller runs.
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
            except BaseException as error:
                call.end(error)
                raise
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
            except BaseException as error:
                if call is not None:
                    await call.end_async(error)
                raise
            if call is not None:
                await call.end_async()

        return wrapper


def _unmark(within: contextvars.ContextVar[bool], mark: contextvars.Token[bool]) -> None:
    try:
        within.reset(mark)
    except ValueError:  # the coroutine started in another context, so this context has no mark
        pass


class Call:
    """One call that is being recorded, or that runs unrecorded because the recording failed."""

    def __init__(self, profile: Profile, function: Callable[..., Any]) -> None:
        self.profile = profile
        self.name = getattr(function, "__name__", type(function).__name__)
        self.files = None
        self.sink: Sink = to_file
        try:
            from heaptide.recording import shared

            # Choose the sink now: a generator may end in another thread, where the platform's task is unknown.
            self.sink = profile.sink or current_sink()
            self.files = shared.enter(profile.folder, self.name, profile.reporter, profile.options)
        except Exception as error:
            print_message(f"{self.name}: {reason(error)}; it runs without being recorded")

    def end(self, error: BaseException | None = None) -> None:
        """Stop recording the call, render the report and deliver it. A second call does nothing."""
        report = self._stop(error)
        if report is not None:
            self._render(report)
            try:
                delivery = self._deliver(report)
                if delivery is not None:
                    wait_for(delivery)
            except Exception as failure:
                self._report_undelivered(report, failure)

    async def end_async(self, error: BaseException | None = None) -> None:
        """Do the same without blocking the event loop."""
        report = self._stop(error)
        if report is None:
            return
        asyncio = sys.modules.get("asyncio")
        try:
            waiting = asyncio.get_running_loop().run_in_executor(None, self._render, report) if asyncio else None
        except RuntimeError:  # another library's event loop, or one that is closing
            waiting = None
        if waiting is None:
            self._render(report)
        else:
            await waiting
        try:
            delivery = self._deliver(report)
            if delivery is not None:
                await delivery
        except Exception as failure:
            self._report_undelivered(report, failure)

    def _stop(self, error: BaseException | None) -> Report | None:
        files, self.files = self.files, None
        if files is None or files.pid != os.getpid():
            return None  # this is a child that the call has forked; only the parent reports
        try:
            from heaptide.recording import shared

            shared.leave(files)
            report = Report(self.name, self.profile.reporter, self.profile.title, files.capture, files.page)
            report.captures = files.captures()
            if error is not None and not isinstance(error, GeneratorExit):
                report.outcome = "failed"
                report.failure = _describe(error)
            return report
        except Exception as failure:
            print_message(f"{self.name}: {reason(failure)}; there is no report")
            return None

    def _render(self, report: Report) -> None:
        render(report, self.profile.arguments)

    def _deliver(self, report: Report) -> Awaitable[None] | None:
        if report.error is not None:
            print_message(f"{self.name}: cannot render the {report.reporter}: {report.error}")
        elif self.sink is to_file and self.profile.is_announced:
            from heaptide import _native

            _native.unrecorded(announce, report)  # an overlapping call may still be recorded
        return self.sink(report)

    def _report_undelivered(self, report: Report, failure: Exception) -> None:
        print_message(f"{self.name}: the report in {report.path} could not be delivered: {reason(failure)}")


def _describe(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # `str` of the program's exception raises
        return type(error).__name__


def check_reporter(reporter: str, arguments: Sequence[str] | None) -> list[str]:
    """Return the reporter's options as a list. An unknown reporter or option raises ValueError."""
    if reporter not in REPORTERS:
        raise ValueError(f"unknown reporter {reporter!r}: use {' or '.join(REPORTERS)}")
    if arguments is None:
        return []
    if isinstance(arguments, str) or not all(isinstance(word, str) for word in arguments):
        raise ValueError(f'options of {reporter} must be a list of strings, such as ["--leaks"], not {arguments!r}')
    try:
        from heaptide import _native
    except ImportError:  # reported when the function is called: the profiler must not stop a program
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
