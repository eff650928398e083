"""Changes the mode of the running recording: :func:`set_mode`."""

from __future__ import annotations

from heaptide import _native
from heaptide.recording import tracker

MODES = ("exact", "objects", "sampled")


def set_mode(mode: str | None = None, *, sample: int | bool | None = None, native: bool | None = None) -> bool:
    """Change how this process is recorded from now on, within the same capture. Returns whether anything changed.

    mode     `exact` (every allocation), `objects` (also every Python object) or `sampled`; None keeps it
    sample   record about one allocation per this number of bytes, which implies `sampled`; `True` means 512 KiB
    native   also record the C, C++ and Rust functions between the Python functions; None keeps it

    Children that are forked later inherit the mode. Raises :class:`heaptide.RecordingError` if the process is not being
    recorded. ``heaptide ctl mode`` changes all processes of a program.
    """
    if mode is not None and mode not in MODES:
        raise ValueError(f"mode must be {', '.join(MODES)} or None, not {mode!r}")
    if sample is not None and mode in ("exact", "objects"):
        raise ValueError(f"sample needs mode sampled, not {mode}")
    if sample is None and mode == "sampled":
        sample = True
    if mode is None and sample is not None:
        mode = "sampled" if sample else "exact"
    with tracker.lifecycle():
        if mode is None:
            return _native.change_mode(native=native)
        sample_bytes = tracker.RecordingOptions.checked(sample=sample).sample_bytes if mode == "sampled" else 0
        return _native.change_mode(objects=mode == "objects", sample_bytes=sample_bytes, native=native)
