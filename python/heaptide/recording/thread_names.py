"""Names of Python threads, told to the recording.

The operating system knows a thread by number; its Python name is known to :mod:`threading` alone. While a recording
runs, the method by which a new thread notes its number also tells the name. Nothing else of `threading` is touched, and
the method is put back at the end.
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
    """The module, if it may be had: whichever thread imports it first is the main thread to it for ever."""
    if "threading" not in sys.modules and get_native_id() != os.getpid():
        return None
    import threading

    return threading


def prepare() -> None:
    """Load what is needed while a recording runs: what is loaded before it begins is not in the capture."""
    _threading()


def _set_native_id(self: threading.Thread) -> None:
    _original(self)
    if self.native_id is not None:
        _native.name_thread(self.native_id, self.name)


def tell_all() -> None:
    """Tell the names of all threads that are alive."""
    threading = _threading()
    for thread in [] if threading is None else threading.enumerate():
        # In a forked child the thread that lives on still has the number it had in the parent.
        number = get_native_id() if thread.ident == get_ident() else thread.native_id
        if number is not None:
            _native.name_thread(number, thread.name)


def watch() -> None:
    """Tell the names of threads that begin from now on."""
    global _original
    threading = _threading()
    present = None if threading is None else getattr(threading.Thread, "_set_native_id", None)
    if threading is not None and present is not None and present is not _set_native_id:
        _original = present
        threading.Thread._set_native_id = _set_native_id


def unwatch() -> None:
    """Put the original method back, unless somebody else has replaced it since."""
    threading = sys.modules.get("threading")
    if threading is not None and getattr(threading.Thread, "_set_native_id", None) is _set_native_id:
        threading.Thread._set_native_id = _original
