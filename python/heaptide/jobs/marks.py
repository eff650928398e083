"""The current job: a context variable that the hooks of a recording read from memory.

The value of the variable is the job's *token*: eight bytes by which the hooks identify the job. When the job ends, the
native module sets them to zero, so that code which still runs in a copy of the context belongs to no job.

:class:`heaptide.leaks.JobTracer` has another variable, so that both can nest in any order.
"""

from __future__ import annotations

import contextvars
import os
import sys
import threading
from typing import TYPE_CHECKING

from heaptide import _native, redaction
from heaptide.containment import contained
from heaptide.leaks import accounts, inheritance

if TYPE_CHECKING:
    from collections.abc import Callable

# The token of the job that runs in this context.
current_token: contextvars.ContextVar[bytes] = contextvars.ContextVar("heaptide_job_token")

_lock = threading.Lock()
# Patterns and secrets that must not be stored.
_hidden: tuple[list[str], list[str]] = ([], [])
_is_prepared = False


def prepare(wants_records: Callable[[], bool]) -> None:
    """Prepare the process for its first job. Later calls adapt newly imported modules that start threads."""
    global _is_prepared
    with _lock:
        if not _is_prepared:
            _is_prepared = True
            _prepare(wants_records)
            wants_records()  # reads the settings, which must not count as memory of the program
        n_modules = len(sys.modules)
        if inheritance.update():
            _native.note_searched_modules(n_modules)


@contained
def _prepare(wants_records: Callable[[], bool]) -> None:
    global _hidden
    accounts.learn_contexts()
    _hidden = (redaction.patterns(), redaction.secrets())
    _native.prepare_job_marks(
        current_token,
        bytes(8),
        modules=sys.modules,
        are_contexts_read=accounts.are_contexts_read(),
        redacted=redacted if any(_hidden) else None,
        wants_records=wants_records,
    )
    inheritance.begin(current_token)


def current_number() -> int:
    """Return the number of the job that runs here; 0 if there is none."""
    token = current_token.get(None)
    return 0 if token is None else int.from_bytes(token[:4], "little")


def redacted(key: str | None, labels: list[tuple[str, str]]) -> tuple[str | None, list[tuple[str, str]]]:
    """Return key and labels with secret values hidden. The setting `redact` is read when the first job begins."""
    patterns, secrets = _hidden

    def shown(word: str) -> str:
        return _native.redact_command([word.encode("utf-8", "replace").decode()], patterns, secrets)[0]

    if key is not None:
        key = shown(f"key={key}").partition("=")[2]
    return key, [(name, shown(f"{name}={value}").partition("=")[2]) for name, value in labels]


def native_id(thread: int) -> int:
    """Return the kernel's ID of a thread; 0 if it is unknown."""
    known = getattr(threading, "_active", {}).get(thread)
    # In a forked child, `native_id` of the surviving thread is still its ID in the parent.
    if known is not None and known is getattr(threading, "_main_thread", None):
        return os.getpid()
    return getattr(known, "native_id", None) or 0
