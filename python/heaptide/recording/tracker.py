"""Starts and stops recordings of this process: :class:`Tracker` for users, :func:`start` for everything else."""

from __future__ import annotations

import atexit
import os
import sys

# Not from `threading`: that module treats the thread that imports it first as the main thread.
from _thread import allocate_lock

from heaptide import _native, labels, redaction
from heaptide.containment import untraced
from heaptide.messages import print_message_after_fork
from heaptide.recording import process_group, program, runs, thread_names, user_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType
    from collections.abc import Sequence
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
        library_paths: list[str]
        user_paths: list[str]
        user_packages: list[str]
        facts: list[tuple[str, str]]


# `labels` needs these modules, and those that read the settings, at each start. They are imported now: if a thread
# imported them during a fork of another thread, the child could not finish the import, and its recording would hang.
_NEEDED_BY_LABELS = (process_group, runs)
redaction.load_settings()

MAX_SAMPLE_BYTES = 1 << 50
MAX_INTERVAL_MS = 86_400_000

_lifecycle = allocate_lock()
# The object that started the current recording, if it will call `stop_owned`.
_owner: object = None


def lifecycle() -> LockType:
    """Return the lock that is held while a recording starts, stops or changes."""
    return _lifecycle


def active() -> bool:
    """Return whether this process is being recorded."""
    return _native.active() is not None


class RecordingOptions:
    """The options of a recording. Every entry point passes such an object to :func:`start`; `_native` reads it."""

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
    """Records every allocation between :meth:`start` and :meth:`stop`, or within a ``with`` block.

    destination   the capture file to write
    objects       also record Python's own allocators: every object, not only memory from the C library
    native        also record the C, C++ and Rust functions between the Python functions; `native_traces` is the same
    sample        record about one allocation per this number of bytes; `True` means 512 KiB
    aggregate     keep sums instead of every event, so that the file stays small
    follow_fork   also record forked children, each in a file with the child's process ID after this one's name
    interval_ms   milliseconds between two samples of the resident size
    overwrite     replace an existing file instead of raising FileExistsError

    Only one recording can run in a process: starting a second one raises :class:`heaptide.RecordingError`. A stopped
    tracker can be started again if `overwrite` is true.
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
        """Start the recording."""
        _native.unrecorded(Tracker._start, self)

    def _start(self) -> None:
        warning = start(self._path, self._options, overwrite=self._overwrite, owner=self)
        self._is_recording = True
        if warning is not None:
            import warnings

            try:
                # Level 3 is the caller of `start`, or the `with` statement.
                warnings.warn(f"{warning}; Python stacks are left out of {self._path}", RuntimeWarning, stacklevel=3)
            except RuntimeWarning:
                self.stop()
                raise

    def stop(self) -> None:
        """Stop the recording and complete the file. Does nothing if this tracker is not recording."""
        if self._is_recording:
            self._is_recording = False
            # This is `stop_owned`, inlined: on Python 3.10 its frame would be recorded as the program's allocation.
            if _owner is self:
                stop()

    def set_mode(
        self, mode: str | None = None, *, sample: int | bool | None = None, native: bool | None = None
    ) -> bool:
        """Change how this tracker records from now on, as :func:`heaptide.set_mode` does."""
        from heaptide.recording import mode as recording_mode

        if not self._is_recording:
            raise _native.RecordingError("this tracker is not recording; start it first")
        return recording_mode.set_mode(mode, sample=sample, native=native)

    def __enter__(self) -> Self:
        _native.unrecorded(Tracker._start, self)
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def _check(name: str, value: object, unit: str, largest: int) -> None:
    """Raise an exception unless the value is a whole number from 1 to `largest`."""
    if not isinstance(value, int):
        raise TypeError(f"{name} must be {unit} from 1 to {largest}, not {value!r}")
    if not 1 <= value <= largest:
        raise ValueError(f"{name} must be {unit} from 1 to {largest}, not {value}")


def start(
    path: str,
    options: RecordingOptions,
    *,
    overwrite: bool = False,
    whole_program: bool = False,
    command: list[str] | None = None,
    session: bytes | None = None,
    first_import_path: str | None = None,
    attached_at_bytes: int = 0,
    outer_functions: list[str] | None = None,
    user_folders: Sequence[str] = (),
    owner: object = None,
) -> str | None:
    """Start a recording of this process. All entry points use it. Returns a warning if Python stacks cannot be read.

    whole_program       the recording starts before the program and stops after its last exit handler
    command             the program's arguments, if `sys.argv` does not hold them yet
    session             the session of another process, to join it
    first_import_path   the folder that Python will put first on its import path, if it has not done so yet
    attached_at_bytes   resident size before `heaptide attach` entered the process, to store in the capture
    outer_functions     functions that reports leave out at the root of a stack, outermost first
    user_folders        further folders of the user's own code, as a platform knows them
    owner               the object that will call `stop_owned`
    """
    global _owner
    if _native.has_failed():
        # The failed recording still holds its file and its hooks.
        stop()
    with _lifecycle:
        # Heaptide does its own work before the recording starts, so that it is not recorded.
        thread_names.prepare()
        names = thread_names.all_names()
        program = _describe(command, first_import_path, user_folders)
        outer = outer_functions or []
        is_first = _native.active() is None
        if is_first:
            thread_names.install()
            if not whole_program:
                atexit.register(stop_at_exit)
        try:
            warning = _native.start(
                path,
                options,
                overwrite=overwrite,
                whole_program=whole_program,
                attached_at_bytes=attached_at_bytes,
                session=session,
                outer_functions=outer,
                thread_names=names,
                **program,
            )
        except BaseException:
            if is_first:
                atexit.unregister(stop_at_exit)
                thread_names.uninstall()
            raise
        # From here on allocations are recorded; this assignment makes none.
        _owner = owner
        return warning


def stop() -> tuple[str, bool] | None:
    """Stop the current recording, if any. Returns the capture's path and whether it is incomplete."""
    return _native.unrecorded(_stop)


