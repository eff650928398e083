"""Starts and stops recordings by a signal, by a control file, and when a capture reaches its maximum size.

A native thread of Heaptide checks for these twice a second. It also reads the memory in use, more often, for
:mod:`heaptide.pressure`. The thread runs only if one of these is needed. The signal handler only queues a request for
the thread, because starting and stopping a recording take locks that the interrupted code may hold.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections import deque

from heaptide import _native
from heaptide.containment import untraced
from heaptide.messages import print_message, reason
from heaptide.recording import from_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from heaptide.settings import Settings

INTERVAL_MS = 500

_requests: deque[int] = deque()
_settings: Settings | None = None
_file_seen: tuple[int, int, int] | None = None
_is_started = False
# Checks that `add_check` added. A forked child does not inherit them.
_added_checks: list[Callable[[], None]] = []


def watch_signal(chosen: Settings) -> None:
    """Let the signal in the settings start and stop recordings from now on. Main thread only."""
    import signal

    global _settings
    name = chosen.signal.upper()
    number = getattr(signal, name if name.startswith("SIG") else f"SIG{name}", None)
    if number is None and name.isdigit():
        number = int(name)
    if number is None:
        raise ValueError(f"unknown signal {chosen.signal}: use a name such as USR2")
    _settings = chosen
    signal.signal(number, lambda *_: _requests.append(1))
    start()


def watch_file(chosen: Settings) -> None:
    """Let the control file in the settings start and stop recordings from now on. If it contains `on`, start now."""
    global _settings, _file_seen
    _settings = chosen
    _file_seen = _file_state(chosen)
    if _content(chosen) == "on":
        from_settings.toggle(chosen, True)
    start()


def add_check(check: Callable[[], None]) -> None:
    """Call `check` twice a second in this process, from a thread of Heaptide. It may start and stop recordings."""
    _added_checks.append(check)
    start()


def start() -> None:
    """Start the thread that checks, if it is not running in this process."""
    global _is_started
    if not _is_started:
        _is_started = True
        atexit.register(finish)
    _native.start_watcher(_check_and_report, INTERVAL_MS)


@untraced
def finish() -> None:
    """Wait for a running check and prevent further ones, because the program is about to exit."""
    _native.stop_watcher()


def _check_and_report() -> None:
    try:
        _check()
    except Exception as error:
        print_message(f"{reason(error)}; the program continues")


def _check() -> None:
    global _file_seen
    pressure = sys.modules.get("heaptide.pressure")
    if pressure is not None:
        pressure.check()
    if _settings is not None:
        while _requests:
            _requests.popleft()
            from_settings.toggle(_settings)
        if _settings.control_file:
            seen = _file_state(_settings)
            if seen != _file_seen:
                _file_seen = seen
                if seen is not None:
                    from_settings.toggle(_settings, {"on": True, "off": False}.get(_content(_settings)))
    for check in _added_checks:
        check()
    recording = from_settings.current()
    if recording is not None and recording.mark and not os.path.exists(recording.mark):
        # Another process of the run has stopped the recording.
        from_settings.end()
    elif recording is not None and recording.settings.max_size:
        _limit_size(recording)


def _limit_size(recording: from_settings.SettingsRecording) -> None:
    try:
        size = os.stat(recording.path).st_size
    except OSError:  # the file was removed
        return
    if size <= recording.settings.max_size:
        return
    if recording.settings.when_full == "stop":
        print_message(
            f"{recording.path} has reached {recording.settings.max_size} bytes; the program continues unrecorded"
        )
        from_settings.end()
    else:
        from_settings.end(is_last=False)
        from_settings.begin(recording.settings, recording.component, is_component=recording.is_component)


def _file_state(chosen: Settings) -> tuple[int, int, int] | None:
    try:
        status = os.stat(chosen.control_file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def _content(chosen: Settings) -> str:
    try:
        with open(chosen.control_file, encoding="utf-8", errors="replace") as file:
            return file.read(16).strip().lower()
    except OSError:
        return ""


@untraced
def _after_fork_in_child() -> None:
    """Start the thread again in a forked child, if a signal, a control file or memory pressure needs it."""
    global _is_started
    _added_checks.clear()
    if _is_started:
        atexit.unregister(finish)
        _is_started = False
        _native.stop_watcher()
        _requests.clear()
        if _settings is not None or "heaptide.pressure" in sys.modules:
            start()


os.register_at_fork(
    before=_native.pause_watcher,
    after_in_parent=_native.resume_watcher,
    after_in_child=_after_fork_in_child,
)
