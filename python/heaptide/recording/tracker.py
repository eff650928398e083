"""Recording a block of code in a running process."""

from __future__ import annotations

import atexit
import os
import sys
from _thread import (
    allocate_lock,
)  # `threading` would be an import, and a wrong one in a thread that is not the program's

from heaptide import _native
from heaptide.recording import thread_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import TypedDict

    from typing_extensions import Self

    class Program(TypedDict):
        """Facts for the header of a capture."""

        command: list[str]
        executable: str
        working_directory: str
        host: str
        python_version: int
        python_allocator: str
        stdlib_paths: list[str]
        import_paths: list[str]
        own_paths: list[str]


MAX_SAMPLE_BYTES = 1 << 50
MAX_INTERVAL_MS = 86_400_000

_lifecycle = allocate_lock()


def active() -> bool:
    """Tell whether this process is being recorded."""
    return _native.active() is not None


class RecordingOptions:
    """How to record, passed whole from every entry point to :func:`start`. The attributes are those `_native` reads."""

    def __init__(
        self,
        *,
        objects: bool = False,
        native: bool = False,
        sample_bytes: int = 0,
        aggregate: bool = False,
        follow_fork: bool = False,
        interval_ms: int = 10,
    ) -> None:
        self.objects = objects
        self.native = native
        # Mean bytes between two recorded allocations; 0 records every allocation.
        self.sample_bytes = sample_bytes
        self.aggregate = aggregate
        self.follow_fork = follow_fork
        self.interval_ms = interval_ms

    @classmethod
    def checked(cls, *, sample: int | bool | None = None, interval_ms: int = 10, **flags: bool) -> RecordingOptions:
        """Return the options that a user chose; an invalid number raises TypeError or ValueError."""
        if sample is True:
            sample = _native.DEFAULT_SAMPLE_BYTES
        if sample is not None and sample is not False:
            _check("sample", sample, "a number of bytes", MAX_SAMPLE_BYTES)
        _check("interval_ms", interval_ms, "a number", MAX_INTERVAL_MS)
        return cls(sample_bytes=int(sample or 0), interval_ms=interval_ms, **flags)


class Tracker:
    """Record every allocation between :meth:`start` and :meth:`stop`, or within a ``with`` block.

    destination   the capture file to write; an existing one is refused unless `overwrite` is true
    objects       record Python's own allocators too: every object, not only what reaches the C library
    native        show the C, C++ and Rust functions between the Python functions, too; `native_traces` means the same
    sample        record one allocation per so many bytes on average; `True` means every 512 KiB
    aggregate     keep the file bounded
    follow_fork   forked children write captures of their own, named after this one and their pid
    interval_ms   pause between two readings of the resident size

    A process is recorded by one tracker at a time; starting a second one raises :class:`heaptide.RecordingError`.
    A tracker can be started again after it was stopped if `overwrite` is true.
    """

    def __init__(
        self,
        destination: str | os.PathLike[str],
        *,
        objects: bool = False,
        native: bool = False,
        sample: int | bool | None = None,
        aggregate: bool = False,
        follow_fork: bool = False,
        interval_ms: int = 10,
        overwrite: bool = False,
        native_traces: bool = False,
    ) -> None:
        self._options = RecordingOptions.checked(
            objects=objects,
            native=native or native_traces,
            sample=sample,
            aggregate=aggregate,
            follow_fork=follow_fork,
            interval_ms=interval_ms,
        )
        self._path = os.path.abspath(destination)
        self._overwrite = overwrite
        self._is_recording = False

    def start(self) -> None:
        """Begin to record."""
        self._start()

    def _start(self) -> None:
        warning = start(self._path, self._options, overwrite=self._overwrite)
        self._is_recording = True
        if warning is not None:
            import warnings

            try:
                # For whoever called `start` or opened the `with` block.
                warnings.warn(f"{warning}; Python stacks are left out of {self._path}", RuntimeWarning, stacklevel=3)
            except RuntimeWarning:
                self.stop()
                raise

    def stop(self) -> None:
        """End the recording and complete the file. Does nothing if this tracker is not recording."""
        if self._is_recording:
            self._is_recording = False
            stop()

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def _check(name: str, value: object, what: str, largest: int) -> None:
    """Refuse what is not a whole number from 1 to `largest`, in one sentence."""
    if not isinstance(value, int):
        raise TypeError(f"{name} must be {what} from 1 to {largest}, not {value!r}")
    if not 1 <= value <= largest:
        raise ValueError(f"{name} must be {what} from 1 to {largest}, not {value}")


