"""Names of Python threads, told to the recording.

The operating system knows a thread by number; its Python name is known to :mod:`threading` alone. While a recording
runs, the method by which a new thread notes its number also tells the name. Nothing else of `threading` is touched, and
the method is put back at the end.
"""

from __future__ import annotations

import threading
from typing import Any

from heaptide import _native

_original: Any = None


def _set_native_id(self: threading.Thread) -> None:
    _original(self)
    if self.native_id is not None:
        _native.name_thread(self.native_id, self.name)


def tell_all() -> None:
    """Tell the names of all threads that are alive."""
    for thread in threading.enumerate():
        if thread.native_id is not None:
            _native.name_thread(thread.native_id, thread.name)


def watch() -> None:
    """Tell the names of threads that begin from now on."""
    global _original
    present = getattr(threading.Thread, "_set_native_id", None)
    if present is not None and present is not _set_native_id:
        _original = present
        threading.Thread._set_native_id = _set_native_id  # type: ignore[attr-defined]


def unwatch() -> None:
    """Put the original method back, unless somebody else has replaced it since."""
    if getattr(threading.Thread, "_set_native_id", None) is _set_native_id:
        threading.Thread._set_native_id = _original  # type: ignore[attr-defined]
