"""One recording for all decorated calls that overlap, because only one recording can run in a process.

The first call starts it, the last one stops it. Each call has its own capture file. For later calls this file is a hard
link to the first one, or a copy if the file system has no links. If another recording already runs, all calls link to
its capture.
"""

from __future__ import annotations

import os
import threading
import time

from heaptide import _native, private_files
from heaptide.containment import untraced
from heaptide.messages import print_message_once
from heaptide.recording import capture_files, tracker

MAX_CALLS_PER_SECOND = 10_000


class Shared:
    """A recording, and the number of calls that share it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.pid = os.getpid()
        self.n_calls = 1


class CallFiles:
    """The capture and the page of one call."""

    def __init__(self, capture: str, page: str, source: str, shared: Shared | None, is_copied: bool) -> None:
        self.capture = capture
        self.page = page
        # The file that the recording writes. The capture is a link to it, or becomes a copy of it at the end.
        self.source = source
        self.shared = shared
        self.is_copied = is_copied
        self.pid = os.getpid()

    def captures(self) -> list[str]:
        """Return the capture and those of forked children."""
        return [self.capture, *capture_files.children_of(self.source)]


_lock = threading.Lock()
_shared: Shared | None = None


def enter(folder: str, function: str, reporter: str, options: tracker.RecordingOptions | None) -> CallFiles:
    """Start to record a call. Raises an exception if the recording cannot start."""
    global _shared
    folder = os.path.abspath(folder)
    os.makedirs(folder, exist_ok=True)
    with _lock:
        running = _shared if _shared is not None and _shared.pid == os.getpid() else None
        source = running.path if running is not None else _native.active()
        moment = time.strftime("%Y%m%d%H%M%S")
        name = capture_files.safe(function)
        for number in range(1, MAX_CALLS_PER_SECOND):
            stem = f"{name}.{moment}" + (f"-{number}" if number > 1 else "")
            capture = os.path.join(folder, f"{stem}.bin")
            page = os.path.join(folder, f"{reporter}.{stem}.html")
            if os.path.lexists(capture) or os.path.lexists(page):
                continue
            try:
                if source is None:
                    warning = tracker.start(capture, options or tracker.RecordingOptions())
                    if warning is not None:
                        print_message_once(f"{warning}; Python stacks are left out of the captures")
                    _shared = Shared(capture)
                    return CallFiles(capture, page, capture, _shared, False)
                is_copied = not _link(source, capture)
            except FileExistsError:  # another process has created it meanwhile
                continue
            if running is not None:
                running.n_calls += 1
            return CallFiles(capture, page, source, running, is_copied)
    raise OSError(f"{folder} has no free name for a capture of {function}: move the captures elsewhere")


def leave(files: CallFiles) -> None:
    """End the recording of a call; the last call stops the shared recording."""
    global _shared
    with _lock:
        shared = files.shared
        if shared is not None:
            shared.n_calls -= 1
            if shared.n_calls == 0:
                _shared = None
                if _native.active() == shared.path:
                    tracker.stop()
    if files.is_copied:
        private_files.copy(files.source, files.capture)


def _link(source: str, capture: str) -> bool:
    try:
        os.link(source, capture)
    except FileExistsError:
        raise
    except OSError:  # another file system, or one without links
        return False
    return True


@untraced
def _after_fork_in_child() -> None:
    global _lock, _shared
    _lock = threading.Lock()  # another thread of the parent may have held it, and the child lacks that thread
    _shared = None


os.register_at_fork(after_in_child=_after_fork_in_child)
