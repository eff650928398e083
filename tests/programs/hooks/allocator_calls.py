"""Calls hooked functions from Python, through the library or the extension module that the command line names."""

import ctypes
import sys
from pathlib import Path
from typing import NamedTuple

LIBRARY = Path(sys.argv[1])


class Answer(NamedTuple):
    result: int
    stored: int
    error: int


class _Answer(ctypes.Structure):
    _fields_ = [("result", ctypes.c_size_t), ("stored", ctypes.c_size_t), ("error", ctypes.c_int)]


_ARGUMENTS = ctypes.c_size_t * 5

if LIBRARY.name.startswith("allocator_calls_module"):
    sys.path.insert(0, str(LIBRARY.parent))
    from allocator_calls_module import call as _call
    from allocator_calls_module import errno_changes
else:
    _library = ctypes.CDLL(str(LIBRARY))
    errno_changes = _library.errno_changes
    errno_changes.restype = ctypes.c_size_t
    errno_changes.argtypes = [ctypes.c_size_t, ctypes.c_int]
    _library.call.restype = None
    _function = _library.call

    def _call(name, error_before, *arguments):
        answer = _Answer()
        _function(name.encode(), _ARGUMENTS(*arguments), error_before, ctypes.byref(answer))
        return answer.result, answer.stored, answer.error


def ask(name, *arguments, error_before=0):
    """Call a function and return its whole answer."""
    return Answer(*_call(name, error_before, *[argument % 2**64 for argument in arguments]))


def call(name, *arguments):
    """Call a function and return its result, for most functions the address of a block."""
    return ask(name, *arguments).result
