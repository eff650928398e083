"""Recordings with the options of the settings, started by the bootstrap, a component, a signal or the control file.

While such a recording runs, an environment variable names its session, so that interpreters that this process starts
join the session (the setting `children`).
"""

from __future__ import annotations

import os
import sys

from heaptide import settings
from heaptide.messages import print_message
from heaptide.recording import capture_files, program, runs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from heaptide.recording.session import Session
    from heaptide.settings import Settings


class SettingsRecording:
    """A recording that was started here and is still running."""

    def __init__(
        self,
        path: str,
        chosen: Settings,
        component: str,
        is_component: bool,
        stop: Callable[[str], object],
        mark: str = "",
    ) -> None:
        self.path = path
        # A function, because the program may have blocked imports when the recording stops.
        self.stop = stop
        self.settings = chosen
        self.component = component
        self.is_component = is_component
        # A file that exists while the recording is wanted; see `wanted_mark`.
        self.mark = mark
        self.pid = os.getpid()


_current: SettingsRecording | None = None


def current() -> SettingsRecording | None:
    """Return the recording of this process.

    A forked child has none, unless a signal or the control file started the parent's recording. In that case the child
    belongs to the same recording with its own capture, and each process can stop the recording of both.
    """
    global _current
    if _current is None or _current.pid == os.getpid():
        return _current
    if not _current.mark:
        return None
    from heaptide import _native

    path = _native.active()
    if path is None or not path.startswith(f"{_current.path}."):
        return None
    parent = _current
    _current = SettingsRecording(path, parent.settings, parent.component, parent.is_component, parent.stop, parent.mark)
    return _current


def begin(
    chosen: Settings,
    component: str,
    *,
    is_component: bool = False,
    whole_program: bool = False,
    joined: Session | None = None,
    is_triggered: bool = False,
) -> SettingsRecording:
    """Start a recording into the capture that the settings name. Raises an exception if that fails.

    A recording that a signal or the control file starts covers the whole run: forked and spawned children join it, and
    all processes stop together.
    """
    from heaptide import _native
    from heaptide.recording import session, tracker

    global _current
    runs.publish("recording")
    is_component = is_component or (joined is not None and joined.is_component)
    if joined is not None:
        path = capture_files.child_of(joined.path)
    else:
        path = capture_files.expand(chosen, component, is_component=is_component)
        active = _native.active()
        if active is not None:  # must be checked before earlier captures are renamed
            raise _native.RecordingError(f"the process is being recorded into {active} already")
        capture_files.make_room(path, chosen.keep)
    if joined is not None:
        is_triggered = os.path.exists(wanted_mark(joined.id))
    if joined is not None and joined.options is not None:
        options = tracker.RecordingOptions(**joined.options)
    else:
        options = tracker.RecordingOptions.checked(
            objects=chosen.objects or (is_component and chosen.detailed_tracing),
            native=chosen.native or (is_component and chosen.detailed_tracing),
            sample=chosen.sample or None,
            aggregate=chosen.aggregate,
            follow_fork=chosen.follow_fork or is_triggered,
            interval_ms=chosen.interval,
        )
    warning = tracker.start(
        path,
        options,
        # `make_room` has freed the name. If another process has taken it meanwhile, replace that capture.
        overwrite=True,
        whole_program=whole_program,
        command=None if not whole_program else sys.orig_argv[1:],
        session=None if joined is None else joined.id,
        first_import_path=program.main_folder() if whole_program else None,
    )
    if warning is not None:
        print_message(f"{warning}; Python stacks are left out of the capture")
    mark = ""
    if is_triggered:
        mark = wanted_mark(_native.session_id() or b"")
        if joined is None and not _make_mark(mark):
            mark = ""
    _current = SettingsRecording(path, chosen, component, is_component, tracker.stop_only, mark)
    if joined is None:
        session.publish(path, is_component=is_component, is_open=chosen.children)
    else:
        session.publish_joined(joined, is_open=chosen.children)
    if options.follow_fork or chosen.children:
        from heaptide.recording import retention

        retention.begin(path if joined is None else joined.path, chosen)
    if chosen.max_size:
        from heaptide.activation import triggers

        triggers.start()
    return _current


def end(*, is_last: bool = True) -> SettingsRecording | None:
    """Stop the recording that was started here, if it is still running.

    With `is_last`, the processes that joined it also stop.
    """
    global _current
    ended, _current = current(), None
    if ended is None:
        return None
    try:
        os.environ.pop(settings.SESSION, None)
        runs.withdraw("recording")
        if ended.mark and is_last:
            _remove_mark(ended.mark)
    finally:  # complete the capture even if the program has damaged `os.environ` or the builtins
        ended.stop(ended.path)
    return ended


def wanted_mark(session: bytes) -> str:
    """Return the file that exists while a recording of the run is wanted. The first process that stops removes it."""
    from heaptide.recording import process_group

    return os.path.join(process_group.group_folder(), f"{session.hex()}.wanted")


def _make_mark(path: str) -> bool:
    from heaptide import _native
    from heaptide.recording import process_group

    try:
        for folder in (*process_group.private_folders(), os.path.dirname(path)):
            _native.private_folder(folder)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        print_message(
            f"other processes of the program will not stop with this one: {path} cannot be created ({error.strerror})"
        )
        return False
    return True


def _remove_mark(path: str) -> None:
    try:
        os.unlink(path)
        os.rmdir(os.path.dirname(path))  # fails while the folder has sockets
    except OSError:
        pass


def finish(pid: int, quiet: bool) -> None:
    """Complete the capture of process `pid`, after the program's last exit handler."""
    triggers = sys.modules.get("heaptide.activation.triggers")
    if triggers is not None:
        triggers.finish()
    recorded = end(is_last=False) if os.getpid() == pid else None
    if recorded is not None and not quiet:
        print_message(f"recorded into {recorded.path}; inspect it with: heaptide stats {recorded.path}")


def toggle(chosen: Settings, wanted: bool | None = None) -> None:
    """Start a recording if none is running, else stop it. With `wanted`, only start (True) or stop (False)."""
    from heaptide import _native
    from heaptide.messages import reason

    try:
        running = current()
        is_on = _native.active() is not None
        if wanted is is_on:
            return
        if is_on and running is None:
            print_message(f"the recording into {_native.active()} was started by other means; it continues")
        elif is_on:
            end()
            if running is not None and not chosen.quiet:
                print_message(f"recorded into {running.path}")
        else:
            begun = begin(chosen, program.program_name(), is_triggered=chosen.children)
            if not chosen.quiet:
                print_message(f"recording into {begun.path}")
    except Exception as error:
        print_message(f"{reason(error)}; the program continues without being recorded")
