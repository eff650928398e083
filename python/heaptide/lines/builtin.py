"""The builtin ``profile`` in programs that ``mprof run`` starts: it marks the calls of functions in the timeline.

Until the program uses ``profile``, this module imports only builtins and os, because most programs do not use it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# `mprof run` sets this variable. With the value `children`, sizes include child processes.
VARIABLE = "HEAPTIDE_TIMELINE_PROFILE"


class BracketProfile:
    """A decorator that marks the calls of functions in the timeline; ``profile.timestamp(name)`` marks a block."""

    def __init__(self, include_children: bool = False) -> None:
        self._include_children = include_children

    def __call__(self, func: Any = None, precision: Any = None) -> Any:
        """Decorate a function."""
        if func is None:
            return self
        return _wrap(func, self._include_children)

    def timestamp(self, name: str = "<block>") -> Any:
        """Return a context manager that marks a block of code."""
        from heaptide.lines import brackets

        return brackets.timestamp(name)


def install() -> None:
    """Make ``profile`` a builtin of this process, but not of its children."""
    import builtins
    import os

    builtins.profile = BracketProfile(os.environ.pop(VARIABLE, "") == "children")  # type: ignore[attr-defined]


def _wrap(function: Any, include_children: bool) -> Any:
    import functools
    import inspect

    from heaptide.lines import brackets

    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(_wrap(function.__func__, include_children))
    if not callable(function):
        raise ValueError("Value must be callable")
    name = f"{function.__module__}.{function.__name__}"
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            bracket = brackets.begin(name, include_children)
            try:
                return await function(*args, **kwargs)
            finally:
                brackets.end(bracket)

        return coroutine

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bracket = brackets.begin(name, include_children)
        try:
            return function(*args, **kwargs)
        finally:
            brackets.end(bracket)

    return call
