"""Assigns threads, work of thread pools and gevent's greenlets to the job that started them.

An asyncio task inherits the context of its creator. Threads (by default also on Python 3.14) and greenlets start with
an empty context, so their memory would belong to no job. While accounts are open, Heaptide replaces the functions that
start them. The replacements set the current job in the new context; outside of jobs they only call the original.
"""

from __future__ import annotations

import contextvars
import functools
import sys
import threading
from typing import TYPE_CHECKING, Any

from heaptide.containment import contained

if TYPE_CHECKING:
    from collections.abc import Callable

    Jobs = list[tuple[contextvars.ContextVar[Any], Any]]

_FUTURES = "concurrent.futures.thread"
# Threads of a pool work for the job that submits the work, not for the job that started the thread.
_POOLS = (_FUTURES, "multiprocessing.pool", "gevent.threadpool")


_lock = threading.Lock()
_shared: Inheritance | None = None


def begin(variable: contextvars.ContextVar[Any]) -> None:
    """Make threads, submitted work and greenlets inherit the value of a variable."""
    global _shared
    with _lock:
        if _shared is None:
            _shared = Inheritance()
        _shared.variables = [*_shared.variables, variable]


def end(variable: contextvars.ContextVar[Any]) -> None:
    """Undo one :func:`begin`; the last one restores all functions."""
    global _shared
    with _lock:
        if _shared is None:
            return
        _shared.variables = [other for other in _shared.variables if other is not variable]
        if not _shared.variables:
            _shared.end()
            _shared = None


def update() -> bool:
    """Adapt newly imported modules that start threads or greenlets.

    Returns False if another thread is still importing one of them, so that a later call must adapt it.
    """
    shared = _shared
    return shared is None or shared.update()


class Inheritance:
    """Lets threads, submitted work and greenlets inherit the current jobs, until :meth:`end`."""

    def __init__(self) -> None:
        # Never mutated, only replaced, because other threads iterate over it.
        self.variables: list[contextvars.ContextVar[Any]] = []
        self._undo: dict[str, Callable[[], None]] = {}
        self._replace(threading.Thread, "start", self._start_thread)

    def update(self) -> bool:
        """Adapt thread pools and greenlets if their modules have been imported meanwhile.

        Returns False if a module is incomplete, because another thread is importing it.
        """
        pools, greenlets = sys.modules.get(_FUTURES), sys.modules.get("gevent.greenlet")
        executor = getattr(pools, "ThreadPoolExecutor", None)
        greenlet: Any = getattr(greenlets, "Greenlet", None)
        if "submit" not in self._undo and executor is not None:
            self._replace(executor, "submit", self._submit_work)
        if "gevent" not in self._undo and hasattr(greenlet, "add_spawn_callback"):
            greenlet.add_spawn_callback(self._start_greenlet)
            self._undo["gevent"] = lambda: greenlet.remove_spawn_callback(self._start_greenlet)
        return (pools is None or executor is not None) and (greenlets is None or greenlet is not None)

    def end(self) -> None:
        """Restore the functions. Those that the program has replaced meanwhile remain, without effect for jobs."""
        while self._undo:
            self._undo.popitem()[1]()

    def _replace(self, owner: Any, name: str, by: Callable[..., Any]) -> None:
        # gevent replaces threads by a subclass.
        owner = next((base for base in owner.__mro__ if name in base.__dict__), owner)
        original: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            jobs = self._current() if self._undo else None
            return by(original, jobs, *args, **kwargs) if jobs else original(*args, **kwargs)

        def undo() -> None:
            if owner.__dict__.get(name) is call:
                setattr(owner, name, original)

        setattr(owner, name, call)
        self._undo[name] = undo

    def _current(self) -> Jobs:
        """Return the variables that have a value in this context, and their values."""
        values = [(variable, variable.get(None)) for variable in self.variables]
        return [(variable, job) for variable, job in values if job is not None]

    def _start_thread(self, start: Callable[..., Any], jobs: Jobs, thread: Any) -> None:
        self._pass_on(jobs, thread)
        try:
            start(thread)
        except BaseException:
            _forget(thread)
            raise

    @contained
    def _pass_on(self, jobs: Jobs, thread: Any) -> None:
        target = getattr(thread, "_target", None)
        if getattr(target, "__module__", None) in _POOLS:
            return
        if hasattr(thread, "_context"):  # 3.14 and later
            if thread._context is None:
                thread._context = _context_of(jobs)
        else:
            thread._bootstrap_inner = functools.partial(self._begin_thread, jobs, thread)

    def _begin_thread(self, jobs: Jobs, thread: Any) -> None:
        _forget(thread)
        _set(jobs)
        # Call the method of the class: if the thread's attribute still exists, it would call this function again.
        type(thread)._bootstrap_inner(thread)

    def _submit_work(
        self,
        submit: Callable[..., Any],
        jobs: Jobs,
        executor: Any,
        function: Callable[..., Any],
        /,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        return submit(executor, _work, jobs, function, *args, **kwargs)

    @contained
    def _start_greenlet(self, greenlet: Any) -> None:
        jobs = self._current()
        if jobs and greenlet.gr_context is None:
            greenlet.gr_context = _context_of(jobs)


def _set(jobs: Jobs) -> None:
    for variable, job in jobs:
        variable.set(job)


def _context_of(jobs: Jobs) -> contextvars.Context:
    context = contextvars.Context()
    context.run(_set, jobs)
    return context


def _work(jobs: Jobs, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    before = [(variable, variable.set(job)) for variable, job in jobs]
    try:
        return function(*args, **kwargs)
    finally:
        for variable, token in before:
            variable.reset(token)


@contained
def _forget(thread: Any) -> None:
    thread.__dict__.pop("_bootstrap_inner", None)
