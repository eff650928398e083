"""memray's `Tracker` and its destinations."""

from __future__ import annotations

import enum
import importlib
import importlib.util
import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING

from heaptide.compat import may_raise
from heaptide.messages import reason, say, say_once
from heaptide.recording import capture_files, tracker

if TYPE_CHECKING:
    from typing_extensions import Self

KEEP_EARLIER = 5


class FileFormat(enum.IntEnum):
    """What is written: every event, or sums in a file that stays small."""

    ALL_ALLOCATIONS = 0
    AGGREGATED_ALLOCATIONS = 1


class Destination:
    """Where a recording goes."""


class FileDestination(Destination):
    """A file. `compress_on_exit` and `buffered` are ignored: Heaptide always compresses and buffers."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        overwrite: bool = False,
        compress_on_exit: bool = True,
        buffered: bool = False,
    ) -> None:
        self.path = path
        self.overwrite = overwrite
        self.compress_on_exit = compress_on_exit
        self.buffered = buffered


class SocketDestination(Destination):
    """Not supported: use the control API, or read the capture while it grows."""

    def __init__(self, server_port: int, address: str = "127.0.0.1") -> None:
        _refuse(
            "heaptide does not record into a socket: record into a file, which can be read while it grows, "
            "or use the control API with HEAPTIDE_CONTROL"
        )


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
        if track_object_lifetimes:
            _refuse("heaptide does not follow the lifetimes of objects in a Tracker")
        if destination is None:
            self._keeps_earlier = True
            self._overwrite = False
            path = os.fspath(file_name or "")
        else:
            self._keeps_earlier = False
            if isinstance(destination, SocketDestination):  # already reported
                self._overwrite = False
                path = os.devnull
            elif isinstance(destination, FileDestination):
                self._overwrite = destination.overwrite
                path = os.fspath(destination.path)
            else:
                raise TypeError("destination must be a FileDestination")
        self._path = _absolute(path)
        self._options = tracker.RecordingOptions.checked(
            objects=trace_python_allocators,
            native=native_traces,
            aggregate=FileFormat(file_format) is FileFormat.AGGREGATED_ALLOCATIONS,
            follow_fork=follow_fork,
            interval_ms=memory_interval_ms,
        )
        self._is_used = False
        self._is_recording = False

    def __enter__(self) -> Self:
        if self._is_used:
            raise RuntimeError("a Tracker cannot be entered twice: make another one")
        try:
            self._begin()
        except Exception as error:
            if may_raise():
                raise
            say(f"{reason(error)}; the program continues without this recording")
        self._is_used = True
        return self

    def _begin(self) -> None:
        if tracker.active():
            raise RuntimeError("No more than one Tracker instance can be active at the same time")
        if self._path == os.devnull:
            return
        if self._keeps_earlier:
            capture_files.make_room(self._path, KEEP_EARLIER)
        warning = tracker.start(self._path, self._options, overwrite=self._overwrite)
        if warning is not None:
            say_once(f"{warning}; Python stacks are left out of the captures")
        self._is_recording = True

    def __exit__(
        self,
        error_type: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        if self._is_recording:
            self._is_recording = False
            tracker.stop()


def _refuse(what: str) -> None:
    """Raise NotImplementedError, or report it in a program that was written for memray."""
    if may_raise():
        raise NotImplementedError(what)
    say_once(f"{what}; the program continues")


def _absolute(path: str) -> str:
    try:
        return os.path.abspath(path)
    except OSError:  # the current folder was deleted; creating the file reports it
        return path


def start_thread_trace(*_: object) -> None:
    """Do nothing: every thread is recorded without a hook of its own."""


def set_log_level(level: int) -> None:
    """Do nothing: there is no log."""


def install(force: bool = False) -> None:
    """Make ``import memray`` mean this package. An installed memray is left alone unless `force` is true."""
    front_end = importlib.import_module("heaptide.compat.memray")
    if not force:
        present = sys.modules.get("memray")
        if present is front_end:
            return
        if present is not None or importlib.util.find_spec("memray") is not None:
            raise ImportError("memray is installed: remove it, or replace it with install(force=True)")
    sys.modules["memray"] = front_end
