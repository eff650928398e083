"""The accounts of jobs in this process. The first tracer opens them, the last one closes them.

A context variable contains the job that allocations belong to; each thread, greenlet and asyncio task has its own
value. The native hooks read it from memory, if a self-test in this module has shown that they read it correctly.
"""

from __future__ import annotations

import contextvars
import threading
import warnings
from typing import Any

from heaptide import _native
from heaptide.leaks import inheritance

_lock = threading.Lock()
_n_users = 0
_has_learnt_contexts = False
_is_read = False

# The job that runs in this context.
current: contextvars.ContextVar[Any] = contextvars.ContextVar("heaptide_job")


def open_accounts() -> None:
    """Open the accounts, unless another tracer has opened them."""
    global _n_users
    with _lock:
        if _n_users == 0:
            learn_contexts()
            warning = _native.jobs_start(current)
            if warning is not None:
                warnings.warn(f"{warning}; the lines that allocate are not shown", RuntimeWarning, stacklevel=4)
            inheritance.begin(current)
        _n_users += 1


def close_accounts() -> None:
    """Undo one :func:`open_accounts`; the last one closes the accounts."""
    global _n_users
    with _lock:
        if _n_users > 0:
            _n_users -= 1
            if _n_users == 0:
                inheritance.end(current)
                _native.jobs_stop()


def update_inheritance() -> None:
    """Adapt newly imported modules that start threads or greenlets."""
    inheritance.update()


def are_contexts_read() -> bool:
    """Return whether the hooks can read context variables; if not, jobs are distinguished by thread."""
    return _is_read


def learn_contexts() -> None:
    """Find the interpreter's contexts in memory, and test whether the hooks read their variables correctly."""
    global _has_learnt_contexts, _is_read
    if _has_learnt_contexts:
        return
    _has_learnt_contexts = True
    contexts = [contextvars.Context() for _ in range(3)]
    n_candidates = [context.run(_native.learn_context, context) for context in contexts]
    others: list[contextvars.ContextVar[int]] = [contextvars.ContextVar(f"heaptide_{i}") for i in range(80)]
    is_found = n_candidates[-1] == 1 and all(
        contextvars.Context().run(_reads_right, others[:n_others], late)
        for n_others in (0, 1, 10, 20, 80)
        for late in (False, True)
    )
    _is_read = is_found
    _native.trust_contexts(is_found)


def _reads_right(others: list[contextvars.ContextVar[int]], late: bool) -> bool:
    """Compare the value that the hooks read with Python's, in a context with some other variables."""
    wanted = contextvars.ContextVar[object]("heaptide_wanted")
    value = object()
    if _native.context_value(wanted) != 0:
        return False
    if not late:
        wanted.set(value)
    for other in others:
        other.set(1)
    if late:
        wanted.set(value)
    copied = contextvars.copy_context()
    return all(_native.context_value(wanted) == id(value) for _ in range(2)) and copied.run(
        lambda: _native.context_value(wanted) == id(value)
    )


def all_types() -> list[type]:
    """Return every type, in an order that does not depend on addresses."""
    found: dict[type, None] = {object: None}
    waiting: list[type] = [object]
    subtype: type
    while waiting:
        for subtype in type.__subclasses__(waiting.pop()):
            if subtype not in found:
                found[subtype] = None
                waiting.append(subtype)
    return list(found)


def type_name(type_: type) -> str:
    """Return the name as users write it: without the module for built-in types."""
    module = type.__getattribute__(type_, "__module__")
    name = type.__getattribute__(type_, "__qualname__")
    return name if module == "builtins" or not isinstance(module, str) else f"{module}.{name}"