def _stop() -> tuple[str, bool] | None:
    global _owner
    with _lifecycle:
        _owner = None
        atexit.unregister(stop_at_exit)
        thread_names.report_all()
        thread_names.uninstall()
        return _native.stop()


def stop_only(path: str) -> None:
    """Stop the current recording if it writes to `path`, or if it has failed.

    After a failure, a thread of Heaptide may be about to print the reason; stopping waits for it.
    """
    if _native.active() in (None, path):
        stop()


def stop_owned(owner: object) -> None:
    """Stop the recording that `owner` started, unless another one has replaced it after a failure."""
    if _owner is owner:
        stop()


# Named, so that `atexit.unregister` can find it.
stop_at_exit = untraced(stop)


def _describe(
    command: list[str] | None = None, first_import_path: str | None = None, user_folders: Sequence[str] = ()
) -> Program:
    """Return the facts about this process that the header of its capture states."""
    paths = sys.path if first_import_path is None else [first_import_path, *sys.path]
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    code = user_code.describe(command)
    code["user_paths"] = [*user_folders, *code["user_paths"]]
    return {
        "command": redaction.command(program.arguments() if command is None else command),
        "executable": sys.executable or "",
        "working_directory": _working_directory(),
        "host": os.uname().nodename,
        "python_version": sys.hexversion,
        "python_allocator": _allocator(),
        "stdlib_paths": _stdlib_paths(),
        "import_paths": [_absolute(path) for path in paths if isinstance(path, str)],
        "own_paths": [package],
        "facts": labels.facts(),
        **code,
    }


def _absolute(path: str) -> str:
    try:
        return os.path.abspath(path or os.curdir)
    except OSError:  # the current directory was deleted
        return path


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # the folder was deleted
        return ""


def _stdlib_paths() -> list[str]:
    """Return the folders of the standard library. Importing `sysconfig` for them would take milliseconds."""
    folder = os.path.dirname(os.path.abspath(os.__file__))
    return [folder, os.path.join(folder, "lib-dynload")]


def _allocator() -> str:
    """Return the allocator that Python uses for objects, according to its flags and environment."""
    if sys.flags.dev_mode:
        return "pymalloc_debug"
    chosen = "" if sys.flags.ignore_environment else os.environ.get("PYTHONMALLOC", "")
    return (
        chosen
        if chosen and chosen not in ("default", "debug")
        else "pymalloc" + ("_debug" if chosen == "debug" else "")
    )


@untraced
def _after_fork_in_child() -> None:
    """Make a forked child recordable, and record it if the parent's recording follows forks."""
    global _lifecycle
    _lifecycle = allocate_lock()  # another thread of the parent may have held it, and the child lacks that thread
    try:
        warning = _native.start_in_child(labels.facts())
        if _native.active() is None:
            return
        thread_names.report_all()
        processes = sys.modules.get("multiprocessing.util")
        if processes is not None:
            # Children of multiprocessing discard inherited finalizers, run their own, and exit with os._exit.
            processes.register_after_fork(stop_at_exit, _stop_with_process)
    except Exception as error:
        warning = str(error)
    if warning is not None:
        print_message_after_fork(f"the forked process {os.getpid()} is not recorded: {warning}")


@untraced
def _stop_with_process(_stop: object) -> None:
    sys.modules["multiprocessing.util"].Finalize(None, stop_at_exit, exitpriority=-1000)


os.register_at_fork(
    before=_native.before_fork,
    after_in_parent=_native.after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
