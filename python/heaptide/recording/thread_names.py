"""Passes the names of Python threads to the recording.

The operating system knows a thread by its ID; only :mod:`threading` knows its Python name. While a recording runs, the
method of `threading.Thread` that stores the ID also reports the name. Stopping the recording restores the method.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident, get_native_id

from heaptide import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from types import ModuleType
    from typing import Any

_original: Any = None


def _threading() -> ModuleType | None:
    """Return the module; None if importing it now would make it treat this thread as the main thread."""
    if "threading" not in sys.modules and get_native_id() != os.getpid():
        return None
    import threading

    return threading


def prepare() -> None:
    """Import :mod:`threading` before the recording starts, so that the import is not recorded."""
    _threading()


def _set_native_id(self: threading.Thread) -> None:
    _original(self)
    if self.native_id is not None:
        _native.name_thread(self.native_id, self.name)


def report_all() -> None:
    """Report the names of all threads that are alive."""
    threading = _threading()
    for thread in [] if threading is None else threading.enumerate():
        # In a forked child the surviving thread still has the ID that it had in the parent.
        number = get_native_id() if thread.ident == get_ident() else thread.native_id
        if number is not None:
            _native.name_thread(number, thread.name)


def install() -> None:
    """Report the names of threads that start from now on."""
    global _original
    threading = _threading()
    present = None if threading is None else getattr(threading.Thread, "_set_native_id", None)
    if threading is not None and present is not None and present is not _set_native_id:
        _original = present
        threading.Thread._set_native_id = _set_native_id


def uninstall() -> None:
    """Restore the original method, unless the program has replaced it since."""
    threading = sys.modules.get("threading")
    if threading is not None and getattr(threading.Thread, "_set_native_id", None) is _set_native_id:
        threading.Thread._set_native_id = _original
