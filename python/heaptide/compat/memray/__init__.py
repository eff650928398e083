"""memray's API on Heaptide's engine: ``from heaptide.compat import memray``.

Code with ``import memray`` runs unchanged with ``HEAPTIDE_COMPAT=memray`` in its environment, or after
:func:`install`. ``python -m memray flamegraph …`` is then Heaptide's command, which has the same names and options.

Two things differ from memray. If the file of a `Tracker` exists, memray raises an exception, and Heaptide adds the time
of its last write to its name. Object lifetimes and sockets raise NotImplementedError.
"""

from heaptide._native import __version__
from heaptide.compat.memray.reader import AllocationRecord, AllocatorType, FileReader, Metadata
from heaptide.compat.memray.tracking import (
    Destination,
    FileDestination,
    FileFormat,
    SocketDestination,
    Tracker,
    install,
    set_log_level,
    start_thread_trace,
)

__all__ = [
    "AllocationRecord",
    "AllocatorType",
    "Destination",
    "FileDestination",
    "FileFormat",
    "FileReader",
    "Metadata",
    "SocketDestination",
    "Tracker",
    "__version__",
    "install",
    "set_log_level",
    "start_thread_trace",
]
