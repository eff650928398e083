"""The in-process side of `heaptide attach` and `heaptide detach`: starts a recording, stops it, and cleans up.

`heaptide heap take --pid` also uses this module if the process has no control API: it takes one snapshot and cleans up.
Each such command is one visit to the process.

`crates/attach/src/visit.py` calls these functions on a new thread of the process. Nothing here may import `threading`,
which would take that thread for the main thread. This module imports little, because imports interrupt the program.
"""

from __future__ import annotations

import atexit
import os
import sys

from heaptide import _native
from heaptide.containment import untraced
from heaptide.recording import tracker

# An entry of `sys.modules` that keeps Heaptide's modules alive between two visits. The visit script uses the same name.
STORE = "_heaptide_attached"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    from typing_extensions import NotRequired

    class Visit(TypedDict):
        """The file that a visit writes, and what the visit must clean up."""

        path: str
        overwrite: bool
        # The folder with a copy of this package, made for this visit; empty if there is none.
        copied: str
        # Whether this visit loaded Heaptide's modules.
        brought: bool
        # The path to which the heaptide command moves the file afterwards, if it differs.
        home: NotRequired[str]

    class RecordingRequest(Visit):
        """The options of a recording."""

        objects: bool
        native: bool
        sample_bytes: int
        aggregate: bool
        follow_fork: bool
        interval_ms: int
        resident_bytes: int

    class HeapRequest(Visit):
        """The options of a heap snapshot."""

        values: bool
        redact: list[str]
        fork: bool


class Attachment:
    """A recording that was started here and is still running."""

    def __init__(self, request: RecordingRequest) -> None:
        self.request = request
        self.path = request["path"]
        self.pid = os.getpid()


_current: Attachment | None = None


def attach(request: RecordingRequest) -> list[str]:
    """Start a recording. Returns the capture's path, and a warning if Python stacks cannot be read, else ""."""
    global _current
    # Do not record this thread: its allocations are Heaptide's own.
    _native.leave_out_thread()
    active = _native.active()
    if active is not None:
        raise _native.RecordingError(f"the process is being recorded into {active} already")
    warning = tracker.start(
        request["path"],
        tracker.RecordingOptions(
            objects=request["objects"],
            native=request["native"],
            sample_bytes=request["sample_bytes"],
            aggregate=request["aggregate"],
            follow_fork=request["follow_fork"],
            interval_ms=request["interval_ms"],
        ),
        overwrite=request["overwrite"],
        command=sys.orig_argv[1:],
        attached_at_bytes=request["resident_bytes"],
    )
    _current = Attachment(request)
    atexit.register(_at_exit)
    return [request["path"], warning or ""]


def take_heap(request: HeapRequest) -> list[str]:
    """Write a heap snapshot. Returns its path, the pause of the process in milliseconds, and `home`."""
    _native.leave_out_thread()
    # Imported here because a recording does not need it.
    from heaptide.inspection.snapshots import heap_snapshot

    taken = heap_snapshot(
        request["path"],
        values=request["values"],
        redact=request["redact"],
        fork=request["fork"],
        overwrite=request["overwrite"],
    )
    _clean_up(request)
    return [taken.path, f"{taken.paused_seconds * 1000:.1f}", request.get("home", "")]


def detach() -> list[str] | None:
    """Stop the recording that :func:`attach` started. Returns the capture's path, a warning, and `home`.

    The warning is empty if the capture is complete. Returns None if no recording was started here.
    """
    global _current
    attachment, _current = _current, None
    if attachment is None or attachment.pid != os.getpid():
        return None
    atexit.unregister(_at_exit)
    stopped = tracker.stop() if _native.active() == attachment.path else None
    _clean_up(attachment.request)
    is_complete = stopped is not None and not stopped[1]
    return [attachment.path, "" if is_complete else "the capture is incomplete", attachment.request.get("home", "")]


@untraced
def _at_exit() -> None:
    """Clean up if the program exits while attached. The tracker completes the capture."""
    if _current is not None and _current.pid == os.getpid():
        _remove(_current.request["copied"])


def _clean_up(request: Visit) -> None:
    _remove(request["copied"])
    if not request["brought"]:
        return
    # From now on the program can import its own heaptide. These modules cannot be unloaded; the next visit reuses them.
    store = sys.modules.setdefault(STORE, type(sys)(STORE))
    loaded = [name for name in sys.modules if name == "heaptide" or name.startswith("heaptide.")]
    store.modules = {name: sys.modules.pop(name) for name in loaded}  # type: ignore[attr-defined]


def _remove(folder: str) -> None:
    """Remove the copy of the package; keep a capture in the same folder."""
    if folder:
        try:
            for path, _, files in os.walk(os.path.join(folder, "heaptide"), topdown=False):
                for name in files:
                    os.unlink(os.path.join(path, name))
                os.rmdir(path)
            os.rmdir(folder)
        except OSError:  # another process has removed it, or it contains a capture
            pass
