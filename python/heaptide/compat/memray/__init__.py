"""memray's API on Heaptide: ``from heaptide.compat import memray``.

Code with ``import memray`` runs unchanged with ``HEAPTIDE_COMPAT=memray`` in its environment, or after
:func:`install`. ``python -m memray flamegraph …`` then runs Heaptide's commands with memray's options and file names.

`docs/coming-from/memray-code.md` lists every name and option, and all differences. Modules whose names begin with an
underscore only re-export names, for imports such as ``from memray._memray import compute_statistics``.
"""

import importlib
from types import ModuleType

from heaptide.compat.memray.destinations import Destination, FileDestination, SocketDestination
from heaptide.compat.memray.live_sockets import SocketReader
from heaptide.compat.memray.notebook import load_ipython_extension
from heaptide.compat.memray.reader import FileReader
from heaptide.compat.memray.records import AllocationRecord, AllocatorType, FileFormat, MemorySnapshot, Metadata
from heaptide.compat.memray.statistics import dump_all_records
from heaptide.compat.memray.tracking import Tracker, set_log_level, start_thread_trace
from heaptide.compat.memray.tracking import install as install
from heaptide.compat.memray.version import __version__

__all__ = [
    "AllocationRecord",
    "AllocatorType",
    "Destination",
    "FileDestination",
    "FileFormat",
    "FileReader",
    "MemorySnapshot",
    "Metadata",
    "SocketDestination",
    "SocketReader",
    "Tracker",
    "__version__",
    "dump_all_records",
    "load_ipython_extension",
    "set_log_level",
    "start_thread_trace",
]

# memray imports these modules when it is imported. Here the first use imports them, so that code such as
# ``memray._memray.compute_statistics`` needs no other import.
_MODULES = ("_destination", "_ipython", "_memray", "_metadata", "_stats", "_version")


def __getattr__(name: str) -> ModuleType:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
