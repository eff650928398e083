"""Files that only this user can read: reports, pages and graphs hold names, source lines and values of the program."""

from __future__ import annotations

import os


def write(path: str | os.PathLike[str], text: str | bytes) -> None:
    """Write a whole file, in place of an existing one. A reader never finds it unfinished; a link is not followed."""
    from heaptide import _native

    _native.write_file(path, text if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace"))


def opener(path: str, flags: int) -> int:
    """Open a file for `open(..., opener=opener)`, and create it for this user only."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
