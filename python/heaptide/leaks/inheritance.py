"""Assigns threads, work of thread pools and gevent's greenlets to the job that started them.

An asyncio task inherits the context of its creator. Threads (by default also on Python 3.14) and greenlets start with
an empty context, so their memory would belong to no job. While accounts are open, functions that start them are
replaced by ones that pass on the current job; outside of jobs these only call the original.
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

_FUTURES = "concurrent.futures.thread"
# Threads of a pool work for the job that submits the work, not for the one that happened to start the thread.
_POOLS = (_FUTURES, "multiprocessing.pool", "gevent.threadpool")


class Inheritance:
    """Lets threads, submitted work and greenlets inherit the current job, until :meth:`end`."""

    def __init__(self, job: contextvars.ContextVar[Any]) -> None:
        self._job = job
        self._undo: dict[str, Callable[[], None]] = {}
        self._start = self._replace(threading.Thread, "start", self._start_thread)
        self._submit: Callable[..., Any] | None = None

    def update(self) -> None:
        """Include thread pools and greenlets if their modules have been imported meanwhile."""
        if self._submit is None and _FUTURES in sys.modules:
            self._submit = self._replace(sys.modules[_FUTURES].ThreadPoolExecutor, "submit", self._submit_work)
        if "gevent" not in self._undo and "gevent.greenlet" in sys.modules:
            greenlet = sys.modules["gevent.greenlet"].Greenlet
            greenlet.add_spawn_callback(self._start_greenlet)
            self._undo["gevent"] = lambda: greenlet.remove_spawn_callback(self._start_greenlet)

    def end(self) -> None:
        """Restore the functions, except those that the program has replaced since; their wrappers are then inactive."""
        while self._undo:
            self._undo.popitem()[1]()

    def _replace(self, owner: Any, name: str, by: Callable[..., Any]) -> Callable[..., Any]:
        # gevent replaces threads by a subclass.
        owner = next((base for base in owner.__mro__ if name in base.__dict__), owner)
        original: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            job = self._job.get(None) if self._undo else None
            return original(*args, **kwargs) if job is None else by(job, *args, **kwargs)

        def undo() -> None:
            if owner.__dict__.get(name) is call:
                setattr(owner, name, original)

        setattr(owner, name, call)
        self._undo[name] = undo
        return original

    def _start_thread(self, job: Any, thread: Any) -> None:
        self._pass_on(job, thread)
        try:
            self._start(thread)
        except BaseException:
            _forget(thread)
            raise

    @contained
    def _pass_on(self, job: Any, thread: Any) -> None:
        target = getattr(thread, "_target", None)
        if getattr(target, "__module__", None) in _POOLS:
            return
        if hasattr(thread, "_context"):  # 3.14 and later
            if thread._context is None:
                thread._context = self._context_of(job)
        else:
            thread._bootstrap_inner = functools.partial(self._begin_thread, job, thread)

    def _begin_thread(self, job: Any, thread: Any) -> None:
        _forget(thread)
        self._job.set(job)
        # The class's method: the attribute of the thread would call this function again, should it still exist.
        type(thread)._bootstrap_inner(thread)

    def _submit_work(self, job: Any, executor: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        assert self._submit is not None
        return self._submit(executor, self._work, job, function, *args, **kwargs)

    def _work(self, job: Any, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        before = self._job.set(job)
        try:
            return function(*args, **kwargs)
        finally:
            self._job.reset(before)

    @contained
    def _start_greenlet(self, greenlet: Any) -> None:
        job = self._job.get(None)
        if job is not None and greenlet.gr_context is None:
            greenlet.gr_context = self._context_of(job)

    def _context_of(self, job: Any) -> contextvars.Context:
        context = contextvars.Context()
        context.run(self._job.set, job)
        return context


@contained
def _forget(thread: Any) -> None:
    thread.__dict__.pop("_bootstrap_inner", None)
