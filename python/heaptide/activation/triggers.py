"""The one thread of ours in Python, and only where a setting needs it: signal, control file, largest size.

It looks twice a second. A signal handler does nothing but leave a note for it, because beginning and ending take locks
that the interrupted code may hold. Functions of other modules are fetched at import: a program may replace them.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from time import sleep

from heaptide.messages import reason, say
from heaptide.recording import from_settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from heaptide.settings import Settings

PAUSE_SECONDS = 0.5

_notes: deque[int] = deque()
_switch: Settings | None = None
_file_seen: tuple[int, int, int] | None = None
_thread: threading.Thread | None = None
# Held while the thread acts, and by the end of the program for good.
_acting = threading.Lock()
_is_over = False

# How long the end of a program waits for an action to finish; it takes milliseconds.
PATIENCE_SECONDS = 10.0


def obey_signal(chosen: Settings) -> None:
    """From now on the signal of the settings begins and ends recordings. Main thread only."""
    import signal

    global _switch
    name = chosen.signal.upper()
    number = getattr(signal, name if name.startswith("SIG") else f"SIG{name}", None)
    if number is None and name.isdigit():
        number = int(name)
    if number is None:
        raise ValueError(f"there is no signal {chosen.signal}: name one such as USR2")
    _switch = chosen
    signal.signal(number, lambda *_: _notes.append(1))
    start()


def obey_file(chosen: Settings) -> None:
    """From now on the control file of the settings begins and ends recordings; `on` in it counts at once."""
    global _switch, _file_seen
    _switch = chosen
    _file_seen = _look_at_file(chosen)
    if _content(chosen) == "on":
        from_settings.toggle(chosen, True)
    start()


def start() -> None:
    """Have the thread run, in this process."""
    global _thread
    if _thread is None:
        # An interpreter that ends while a thread is writing to standard error aborts.
        atexit.register(finish)
    if _thread is None or not _thread.is_alive():
        _thread = threading.Thread(target=_watch, name="heaptide", daemon=True)
        _thread.start()


def finish() -> None:
    """The program ends: let an action be finished, and begin no other."""
    global _is_over
    if not _is_over:
        _is_over = _acting.acquire(timeout=PATIENCE_SECONDS)


def _watch() -> None:
    while True:
        sleep(PAUSE_SECONDS)
        with _acting:
            try:
                _look()
            except Exception as error:
                say(f"{reason(error)}; the program goes on")


def _look() -> None:
    global _file_seen
    if _switch is not None:
        while _notes:
            _notes.popleft()
            from_settings.toggle(_switch)
        if _switch.control_file:
            seen = _look_at_file(_switch)
            if seen != _file_seen:
                _file_seen = seen
                if seen is not None:
                    from_settings.toggle(_switch, {"on": True, "off": False}.get(_content(_switch)))
    recording = from_settings.current()
    if recording is not None and recording.settings.max_size:
        _bound(recording)


def _bound(recording: from_settings.SettingsRecording) -> None:
    try:
        size = os.stat(recording.path).st_size
    except OSError:  # somebody took it away
        return
    if size <= recording.settings.max_size:
        return
    if recording.settings.when_full == "stop":
        say(f"{recording.path} has reached {recording.settings.max_size} bytes; the program goes on unrecorded")
        from_settings.end()
    else:
        from_settings.end()
        from_settings.begin(recording.settings, recording.component, is_component=recording.is_component)


def _look_at_file(chosen: Settings) -> tuple[int, int, int] | None:
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


def _after_fork_in_child() -> None:
    """The thread does not exist in a child; what it watches for does, as far as it was asked for by a person."""
    global _thread, _acting, _is_over
    if _thread is not None:
        atexit.unregister(finish)
        _thread = None
        _acting, _is_over = threading.Lock(), False
        _notes.clear()
        if _switch is not None:
            start()


os.register_at_fork(after_in_child=_after_fork_in_child)
