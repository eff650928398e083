"""The recording of a component: its capture, its entry in the list of processes, and its control file.

The capture is ``<component>_memory.bin`` in the home folder. The process that uses this name holds a lock. Another
process of the same component, such as a second scheduler that shares the folder, adds its host and process ID to the
name. The control file, ``heaptide/control/<component>``, contains `on` or `off`, which pages of the UI write. Each
process of the component checks the file twice a second and starts or stops its recording, on every host that shares the
folder. Workers that the component spawned or forked also check it.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from typing import Any

from heaptide import _native, settings
from heaptide.activation import triggers
from heaptide.containment import contained
from heaptide.platforms.airflow import results
from heaptide.platforms.airflow.profiling import Profiling
from heaptide.recording import capture_files, from_settings, tracker

# Component → role of the processes that it forks. The native module follows all forks of these components, because
# their children have no name.
FOLLOWS_ALL_FORKS = {"api": "worker", "triggerer": "child"}

# A process renews its entry in the list of processes after this time, because other hosts cannot check whether it runs.
NOTE_SECONDS = 60

# A worker of a component waits at most this many seconds for the component's own process to start its recording.
MAX_WAIT_FOR_MAIN = 30

_lock: int | None = None
_seen = ""
_noted = 0.0


def begin(name: str, chosen: Profiling) -> str:
    """Start a recording. Returns the capture's path, or an empty string if the component is being recorded already."""
    running = from_settings.current()
    if running is not None and running.component == name:
        return ""
    if tracker.active():
        raise RuntimeError("the process is being recorded by other means already")
    os.makedirs(chosen.home, exist_ok=True)
    suffix = "" if _take_name(name, chosen) else ".{host}-{pid}"
    options = chosen.options(is_task=False, component=name)
    values: dict[str, Any] = {
        "home": chosen.home,
        "out": capture_files.COMPONENT_PATTERN.replace(".bin", f"{suffix}.bin"),
        "keep": chosen.keep,
        "max_size": chosen.max_size,
        "follow_fork": name in FOLLOWS_ALL_FORKS,
        # Workers of an API server are new interpreters, which join the session. Interpreters that tasks start must not
        # join the scheduler's session.
        "children": name == "api",
        "detailed_tracing": False,
        **options,
        "sample": options["sample"] or 0,
    }
    return from_settings.begin(settings.load().with_values(values), name, is_component=True).path


def end(name: str) -> str:
    """Stop the recording of this component, and return its capture's path. Recordings with another origin continue."""
    running = from_settings.current()
    if running is None or running.component != name:
        return ""
    ended = from_settings.end()
    return "" if ended is None else ended.path


def _take_name(name: str, chosen: Profiling) -> bool:
    """Return whether this process may use the documented name.

    A POSIX lock ends with its process, and forked children do not inherit it.
    """
    global _lock
    if _lock is None:
        path = os.path.join(chosen.home, f".{name}_memory.lock")
        _lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.lockf(_lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


# --- The list of processes ---


def note_process(component: str, role: str, chosen: Profiling) -> None:
    """Add this process to the list for the page of components. Readers remove the entry after the process has ended."""
    global _noted
    _noted = time.monotonic()
    entry = {
        **results.identity(),
        "component": component,
        "role": role,
        "capture": _native.active(),
        "mode": chosen.mode or "exact",
        "time": time.time(),
    }
    folder = os.path.join(chosen.folder, "processes")
    results.make_folder(folder)
    name = capture_files.safe(f"{entry['host']}-{entry['pid']}-{entry['start']}") + ".json"
    results.write(os.path.join(folder, name), json.dumps(entry))


# --- The control file ---


def control_file(component: str, folder: str) -> str:
    """Return the path of a component's control file."""
    return os.path.join(folder, "control", component)


def ask(component: str, chosen: Profiling, word: str) -> None:
    """Write `on` or `off` to the control file."""
    path = control_file(component, chosen.folder)
    results.make_folder(os.path.dirname(path))
    results.write(path, word)


def watch_control_file(
    component: str, role: str, chosen: Profiling, start: Callable[[str], object], stop: Callable[[str], object]
) -> None:
    """From now on, start and stop the recording of this process as the control file requests."""
    global _seen
    path = control_file(component, chosen.folder)
    _seen = _content(path)

    def check() -> None:
        global _seen
        word = _content(path)
        if time.monotonic() - _noted > NOTE_SECONDS:
            note_process(component, role, chosen)
        if word in ("on", "off") and word != _seen:
            if word == "on" and role != "main" and not _has_main_started(component, chosen):
                return
            _seen = word
            (start if word == "on" else stop)(component)
            note_process(component, role, chosen)

    triggers.add_check(check)
    if role == "main" and component in FOLLOWS_ALL_FORKS:
        # A forked child does not inherit the check.
        os.register_at_fork(after_in_child=lambda: _watch_after_fork(component, FOLLOWS_ALL_FORKS[component], chosen))


def _has_main_started(component: str, chosen: Profiling) -> bool:
    """Return whether the component's own process has started its recording.

    It renames earlier captures when it starts. A worker must wait, or its new capture would also be renamed.
    """
    try:
        asked = os.stat(control_file(component, chosen.folder)).st_mtime
        if time.time() - asked > MAX_WAIT_FOR_MAIN:
            return True
        return os.stat(_main_capture(component, chosen)).st_mtime >= asked
    except OSError:
        return False


def _main_capture(component: str, chosen: Profiling) -> str:
    return os.path.join(chosen.home, f"{component}_memory.bin")


@contained
def _watch_after_fork(component: str, role: str, chosen: Profiling) -> None:
    """Make a forked child obey the control file from its first check on. Right after a fork, locks may be held."""
    is_first = True

    def check() -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            watch_as_child(component, role, chosen)

    triggers.add_check(check)


def watch_as_child(component: str, role: str, chosen: Profiling) -> None:
    """Make a worker of a component obey the component's control file. Its capture is named after the component's."""

    def start(_: str) -> None:
        if not tracker.active():
            path = capture_files.child_of(_main_capture(component, chosen))
            options = tracker.RecordingOptions.checked(**chosen.options(is_task=False, component=component))
            tracker.start(path, options, command=["airflow", component, role])
        note_process(component, role, chosen)

    def stop(_: str) -> None:
        if from_settings.end() is None:
            tracker.stop()
        note_process(component, role, chosen)

    note_process(component, role, chosen)
    watch_control_file(component, role, chosen, start, stop)


def _content(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(16).strip().lower()
    except OSError:
        return ""
