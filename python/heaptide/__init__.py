"""Heaptide: where, when, what and why of a Python program's memory.

``heaptide run job.py`` records a whole program; :class:`Tracker` records a block of code in a running one::

    with heaptide.Tracker("block.tide"):
        work()
"""

import sys

if "t" in getattr(sys, "abiflags", ""):
    raise ImportError(
        "heaptide does not support free-threaded builds of Python yet; use the build with the GIL of the same version"
    )

from heaptide._native import RecordingError, __version__
from heaptide.tracker import Tracker, active

__all__ = ["RecordingError", "Tracker", "__version__", "active"]
