"""Messages that Heaptide prints in the user's program: lines on standard error."""

from __future__ import annotations

import os
import sys

_printed: set[str] = set()
_ESCAPES: dict[int, str] = {}


def print_message(message: str) -> None:
    """Print one line on standard error. Never raises: a closed or replaced standard error is ignored.

    Bypasses Python's buffer where possible: the interpreter aborts if it exits while another thread locks the buffer.
    """
    text = printable(message).replace("\n", "\\n")  # a line feed in a name must not start another message
    line = f"heaptide: {text}\n"
    try:
        if sys.__stderr__ is not None and sys.stderr is sys.__stderr__:
            os.write(sys.stderr.fileno(), line.encode(sys.stderr.encoding, "backslashreplace"))
        else:
            sys.stderr.write(line)
            sys.stderr.flush()
    except Exception:  # a program may have replaced standard error by anything
        pass


def print_message_after_fork(message: str) -> None:
    """Print one line on descriptor 2. In a forked child, a replaced standard error may be locked for ever."""
    try:
        os.write(2, f"heaptide: {message}\n".encode("utf-8", "backslashreplace"))
    except OSError:
        pass


def printable(text: str) -> str:
    """Return the text with control characters escaped, because a terminal would interpret them.

    The same characters as in the crate `report`, text/controls.rs: controls, and marks that change the direction.
    """
    if not _ESCAPES:
        controls = [*range(9), *range(0xB, 0x20), *range(0x7F, 0xA0)]
        marks = [0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
        _ESCAPES.update({code: f"\\u{code:04x}" for code in controls + marks})
    return text.translate(_ESCAPES)


def print_message_once(message: str) -> None:
    """Print one line, but not if this process has printed the same line before."""
    if message not in _printed:
        _printed.add(message)
        print_message(message)


def reason(error: BaseException) -> str:
    """Return an exception's message, without the error number of the operating system."""
    if isinstance(error, OSError) and error.strerror:
        name = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror}{name}"
    return str(error) or type(error).__name__
