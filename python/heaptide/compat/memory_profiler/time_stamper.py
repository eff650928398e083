"""memory_profiler's ``TimeStamper``: records when decorated functions start and end, in mprof's format."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from .readings import _get_memory

# Size in MiB and time, when a call starts and when it ends.
_Moments = list[tuple[float, float]]


class TimeStamper:
    """Records the start and the end of every call of decorated functions."""

    def __init__(self, backend: str, include_children: bool = False) -> None:
        self.backend = backend
        self.include_children = include_children
        self.functions: dict[Callable[..., Any], list[_Moments]] = {}
        self.stack: dict[Callable[..., Any], list[int]] = {}
        self.current_stack_level = -1

    def __call__(self, func: Any = None, precision: int | None = None) -> Any:
        """Decorate a function."""
        if func is None:
            return functools.partial(self.__call__, precision=precision)
        if not callable(func):
            raise ValueError("Value must be callable")
        self.add_function(func)
        return functools.wraps(func)(self.wrap_function(func))

    def add_function(self, func: Callable[..., Any]) -> None:
        """Register a function."""
        self.functions.setdefault(func, [])
        self.stack.setdefault(func, [])

    def wrap_function(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that records its calls."""
        if inspect.iscoroutinefunction(func):

            async def coroutine(*args: Any, **kwargs: Any) -> Any:
                with self._recorded(func):
                    return await func(*args, **kwargs)

            return coroutine

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._recorded(func):
                return func(*args, **kwargs)

        return call

    @contextmanager
    def call_on_stack(self, func: Callable[..., Any], *args: Any, **kwds: Any) -> Iterator[Any]:
        """Call a function one level deeper, and yield its result."""
        self.current_stack_level += 1
        self.stack[func].append(self.current_stack_level)
        try:
            yield func(*args, **kwds)
        finally:
            self.current_stack_level -= 1

    def timestamp(self, name: str = "<block>") -> Any:
        """Return a context manager that records a block of code."""

        def block() -> None:
            """Represent the block in the tables."""

        block.__module__ = ""
        block.__name__ = name
        self.add_function(block)
        return self._recorded(block)

    @contextmanager
    def _recorded(self, func: Callable[..., Any]) -> Iterator[None]:
        moments: _Moments = [self._reading(func)]
        self.functions[func].append(moments)
        self.current_stack_level += 1
        self.stack[func].append(self.current_stack_level)
        try:
            yield
        finally:
            self.current_stack_level -= 1
            moments.append(self._reading(func))

    def _reading(self, func: Callable[..., Any]) -> tuple[float, float]:
        try:
            filename = inspect.getsourcefile(func)
        except TypeError:
            filename = "<unknown>"
        size, now = _get_memory(os.getpid(), self.backend, True, self.include_children, filename)
        return size, now

    def show_results(self, stream: TextIO | None = None) -> None:
        """Write a ``FUNC`` line for every call that has ended."""
        out = sys.stdout if stream is None else stream
        for func, calls in self.functions.items():
            name = f"{func.__module__}.{func.__name__}"
            for moments, level in zip(calls, self.stack[func], strict=False):
                if len(moments) == 2:
                    numbers = " ".join(f"{number:.4f}" for moment in moments for number in moment)
                    out.write(f"FUNC {name} {numbers} {level}\n")
