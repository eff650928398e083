"""Blocks and functions whose execution is a job of a tracer."""

from __future__ import annotations

import functools
import inspect
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from heaptide.containment import report_failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from heaptide.leaks.job import Job
    from heaptide.leaks.tracer import JobTracer

F = TypeVar("F", bound="Callable[..., Any]")


class TracedJob:
    """The result of :meth:`JobTracer.job`: a context manager, and a decorator for plain and async functions."""

    def __init__(self, tracer: JobTracer, name: str) -> None:
        self._tracer = tracer
        self._name = name
        self._job: Job | None = None

    def __enter__(self) -> Job:
        self._job = self._tracer.before(self._name)
        return self._job

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        job, self._job = self._job, None
        if job is not None:
            try:  # not `contained`: the arguments of its wrapper would count as memory of the job
                self._tracer.after(job, error)
            except Exception as failure:
                report_failure(failure)

    def __call__(self, function: F) -> F:
        return traced(self._tracer, self._name, function)


class _TracedCall(TracedJob):
    """One call of a decorated function. The function runs even if the call cannot be measured."""

    def __enter__(self) -> Job | None:  # type: ignore[override]
        try:
            return TracedJob.__enter__(self)
        except Exception as failure:
            report_failure(failure)
            return None


def traced(tracer: JobTracer, name: str, function: F) -> F:
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            with _TracedCall(tracer, name):
                return await function(*args, **kwargs)

        return cast("F", call_async)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _TracedCall(tracer, name):
            return function(*args, **kwargs)

    return cast("F", call)
