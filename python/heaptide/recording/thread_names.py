"""Passes the names of Python threads to the recording.

The operating system knows a thread by its ID; only :mod:`threading` knows its Python name. While a recording runs, the
method of `threading.Thread` that stores the ID also reports the name. Stopping the recording restores the method.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident, get_native_id

from heaptide import _native
from heaptide.containment import contained

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from types import ModuleType
    from typing import Any

_original: Any = None
# The module, once it has been imported. When the recording stops, it may no longer be possible to import it.
_threading: ModuleType | None = None


def prepare() -> None:
    """Import :mod:`threading` before the recording starts, so that the import is not recorded.

    Does nothing if importing it now would make it treat this thread as the main thread.
    """
    global _threading
    _threading = _threading or sys.modules.get("threading")
    if _threading is None and get_native_id() == os.getpid():
        import threading

        _threading = threading


def _set_native_id(self: threading.Thread) -> None:
    _original(self)
    _report_start(self)


@contained
def _report_start(thread: threading.Thread) -> None:
    if thread.native_id is not None:
        _report(thread.native_id, thread)


@contained
def report_all() -> None:
    """Report the names of all threads that are alive."""
    threading = _threading or sys.modules.get("threading")
    for thread in [] if threading is None else threading.enumerate():
        # In a forked child the surviving thread still has the ID that it had in the parent.
        number = get_native_id() if thread.ident == get_ident() else thread.native_id
        if number is not None:
            _report(number, thread)


def _report(number: int, thread: threading.Thread) -> None:
    name = thread.name
    # A program may set `Thread._name` to anything. The text of another object may be the program's own code.
    if isinstance(name, str):
        _native.name_thread(number, name)


def install() -> None:
    """Report the names of threads that start from now on."""
    global _original
    present = None if _threading is None else getattr(_threading.Thread, "_set_native_id", None)
    if _threading is not None and present is not None and present is not _set_native_id:
        _original = present
        _threading.Thread._set_native_id = _set_native_id


@contained
def uninstall() -> None:
    """Restore the original method, unless the program has replaced it since."""
    if _threading is not None and getattr(_threading.Thread, "_set_native_id", None) is _set_native_id:
        _threading.Thread._set_native_id = _original
