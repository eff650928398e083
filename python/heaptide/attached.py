"""What `heaptide attach` and `heaptide detach` do inside the process: begin a recording, end it, leave nothing behind.

`heaptide heap take --pid` comes the same way if the process has no control: one snapshot, and we are gone again.

The text that brings us here runs on a thread of its own; it stands in `crates/attach`. Nothing here may import
`threading`, which would take that thread for the main one, and as little as possible may be imported at all: the
process is somebody else's, and busy.
"""

from __future__ import annotations

import atexit
import os
import sys

from heaptide import _native
from heaptide.recording import tracker

# Where modules of ours that were loaded by a visit wait for the next one.
KEEPER = "_heaptide_attached"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    from typing_extensions import NotRequired

    class Visit(TypedDict):
        """What to leave, and what to clear away afterwards."""

        path: str
        overwrite: bool
        # The folder with a copy of this package, made for this visit; empty if there is none.
        copied: str
        # Our modules were not there before.
        brought: bool
        # Where whoever comes for the file is to put it, if not where it is.
        home: NotRequired[str]

    class Wish(Visit):
        """How to record."""

        objects: bool
        native: bool
        sample_bytes: int
        aggregate: bool
        interval_ms: int

    class HeapWish(Visit):
        """What to write down of the objects."""

        values: bool
        redact: list[str]
        fork: bool


class Attachment:
    """What was begun here and not ended yet."""

    def __init__(self, wish: Wish) -> None:
        self.wish = wish
        self.path = wish["path"]
        self.pid = os.getpid()


_current: Attachment | None = None


def attach(wish: Wish) -> list[str]:
    """Begin to record. Returns the capture's path, and a sentence if Python stacks cannot be read, else nothing."""
    global _current
    # What we do on this thread is no doing of the program's.
    _native.leave_out_thread()
    active = _native.active()
    if active is not None:
        raise _native.RecordingError(f"the process is being recorded into {active} already")
    warning = tracker.start(
        wish["path"],
        tracker.RecordingOptions(
            objects=wish["objects"],
            native=wish["native"],
            sample_bytes=wish["sample_bytes"],
            aggregate=wish["aggregate"],
            interval_ms=wish["interval_ms"],
        ),
        overwrite=wish["overwrite"],
        command=sys.orig_argv[1:],
        attached=True,
    )
    _current = Attachment(wish)
    atexit.register(_at_exit)
    return [wish["path"], warning or ""]


def take_heap(wish: HeapWish) -> list[str]:
    """Write down every object. Returns the snapshot's path, for how many milliseconds all stood still, and its home."""
    _native.leave_out_thread()
    # Loaded here, because whoever only records does not need it.
    from heaptide.inspection.snapshots import heap_snapshot

    taken = heap_snapshot(
        wish["path"],
        values=wish["values"],
        redact=wish["redact"],
        fork=wish["fork"],
        overwrite=wish["overwrite"],
    )
    _clear_away(wish)
    return [taken.path, f"{taken.stood_still * 1000:.1f}", wish.get("home", "")]


def detach() -> list[str] | None:
    """End what :func:`attach` began. Returns the capture's path, whether it is incomplete, and where it is wanted.

    None if nothing was begun here.
    """
    global _current
    attachment, _current = _current, None
    if attachment is None or attachment.pid != os.getpid():
        return None
    atexit.unregister(_at_exit)
    stopped = tracker.stop() if _native.active() == attachment.path else None
    _clear_away(attachment.wish)
    is_complete = stopped is not None and not stopped[1]
    return [attachment.path, "" if is_complete else "the capture is incomplete", attachment.wish.get("home", "")]


def _at_exit() -> None:
    """The program ends before anybody detached; the tracker completes the capture by itself."""
    if _current is not None and _current.pid == os.getpid():
        _remove(_current.wish["copied"])


def _clear_away(wish: Visit) -> None:
    _remove(wish["copied"])
    if not wish["brought"]:
        return
    # The program may import a heaptide of its own from now on. Ours cannot be unloaded; the next visit finds it.
    keeper = sys.modules.setdefault(KEEPER, type(sys)(KEEPER))
    ours = [name for name in sys.modules if name == "heaptide" or name.startswith("heaptide.")]
    keeper.modules = {name: sys.modules.pop(name) for name in ours}  # type: ignore[attr-defined]


def _remove(folder: str) -> None:
    """Remove the copy of the package; a capture beside it stays."""
    if folder:
        try:
            for path, _, files in os.walk(os.path.join(folder, "heaptide"), topdown=False):
                for name in files:
                    os.unlink(os.path.join(path, name))
                os.rmdir(path)
            os.rmdir(folder)
        except OSError:  # another process was faster, or a capture is in it
            pass
