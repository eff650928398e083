"""memray's module of this name."""

from heaptide.compat.memray.destinations import Destination as Destination
from heaptide.compat.memray.destinations import FileDestination as FileDestination
from heaptide.compat.memray.destinations import SocketDestination as SocketDestination
from heaptide.compat.memray.live_sockets import SocketReader as SocketReader
from heaptide.compat.memray.reader import FileReader as FileReader
from heaptide.compat.memray.records import AllocationRecord as AllocationRecord
from heaptide.compat.memray.records import AllocatorType as AllocatorType
from heaptide.compat.memray.records import FileFormat as FileFormat
from heaptide.compat.memray.records import Interval as Interval
from heaptide.compat.memray.records import MemorySnapshot as MemorySnapshot
from heaptide.compat.memray.records import Metadata as Metadata
from heaptide.compat.memray.records import PymallocDomain as PymallocDomain
from heaptide.compat.memray.records import PythonAllocatorType as PythonAllocatorType
from heaptide.compat.memray.records import SymbolicSupport as SymbolicSupport
from heaptide.compat.memray.records import TemporalAllocationRecord as TemporalAllocationRecord
from heaptide.compat.memray.records import TrackedObjectRecord as TrackedObjectRecord
from heaptide.compat.memray.records import size_fmt as size_fmt
from heaptide.compat.memray.statistics import Stats as Stats
from heaptide.compat.memray.statistics import compute_statistics as compute_statistics
from heaptide.compat.memray.statistics import dump_all_records as dump_all_records
from heaptide.compat.memray.tracking import Tracker as Tracker
from heaptide.compat.memray.tracking import greenlet_trace as greenlet_trace
from heaptide.compat.memray.tracking import set_log_level as set_log_level
from heaptide.compat.memray.tracking import start_thread_trace as start_thread_trace

greenlet_trace_function = greenlet_trace
RTLD_NOW = 2
RTLD_DEFAULT = 0


def get_symbolic_support() -> SymbolicSupport:
    """Return TOTAL: reports can resolve the names of all native functions whose libraries are available."""
    return SymbolicSupport.TOTAL
