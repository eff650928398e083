"""What Heaptide says inside somebody else's program: lines on standard error, each once."""

from __future__ import annotations

import os
import sys

_said: set[str] = set()


def say(message: str) -> None:
    """Write one line; a standard error that is closed or gone is nobody's problem.

    Past Python's own buffer where that is possible: an interpreter that ends while a thread has that locked aborts.
    """
    line = f"heaptide: {message}\n"
    try:
        if sys.__stderr__ is not None and sys.stderr is sys.__stderr__:
            os.write(sys.stderr.fileno(), line.encode(sys.stderr.encoding, "backslashreplace"))
        else:
            sys.stderr.write(line)
            sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass


def say_once(message: str) -> None:
    """The same, but never a second time in this process."""
    if message not in _said:
        _said.add(message)
        say(message)


def reason(error: BaseException) -> str:
    """What an exception says, without the number in front that an error of the operating system has."""
    if isinstance(error, OSError) and error.strerror:
        name = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror}{name}"
    return str(error) or type(error).__name__
