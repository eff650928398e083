"""Writes files that only this user can read, because reports, pages and graphs contain data of the program."""

from __future__ import annotations

import os


def write(path: str | os.PathLike[str], text: str | bytes) -> None:
    """Write a file atomically, replacing an existing one. Does not follow a symbolic link."""
    from heaptide import _native

    try:
        _native.write_file(path, text if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        # The native module's message ends with the error number, and does not name the file.
        number = str(error).rpartition("(os error ")[2].removesuffix(")")
        if error.errno is not None or not number.isdecimal():
            raise
        raise OSError(int(number), os.strerror(int(number)), os.fspath(path)) from None


def copy(source: str, target: str) -> None:
    """Copy a file to a new one, also while another process writes to the source."""
    with open(source, "rb") as old, open(target, "xb", opener=opener) as new:
        while piece := old.read(1 << 20):
            new.write(piece)


def opener(path: str, flags: int) -> int:
    """Open a file for `open(..., opener=opener)`, and create it for this user only."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
