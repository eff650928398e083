"""Passes the names of Python threads to the recording.

The recording identifies a thread by its kernel ID; only :mod:`threading` knows its Python name. While a recording runs,
Heaptide replaces the method of `threading.Thread` that stores the ID, and the property `name`: both also report the
name. Stopping the recording restores both.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident, get_native_id

from heaptide import _native
from heaptide.containment import contained, report_failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from types import ModuleType
    from typing import Any

_original: Any = None
# The property `threading.Thread.name`, and the one that replaces it.
_name: Any = None
_reporting_name: Any = None
# The module, once it has been imported. When the recording stops, imports may be blocked.
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
    _report_name(self)


def _rename(self: threading.Thread, name: str) -> None:
    _name.__set__(self, name)
    _report_name(self)


def _report_name(thread: threading.Thread) -> None:
    """Report the name of a thread. Never raises.

    Recording continues here, because the interpreter may free an object of the program meanwhile, such as one in its
    attribute cache. This function allocates nothing; a wrapper would allocate a tuple for the arguments.
    """
    try:
        number = thread.native_id
        name = thread.name
        if number is not None and isinstance(name, str):
            _native.name_thread(number, name)
    except Exception as error:
        report_failure(error)


@contained
def report_all() -> None:
    """Report the names of all threads that are alive."""
    for number, name in all_names():
        _native.name_thread(number, name)


def all_names() -> list[tuple[int, str]]:
    """Return the IDs and names of all threads that are alive."""
    names: list[tuple[int, str]] = []
    _collect(names)
    return names


@contained
def _collect(names: list[tuple[int, str]]) -> None:
    threading = _threading or sys.modules.get("threading")
    for thread in [] if threading is None else threading.enumerate():
        # In a forked child, `native_id` of the surviving thread is still its ID in the parent.
        number = get_native_id() if thread.ident == get_ident() else thread.native_id
        name = thread.name
        # A program may set `Thread._name` to any object. Converting it to text could run code of the program.
        if number is not None and isinstance(name, str):
            names.append((number, name))


def install() -> None:
    """Report the names of threads that start or change their name from now on."""
    global _original, _name, _reporting_name
    present = None if _threading is None else getattr(_threading.Thread, "_set_native_id", None)
    if _threading is not None and present is not None and present is not _set_native_id:
        _original = present
        _threading.Thread._set_native_id = _set_native_id
    name = None if _threading is None else vars(_threading.Thread).get("name")
    if _threading is not None and isinstance(name, property) and name is not _reporting_name and name.fset:
        _name = name
        _reporting_name = property(name.fget, _rename, name.fdel, name.__doc__)
        _threading.Thread.name = _reporting_name


@contained
def uninstall() -> None:
    """Restore the original method and property, unless the program has replaced them since."""
    if _threading is not None and getattr(_threading.Thread, "_set_native_id", None) is _set_native_id:
        _threading.Thread._set_native_id = _original
    if _threading is not None and _name is not None and vars(_threading.Thread).get("name") is _reporting_name:
        _threading.Thread.name = _name