def start(
    path: str,
    options: RecordingOptions,
    *,
    overwrite: bool = False,
    whole_program: bool = False,
    command: list[str] | None = None,
    session: bytes | None = None,
    first_import_path: str | None = None,
    attached: bool = False,
) -> str | None:
    """Begin to record this process: the one way in for the tracker and for ``heaptide run``.

    `session` joins one that another process began; `first_import_path` stands for the folder that Python has not put on
    its import path yet; `attached` notes in the capture how large the process was. Returns a sentence if Python stacks
    cannot be read in this interpreter.
    """
    with _lifecycle:
        thread_names.prepare()
        warning = _native.start(
            path,
            options,
            overwrite=overwrite,
            whole_program=whole_program,
            attached=attached,
            session=session,
            **_describe(command, first_import_path),
        )
        thread_names.watch()
        thread_names.tell_all()
        if not whole_program:
            atexit.register(stop)
        return warning


def stop() -> tuple[str, bool] | None:
    """End whatever recording there is. Returns the capture's path and whether it is incomplete."""
    with _lifecycle:
        atexit.unregister(stop)
        thread_names.tell_all()
        thread_names.unwatch()
        return _native.stop()


def _describe(command: list[str] | None = None, first_import_path: str | None = None) -> Program:
    """Describe this process.

    Where the program has not begun yet, `command` stands in for `sys.argv`, and `first_import_path` for what Python is
    still to put on its import path.
    """
    paths = sys.path if first_import_path is None else [first_import_path, *sys.path]
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return {
        "command": [str(word) for word in (sys.argv if command is None else command)],
        "executable": sys.executable or "",
        "working_directory": _working_directory(),
        "host": os.uname().nodename,
        "python_version": sys.hexversion,
        "python_allocator": _allocator(),
        "stdlib_paths": _stdlib_paths(),
        "import_paths": [_absolute(path) for path in paths if isinstance(path, str)],
        "own_paths": [package],
    }


def _absolute(path: str) -> str:
    try:
        return os.path.abspath(path or os.curdir)
    except OSError:  # the current folder was deleted
        return path


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # the folder was deleted
        return ""


def _stdlib_paths() -> list[str]:
    """Folders of the standard library, told by modules that are loaded anyway: `sysconfig` would take milliseconds."""
    folder = os.path.dirname(os.path.abspath(os.__file__))
    return [folder, os.path.join(folder, "lib-dynload")]


def _allocator() -> str:
    """Tell which allocator Python uses for objects, as far as the environment decides it."""
    if sys.flags.dev_mode:
        return "pymalloc_debug"
    chosen = "" if sys.flags.ignore_environment else os.environ.get("PYTHONMALLOC", "")
    return (
        chosen
        if chosen and chosen not in ("default", "debug")
        else "pymalloc" + ("_debug" if chosen == "debug" else "")
    )


def _after_fork_in_child() -> None:
    """Make a forked child one that can be recorded, and record it if its parent follows forks. Never raises."""
    global _lifecycle
    _lifecycle = allocate_lock()  # the parent's may be held by a thread that does not exist here
    try:
        warning = _native.start_in_child()
        if _native.active() is None:
            return
        thread_names.tell_all()
        processes = sys.modules.get("multiprocessing.util")
        if processes is not None:
            # Its children leave through os._exit after their finalizers, and they first forget those of the parent.
            processes.register_after_fork(stop, _stop_with_process)
    except Exception as error:
        warning = str(error)
    if warning is not None:
        os.write(2, f"heaptide: the forked process {os.getpid()} is not recorded: {warning}\n".encode())


def _stop_with_process(_stop: object) -> None:
    sys.modules["multiprocessing.util"].Finalize(None, stop, exitpriority=-1000)


os.register_at_fork(
    before=_native.before_fork,
    after_in_parent=_native.after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
