"""memray's `Tracker`."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any

from heaptide import _native
from heaptide.compat import may_raise
from heaptide.compat.memray.destinations import Destination, FileDestination, SocketDestination
from heaptide.compat.memray.records import FileFormat
from heaptide.messages import print_message, reason
from heaptide.recording import capture_files, tracker

if TYPE_CHECKING:
    from typing_extensions import Self

    from heaptide.compat.memray.live_sockets import LiveServer
    from heaptide.compat.memray.reader import FileReader

KEEP_EARLIER = 5
# A capture names at most this many outer functions, because the size of its header is limited.
MAX_OUTER_FUNCTIONS = 1000


class Tracker:
    """Records the allocations within a ``with`` block, as memray's class of this name does."""

    def __init__(
        self,
        file_name: str | os.PathLike[str] | None = None,
        *,
        destination: Destination | None = None,
        native_traces: bool = False,
        memory_interval_ms: int = 10,
        follow_fork: bool = False,
        trace_python_allocators: bool = False,
        track_object_lifetimes: bool = False,
        file_format: FileFormat = FileFormat.ALL_ALLOCATIONS,
    ) -> None:
        if (file_name is None) == (destination is None):
            raise TypeError("Exactly one of 'file_name' or 'destination' argument must be specified")
        is_aggregated = FileFormat(file_format) is FileFormat.AGGREGATED_ALLOCATIONS
        self._keeps_earlier = destination is None
        self._overwrite = False
        self._server: LiveServer | None = None
        if isinstance(destination, SocketDestination):
            if follow_fork:
                raise RuntimeError("follow_fork requires an output file")
            if is_aggregated:
                raise RuntimeError("AGGREGATED_ALLOCATIONS requires an output file")
            path = self._serve(destination, native_traces)
        elif isinstance(destination, FileDestination):
            self._overwrite = destination.overwrite
            path = os.fspath(destination.path)
            if not self._overwrite and os.path.lexists(path) and path != os.devnull:
                self._fail(FileExistsError(17, "File exists", path))
        elif destination is None:
            path = os.fspath(file_name or "")
        else:
            raise TypeError("destination must be a SocketDestination or FileDestination")
        self._path = _absolute(path)
        self._objects: tuple[Any, ...] | None = None
        self._tracks_objects = track_object_lifetimes
        self._options = tracker.RecordingOptions.checked(
            # Finding survivors requires the addresses of all live blocks.
            objects=trace_python_allocators or track_object_lifetimes,
            native=native_traces,
            aggregate=is_aggregated and not track_object_lifetimes,
            follow_fork=follow_fork,
            interval_ms=memory_interval_ms,
        )
        self._is_used = False
        self._is_recording = False

    def _serve(self, destination: SocketDestination, native_traces: bool) -> str:
        """Wait for a reader. Returns the path of the capture, or the null device if the port cannot be used."""
        from heaptide.compat.memray.live_sockets import LiveServer

        try:
            self._server = LiveServer(destination, native_traces)
        except (OSError, ValueError, OverflowError) as error:
            if may_raise():
                raise
            print_message(f"{reason(error)}; the program continues without this recording")
            return os.devnull
        return self._server.path

    def _fail(self, error: Exception) -> None:
        """Raise an exception as memray does. A program that runs with HEAPTIDE_COMPAT continues instead."""
        if may_raise():
            raise error

    @property
    def reader(self) -> FileReader:
        """A reader of the capture."""
        from heaptide.compat.memray.reader import FileReader

        return FileReader(self._path)

    def get_surviving_objects(self) -> tuple[Any, ...]:
        """Return the objects that were created while the Tracker was active, and were alive when it ended."""
        if not self._tracks_objects:
            raise RuntimeError("track_object_lifetimes=True was not provided at Tracker construction")
        if self._objects is None:
            raise RuntimeError("Tracking was never started or has not finished yet or failed.")
        return self._objects

    def __enter__(self) -> Self:
        _native.unrecorded(Tracker._enter, self)
        return self

    def _enter(self) -> None:
        if self._is_used:
            raise RuntimeError("Attempting to use stale output handle: make another Tracker")
        try:
            # Frame 1 is `__enter__`, frame 2 its caller.
            self._begin(_outer_functions(sys._getframe(2)))
        except Exception as error:
            if may_raise():
                raise
            print_message(f"{reason(error)}; the program continues without this recording")
        self._is_used = True
        if self._tracks_objects:
            # Empty the interpreter's free lists, because an object from a free list would lie in an older block.
            gc.collect()

    def _begin(self, outer_functions: list[str]) -> None:
        if tracker.active():
            raise RuntimeError("No more than one Tracker instance can be active at the same time")
        if self._path == os.devnull:
            return
        if self._keeps_earlier:
            capture_files.make_room(self._path, KEEP_EARLIER)
        if self._tracks_objects:
            importlib.import_module("heaptide.compat.memray.object_tracking")
        warning = tracker.start(
            self._path, self._options, overwrite=self._overwrite, outer_functions=outer_functions, owner=self
        )
        self._is_recording = True
        if warning is not None:
            print_message(f"{warning}; Python stacks are left out of {self._path}")

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._tracks_objects:
            # Without `unrecorded`, whose tuple of arguments would be a surviving object.
            self._exit()
        else:
            _native.unrecorded(Tracker._exit, self)

    def _exit(self) -> None:
        if self._is_recording:
            self._is_recording = False
            tracker.stop_owned(self)
            if self._tracks_objects:
                from heaptide.compat.memray import object_tracking

                self._objects = object_tracking.survivors(self._path)
        elif self._tracks_objects:
            self._objects = ()
        if self._server is not None:
            self._server.close()


def _outer_functions(frame: Any) -> list[str]:
    """Return the callers of the function that enters the Tracker, outermost first. Stacks omit these functions."""
    functions = []
    frame = frame.f_back
    while frame is not None:
        code = frame.f_code
        functions.append(f"{code.co_firstlineno}\t{code.co_name}\t{code.co_filename}")
        frame = frame.f_back
    functions.reverse()
    return functions[:MAX_OUTER_FUNCTIONS]


def _absolute(path: str) -> str:
    try:
        return os.path.abspath(path)
    except OSError:  # the current folder was deleted; creating the file will fail with a message
        return path


def start_thread_trace(*_: object) -> None:
    """Do nothing: Heaptide records every thread without this hook."""


def greenlet_trace(event: str, args: Any) -> None:
    """Do nothing: Heaptide records greenlets without this hook."""


def set_log_level(level: int) -> None:
    """Do nothing: there is no log."""


def install(force: bool = False) -> None:
    """Make ``import memray`` return this package. If memray is installed, raise ImportError unless `force` is true."""
    front_end = importlib.import_module("heaptide.compat.memray")
    if not force:
        present = sys.modules.get("memray")
        if present is front_end:
            return
        if present is not None or importlib.util.find_spec("memray") is not None:
            raise ImportError("memray is installed: remove it, or replace it with install(force=True)")
    sys.modules["memray"] = front_end
