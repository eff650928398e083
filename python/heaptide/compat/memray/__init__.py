"""memray's names on our engine: ``from heaptide.compat import memray``.

Code that says ``import memray`` runs unchanged with ``HEAPTIDE_COMPAT=memray`` in its environment, or after
:func:`install`. ``python -m memray flamegraph …`` is then our command, which has the same names and options.

Different from memray: a `Tracker` that is given the name of an existing file keeps that file under the time of its last
write instead of failing; object lifetimes and sockets are refused or left out in words.
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
