"""Renders reports of captures with the heaptide command, in another process, and caches the last few."""

from __future__ import annotations

import os
from functools import lru_cache
from threading import BoundedSemaphore

from heaptide import command_process

PAGES = ("flamegraph", "table", "timeline")
TEXTS = ("stats", "summary", "tree")
MAX_CACHED = 8
# At most this many reports are rendered at the same time, because the API server has other work.
MAX_COMMANDS = 2

_commands = BoundedSemaphore(MAX_COMMANDS)


def report(name: str, capture: str) -> str:
    """Return a report of the current capture. A failure raises ValueError with the reason."""
    status = os.stat(capture)
    return _report(name, capture, status.st_mtime_ns, status.st_size)


@lru_cache(MAX_CACHED)
def _report(name: str, capture: str, _changed: int, _size: int) -> str:
    options = ["-o", "-"] if name in PAGES else []
    with _commands:
        done = command_process.run(name, *options, "--", capture)
    if done.returncode != 0:
        raise ValueError((done.stderr.splitlines() or ["the report could not be rendered"])[-1])
    return done.stdout
