"""Writes every object of this process to a file: ``heaptide.heap_snapshot()``.

The walk creates no Python object and runs no Python code. It pauses the program; the result contains the duration of
the pause. The commands of ``heaptide heap`` read the file.
"""

from __future__ import annotations

import os
import sys

from heaptide import _native, labels, redaction
from heaptide.recording import capture_files, program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class HeapSnapshot:
    """A written heap snapshot. It can be passed wherever a path is expected.

    path               path of the file
    objects            number of Python objects
    bytes              their size, including their buffers
    references         number of references between them
    types              number of their types
    unreachable        number of unreachable objects: garbage that is not collected yet
    paused_seconds     how long the program was paused; ``stood_still`` in earlier versions
    walk_seconds       how long the walk took; with ``fork=True`` the program continued meanwhile
    walker_bytes       memory that the walk needed for its table of objects
    """

    __slots__ = (
        "bytes",
        "objects",
        "path",
        "paused_seconds",
        "references",
        "types",
        "unreachable",
        "walk_seconds",
        "walker_bytes",
    )

    def __init__(self, path: str, numbers: tuple[int, int, int, int, int, int, int, int]) -> None:
        self.path = path
        self.objects, self.references, self.types, self.bytes, self.unreachable = numbers[:5]
        self.paused_seconds = numbers[5] / 1e9
        self.walk_seconds = numbers[6] / 1e9
        self.walker_bytes = numbers[7]

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        size = _native.size_text(self.bytes)
        return (
            f"<heap snapshot {self.path}: {self.objects:,} objects of {self.types:,} types, {size}; "
            f"paused for {self.paused_seconds * 1000:.0f} ms>"
        )

    @property
    def stood_still(self) -> float:
        """The old name of ``paused_seconds``."""
        return self.paused_seconds


# The name of the class in earlier versions.
HeapTaken = HeapSnapshot


class _Instance:
    """An object by which the walk verifies the interpreter's object layout: it must find both attributes."""

    def __init__(self, first: object, second: object) -> None:
        self.first = first
        self.second = second


def known_instance() -> tuple[object, object, object]:
    """Return an instance and the values of its two attributes, by which the walk verifies the object layout."""
    first, second = object(), object()
    return _Instance(first, second), first, second


def heap_snapshot(
    path: str | os.PathLike[str] | None = None,
    *,
    values: bool = False,
    redact: Iterable[str] = (),
    fork: bool = False,
    overwrite: bool = False,
) -> HeapSnapshot:
    """Write every Python object of this process, and all references between them, to a file.

    path       the file; by default ``heaptide-<pid>.<time>.heap`` in the current directory
    values     also write integers and the beginnings of strings; off by default, because they are the program's data
    redact     patterns with ``*`` and ``?``: replaces matching values and dict keys, values under matching names, and
               matching words of the command line; the patterns of HEAPTIDE_REDACT also apply
    fork       walk in a forked copy, so that the program is paused only while it is copied
    overwrite  replace an existing file instead of raising FileExistsError
    """
    hidden = redaction.patterns([redact] if isinstance(redact, str) else redact)
    request = _request(values, hidden, redaction.secrets(), labels.facts())
    target = os.fspath(path) if path is not None else _default_path()
    return HeapSnapshot(target, _take(object(), target, request, fork, overwrite))


def _request(
    values: bool, redact: Iterable[str], secrets: Iterable[str] = (), facts: Iterable[tuple[str, str]] = ()
) -> dict[str, object]:
    return {
        "values": values,
        "redact": list(redact),
        "secrets": list(secrets),
        "command": program.arguments(),
        "executable": sys.executable or "",
        "host": os.uname().nodename,
        "python_version": sys.hexversion,
        "facts": list(facts),
    }


def _take(
    heaptide_token: object, target: str, request: dict[str, object], fork: bool, overwrite: bool
) -> tuple[int, int, int, int, int, int, int, int]:
    # The walk verifies its frame layout by finding `heaptide_token` in this frame. If it does not find the token, it
    # leaves out local variables.
    return _native.take_heap(heaptide_token, known_instance(), target, request, fork=fork, overwrite=overwrite)


def _default_path() -> str:
    return capture_files.unused_path(os.path.abspath(f"heaptide-{os.getpid()}.{capture_files.stamp()}"), ".heap")
