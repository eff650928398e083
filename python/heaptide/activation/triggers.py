"""Starts and stops recordings by a signal, by a control file, and when a capture reaches its maximum size.

Heaptide's only Python thread checks for these twice a second; it runs only if a setting needs it. The signal handler
only queues a request for the thread, because starting and stopping take locks that the interrupted code may hold.
`sleep` is imported by name, because a program may replace it in its module.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from time import sleep

from heaptide.containment import contained
from heaptide.messages import reason, say
from heaptide.recording import from_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from heaptide.settings import Settings

PAUSE_SECONDS = 0.5

_requests: deque[int] = deque()
_settings: Settings | None = None
_file_seen: tuple[int, int, int] | None = None
_thread: threading.Thread | None = None
# Held while the thread acts. The exit handler takes it and never releases it.
_acting = threading.Lock()
_is_over = False

# The program's exit waits at most this long for a running action, which normally takes milliseconds.
MAX_WAIT_SECONDS = 10.0


def obey_signal(chosen: Settings) -> None:
    """Let the signal in the settings start and stop recordings from now on. Main thread only."""
    import signal

    global _settings
    name = chosen.signal.upper()
    number = getattr(signal, name if name.startswith("SIG") else f"SIG{name}", None)
    if number is None and name.isdigit():
        number = int(name)
    if number is None:
        raise ValueError(f"there is no signal {chosen.signal}: name one such as USR2")
    _settings = chosen
    signal.signal(number, lambda *_: _requests.append(1))
    start()


def obey_file(chosen: Settings) -> None:
    """Let the control file in the settings start and stop recordings from now on; `on` in it starts one at once."""
    global _settings, _file_seen
    _settings = chosen
    _file_seen = _file_state(chosen)
    if _content(chosen) == "on":
        from_settings.toggle(chosen, True)
    start()


def start() -> None:
    """Start the thread, if it is not running in this process."""
    global _thread
    if _thread is None:
        # An interpreter that exits while a thread is writing to standard error aborts.
        atexit.register(finish)
    if _thread is None or not _thread.is_alive():
        _thread = threading.Thread(target=_check_repeatedly, name="heaptide", daemon=True)
        _thread.start()


@contained
def finish() -> None:
    """Wait for a running action and prevent further ones, because the program is about to exit."""
    global _is_over
    if not _is_over:
        _is_over = _acting.acquire(timeout=MAX_WAIT_SECONDS)


def _check_repeatedly() -> None:
    while True:
        sleep(PAUSE_SECONDS)
        with _acting:
            try:
                _check()
            except Exception as error:
                say(f"{reason(error)}; the program continues")


def _check() -> None:
    global _file_seen
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
    recording = from_settings.current()
    if recording is not None and recording.settings.max_size:
        _limit_size(recording)


def _limit_size(recording: from_settings.SettingsRecording) -> None:
    try:
        size = os.stat(recording.path).st_size
    except OSError:  # the file was removed
        return
    if size <= recording.settings.max_size:
        return
    if recording.settings.when_full == "stop":
        say(f"{recording.path} has reached {recording.settings.max_size} bytes; the program continues unrecorded")
        from_settings.end()
    else:
        from_settings.end()
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


@contained
def _after_fork_in_child() -> None:
    """Start the thread again in a forked child, if a signal or a control file was set up."""
    global _thread, _acting, _is_over
    if _thread is not None:
        atexit.unregister(finish)
        _thread = None
        _acting, _is_over = threading.Lock(), False
        _requests.clear()
        if _settings is not None:
            start()


os.register_at_fork(after_in_child=_after_fork_in_child)
