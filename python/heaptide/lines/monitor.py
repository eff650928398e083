"""Line events of one call: which code objects belong to the call, and how the interpreter reports their lines.

From Python 3.12 on, ``sys.monitoring`` reports the lines of these code objects only, so other code is not slowed down.
In older versions, a native trace function runs in addition to the thread's own. The native module counts the events.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any

from heaptide import _native
from heaptide.containment import contained

if TYPE_CHECKING:
    from types import TracebackType

    from heaptide._native import LineWatch

BACKENDS = {"psutil": "resident", "posix": "resident", "psutil_pss": "proportional", "psutil_uss": "unique"}

_SUSPENDS = 0x20 | 0x80 | 0x200  # CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR
_tool: int | None = None


def check_backend(name: str) -> None:
    """Raise ValueError if there is no such backend."""
    if name not in BACKENDS and name != "tracemalloc":
        known = ", ".join([*BACKENDS, "tracemalloc"])
        raise ValueError(f"unknown backend {name!r}: use one of {known}")


def all_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function, and of all functions and comprehensions written within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from all_codes(constant)


class Watched:
    """A function whose line events can be counted."""

    def __init__(
        self,
        code: CodeType,
        backend: str,
        codes: list[CodeType] | None = None,
        reading: Callable[[], int] | None = None,
    ) -> None:
        """Prepare a function. By default `codes` is all code within it, and the backend supplies the `reading`."""
        check_backend(backend)
        self.code = code
        within = list(all_codes(code)) if codes is None else codes
        self._codes = [(each, each.co_firstlineno, bool(each.co_flags & _SUSPENDS)) for each in within]
        self._backend: str | Callable[[], int] = _traced_bytes if backend == "tracemalloc" else BACKENDS[backend]
        if reading is not None and backend != "tracemalloc":
            self._backend = reading
        if backend == "tracemalloc":
            import tracemalloc

            if not tracemalloc.is_tracing():
                tracemalloc.start()

    def watch(self, from_nothing: bool = True) -> LineWatch:
        """Create the table of one call. If `from_nothing`, its first increment is the size of the process."""
        return _native.LineWatch(self._codes, self.code.co_firstlineno, self._backend, from_nothing)

    def entered(self, watch: LineWatch) -> Entered:
        """Return a context manager that counts the lines of this thread."""
        return Entered(watch, self._codes)


class Entered:
    """A context manager that counts the lines of this thread."""

    def __init__(self, watch: LineWatch, codes: list[tuple[CodeType, int, bool]]) -> None:
        self._watch = watch
        self._codes = codes

    def __enter__(self) -> None:
        self._is_counting = self._enter() is True

    @contained
    def _enter(self) -> bool:
        _listen(self._codes)
        self._watch.enter()
        return True

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_counting:
            self._leave()

    @contained
    def _leave(self) -> None:
        self._watch.leave()
        _stop_listening()


def _traced_bytes() -> int:
    import tracemalloc

    return tracemalloc.get_traced_memory()[0]


if sys.version_info >= (3, 12):
    _EVENTS = sys.monitoring.events
    _CALLBACKS: list[tuple[int, Any]] = [
        (_EVENTS.LINE, _native.on_line),
        (_EVENTS.PY_START, _native.on_start),
        (_EVENTS.PY_RESUME, _native.on_start),
        (_EVENTS.PY_RETURN, _native.on_return),
        (_EVENTS.PY_YIELD, _native.on_yield),
    ]
    _ALL_EVENTS = 0
    for _event, _ in _CALLBACKS:
        _ALL_EVENTS |= _event

    def _tool_id() -> int:
        """Return Heaptide's tool ID in `sys.monitoring`; the first call takes a free one."""
        global _tool
        if _tool is None:
            # 3 and 4 are unassigned; the others are reserved for certain types of tools.
            for number in (4, 3, 5, 2):
                if sys.monitoring.get_tool(number) is None:
                    sys.monitoring.use_tool_id(number, "heaptide")
                    for event, callback in _CALLBACKS:
                        sys.monitoring.register_callback(number, event, callback)
                    _tool = number
                    break
            else:
                raise RuntimeError("all tool IDs of sys.monitoring are taken: stop another profiler to report lines")
        return _tool

    def _listen(codes: list[tuple[CodeType, int, bool]]) -> None:
        tool = _tool_id()
        # The events remain enabled: the function may be called again, and an event outside a call costs very little.
        for code, _, _ in codes:
            if sys.monitoring.get_local_events(tool, code) != _ALL_EVENTS:
                sys.monitoring.set_local_events(tool, code, _ALL_EVENTS)

    def _stop_listening() -> None:
        pass

else:

    def _trace(frame: object, event: str, argument: object) -> None:
        """Represent the native trace function, because `sys.gettrace()` must return a Python object."""

    def _listen(codes: list[tuple[CodeType, int, bool]]) -> None:
        present = sys.gettrace()
        if not _native.set_line_trace(_trace, None if present is _trace else present):
            raise RuntimeError("the interpreter refused a trace function, so lines are not reported: check audit hooks")

    def _stop_listening() -> None:
        _native.unset_line_trace()
