"""Writes files that only this user can read, because reports, pages and graphs contain data of the program."""

from __future__ import annotations

import os


def write(path: str | os.PathLike[str], text: str | bytes) -> None:
    """Write a file atomically, replacing an existing one. Does not follow a symbolic link."""
    from heaptide import _native

    _native.write_file(path, text if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace"))


def copy(source: str, target: str) -> None:
    """Copy a file to a new one, also while another process writes to the source."""
    with open(source, "rb") as old, open(target, "xb", opener=opener) as new:
        while piece := old.read(1 << 20):
            new.write(piece)


def opener(path: str, flags: int) -> int:
    """Open a file for `open(..., opener=opener)`, and create it for this user only."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
