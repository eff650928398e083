"""Every object of this process, written into a file: ``heaptide.heap_snapshot()``.

The walk makes no Python object and runs no Python code; while it looks, the program stands still, and how long is
said afterwards. ``heaptide heap show`` and its neighbours read the file.
"""

from __future__ import annotations

import os
import sys
import time

from heaptide import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class HeapTaken:
    """A snapshot that was written: where it is, and what is in it.

    path               the file, as text; the object itself can be passed wherever a path is expected
    objects            how many Python objects there were
    bytes              what they take, buffers beside them included
    references         how many references between them
    types              how many types they have
    unreachable        how many of them no root leads to: garbage that waits for the collector
    stood_still        how long the program stood still, in seconds
    walk_seconds       how long the walk took; with ``fork=True`` the program went on meanwhile
    walker_bytes       what the walk needed for its table of objects
    """

    __slots__ = (
        "bytes",
        "objects",
        "path",
        "references",
        "stood_still",
        "types",
        "unreachable",
        "walk_seconds",
        "walker_bytes",
    )

    def __init__(self, path: str, numbers: tuple[int, int, int, int, int, int, int, int]) -> None:
        self.path = path
        self.objects, self.references, self.types, self.bytes, self.unreachable = numbers[:5]
        self.stood_still = numbers[5] / 1e9
        self.walk_seconds = numbers[6] / 1e9
        self.walker_bytes = numbers[7]

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return (
            f"<heap snapshot {self.path}: {self.objects:,} objects of {self.types:,} types, {self.bytes:,} bytes; "
            f"stood still for {self.stood_still * 1000:.0f} ms>"
        )


class _Instance:
    """Its attributes are read back by the walk before it trusts what it knows of this interpreter."""

    def __init__(self, first: object, second: object) -> None:
        self.first = first
        self.second = second


def known_instance() -> tuple[object, object, object]:
    """An instance and the values of its two attributes, for the walk to read back."""
    first, second = object(), object()
    return _Instance(first, second), first, second


def heap_snapshot(
    path: str | os.PathLike[str] | None = None,
    *,
    values: bool = False,
    redact: Iterable[str] = (),
    fork: bool = False,
    overwrite: bool = False,
) -> HeapTaken:
    """Write down every Python object of this process, and who refers to whom.

    path       the file; ``heaptide-<pid>.<time>.heap`` in the working folder if it is not given
    values     keep short texts of strings and whole numbers, too; off, because values are the program's data
    redact     patterns with ``*`` and ``?``: values, and keys of dicts, that match are replaced; so are values under
               a name that matches
    fork       walk in a forked copy, so that the program stands still only while it is copied
    overwrite  replace a file of this name
    """
    request = _request(values, redact)
    target = os.fspath(path) if path is not None else _free_name()
    return HeapTaken(target, _take(object(), target, request, fork, overwrite))


def _request(values: bool, redact: Iterable[str]) -> dict[str, object]:
    return {
        "values": values,
        "redact": [redact] if isinstance(redact, str) else list(redact),
        "command": list(getattr(sys, "argv", None) or ()),
        "executable": sys.executable or "",
        "host": os.uname().nodename,
        "python_version": sys.hexversion,
    }


def _take(
    heaptide_token: object, target: str, request: dict[str, object], fork: bool, overwrite: bool
) -> tuple[int, int, int, int, int, int, int, int]:
    # The walk looks for `heaptide_token` in this very frame: if it is not where it should be, locals are left out.
    return _native.take_heap(heaptide_token, known_instance(), target, request, fork=fork, overwrite=overwrite)


def _free_name() -> str:
    stem = f"heaptide-{os.getpid()}.{time.strftime('%Y%m%dT%H%M%S')}"
    name, number = f"{stem}.heap", 1
    while os.path.lexists(name):
        number += 1
        name = f"{stem}-{number}.heap"
    return os.path.abspath(name)
