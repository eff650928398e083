"""Deletes old captures of forked children while their parent is recorded, so that they do not fill the disk.

A scheduler that forks for every task writes one capture per fork. The settings `keep_children`, `keep_age` and
`keep_total` limit the number, the age and the size of children's captures and of earlier captures. They apply to each
capture name separately. The current capture and those of running processes are never deleted.

The parent checks when its recording starts and after every few forks; a check lists one folder.
"""

from __future__ import annotations

import os
import time

from heaptide.containment import untraced
from heaptide.recording import capture_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from heaptide.settings import Settings

# Forks between two checks: at most this number of captures may exceed the limits.
FORKS_PER_CHECK = 16

_current: Retention | None = None


class Retention:
    """The limits of one capture name."""

    def __init__(self, path: str, keep_children: int, keep_age: float, keep_total: int) -> None:
        self.path = path
        self.keep_children = keep_children
        # Seconds; 0 keeps captures of any age.
        self.keep_age = keep_age
        self.keep_total = keep_total
        self.n_forks = 0

    def prune(self, now: float | None = None) -> None:
        """Delete captures beyond the limits, the oldest first."""
        oldest = (time.time() if now is None else now) - self.keep_age if self.keep_age else 0.0
        n_children = n_bytes = 0
        for is_child, modified, size, path in self._captures():
            n_children += is_child
            n_bytes += size
            is_excess = (is_child and n_children > self.keep_children) or n_bytes > self.keep_total or modified < oldest
            if is_excess and path != self.path and not _is_written(path, self.path):
                n_children -= is_child
                n_bytes -= size
                _remove(path)

    def _captures(self) -> list[tuple[bool, float, int, str]]:
        """Return all captures of this name, the newest first: whether of a child, time, bytes on disk, path."""
        own = [self.path, *capture_files.earlier(self.path)]
        found = [(False, path) for path in own]
        for path in own:
            found += [(True, child) for child in capture_files.children_of(path)]
        captures = []
        for is_child, path in found:
            try:
                status = os.stat(path, follow_symlinks=False)
            except OSError:  # another process removed it
                continue
            captures.append((is_child, status.st_mtime, status.st_blocks * 512, path))
        return sorted(captures, key=lambda capture: capture[1], reverse=True)


def begin(path: str, chosen: Settings) -> None:
    """Apply the settings to the captures of this name from now on, in this process and its forked children."""
    global _current
    _current = Retention(path, chosen.keep_children, chosen.keep_age, chosen.keep_total)
    _current.prune()


def end() -> None:
    """Stop deleting captures."""
    global _current
    _current = None


def _is_written(path: str, current: str) -> bool:
    """Return whether a process still writes to this capture: it belongs to `current`, and its process is running."""
    if not path.startswith(current + "."):
        return False
    pid = path.rpartition(".")[2].partition("-")[0]
    return os.path.exists(f"/proc/{pid}")


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:  # another process has removed it, or the folder is read-only
        pass


@untraced
def _after_fork() -> None:
    if _current is not None:
        _current.n_forks += 1
        if _current.n_forks % FORKS_PER_CHECK == 0:
            _current.prune()


os.register_at_fork(after_in_parent=_after_fork)
