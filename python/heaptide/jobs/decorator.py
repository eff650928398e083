"""Decorates functions whose calls are jobs: plain, async, generator and async generator functions.

A generator's job is current only while the generator's body runs, not while its consumer runs.
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
    from typing import TypeVar

    from heaptide.jobs.job import Job

    F = TypeVar("F", bound=Callable[..., Any])

# The wrappers refer only to objects that cloudpickle and similar libraries can copy, such as the job and the function.


def decorate(job: Job, function: F) -> F:
    """Return a function of the same type, name and signature. Each of its calls is a new job like `job`."""
    if inspect.isasyncgenfunction(function):
        return cast("F", _async_generator(job, function))
    if inspect.isgeneratorfunction(function):
        return cast("F", _generator(job, function))
    if inspect.iscoroutinefunction(function):
        return cast("F", _async(job, function))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return job.run_another(function, args, kwargs)

    return cast("F", call)


def _async(job: Job, function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
    if sys.version_info < (3, 11):

        @functools.wraps(function)
        async def run_call(*args: Any, **kwargs: Any) -> Any:
            with job.call():
                return await function(*args, **kwargs)

        return run_call
    n_required = _n_required(function)

    @functools.wraps(function)
    async def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with job.call():
            return await function(*args, **kwargs)

    # Missing arguments fail at the call, as without the decorator. uvicorn, for example, calls an application without
    # arguments to learn whether it is a factory.
    @functools.wraps(function)
    def call_async(*args: Any, **kwargs: Any) -> Any:
        if len(args) + len(kwargs) < n_required:
            return function(*args, **kwargs)
        return run(args, kwargs)

    return _with_flag(call_async, inspect.CO_COROUTINE)


def _n_required(function: Callable[..., Any]) -> int:
    """Return the number of parameters without defaults."""
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters.values()
    return sum(it.kind in named and it.default is inspect.Parameter.empty for it in parameters)


def _with_flag(function: Any, flag: int) -> Any:
    """Make `inspect` treat a plain function as a coroutine function or an asynchronous generator function.

    `inspect` reads the flag. The interpreter does not: since Python 3.11, an instruction of the code makes the
    coroutine or the generator, and this code has none.
    """
    code = function.__code__
    function.__code__ = code.replace(co_flags=code.co_flags | flag)
    return function


def _generator(job: Job, function: Callable[..., Generator[Any, Any, Any]]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call_generator(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        return (yield from job.steps(function, args, kwargs))

    return call_generator


def _async_generator(job: Job, function: Callable[..., AsyncGenerator[Any, Any]]) -> Callable[..., Any]:
    if sys.version_info < (3, 11):
        return _async_generator_before_3_11(job, function)

    @functools.wraps(function)
    def call_async_generator(*args: Any, **kwargs: Any) -> Any:
        return job.async_steps(function, args, kwargs)

    return _with_flag(call_async_generator, inspect.CO_ASYNC_GENERATOR)


def _async_generator_before_3_11(
    job: Job, function: Callable[..., AsyncGenerator[Any, Any]]
) -> Callable[..., AsyncGenerator[Any, Any]]:
    @functools.wraps(function)
    async def call_async_generator(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        steps = job.async_steps(function, args, kwargs)
        step = steps.__anext__()
        while True:
            try:
                produced = await step
            except StopAsyncIteration:
                return
            try:
                sent = yield produced
            except GeneratorExit:
                await steps.aclose()
                raise
            except BaseException as thrown:
                step = steps.athrow(thrown)
            else:
                step = steps.asend(sent)

    return call_async_generator
