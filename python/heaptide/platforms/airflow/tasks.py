"""Records task instances through Airflow's listener hooks, in the process that runs the task.

`on_starting` starts the recording before the DAG file is imported; `before_stopping` stops it after all callbacks. If a
task is deferred or rescheduled, its recording stops just before the process reports this to Airflow. A killed task
calls no hook: its first result line and its capture remain. The hooks for failed tasks also run in the scheduler, where
they do nothing.
"""

from __future__ import annotations

import atexit
import datetime
import functools
import logging
import os
import sys
import time
from typing import Any
from urllib.parse import quote, urlsplit

from airflow.listeners import hookimpl

from heaptide.containment import contained
from heaptide.messages import reason
from heaptide.platforms.airflow import profiling

log = logging.getLogger("heaptide.airflow")

OUTCOMES = {
    "success": "ok",
    "failed": "failed",
    "skipped": "skipped",
    "deferred": "deferred",
    "up_for_reschedule": "deferred",
    "awaiting_input": "deferred",
    "up_for_retry": "retried",
}
# Airflow sets this variable before a process executes `sudo`, which runs the task as another user.
REEXECUTED = "_AIRFLOW__REEXECUTED_PROCESS"
# Message to the supervisor → state in which Airflow may run the same try again.
PAUSES = {"DeferTask": "deferred", "RescheduleTask": "up_for_reschedule", "AwaitInputTask": "awaiting_input"}
KEY = ("dag_id", "run_id", "task_id", "map_index", "try_number")


class _Recorded:
    """The task instance that this process records."""

    def __init__(self, key: dict[str, Any], job: Any, capture: str, folder: str) -> None:
        self.key = key
        self.job = job
        self.capture = capture
        # The folder of all results that this user can write.
        self.folder = folder
        self.pid = os.getpid()
        self.instance: Any = None
        self.error: str | None = None


_recorded: _Recorded | None = None


@hookimpl  # type: ignore[untyped-decorator]
def on_starting(component: Any) -> None:
    """Start the recording of a task's process, if Airflow already provides the key of the task."""
    if type(component).__name__ != "TaskRunnerMarker":
        return
    try:
        from structlog.contextvars import get_contextvars

        known = get_contextvars()
        if all(name in known for name in KEY):
            _begin({name: known[name] for name in KEY})
    except Exception as error:
        log.warning("the memory of this task is not recorded: %s", reason(error))


@hookimpl  # type: ignore[untyped-decorator]
def on_task_instance_running(previous_state: Any, task_instance: Any) -> None:
    """Start the recording now if the key of the task was unknown when the process started."""
    try:
        if not hasattr(task_instance, "dag_id"):
            return
        if _of_this_process() is None:
            _begin({name: getattr(task_instance, name) for name in KEY})
        recorded = _of_this_process()
        if recorded is not None:
            recorded.instance = task_instance
    except Exception as error:
        log.warning("the memory of this task is not recorded: %s", reason(error))


@hookimpl  # type: ignore[untyped-decorator]
def on_task_instance_failed(previous_state: Any, task_instance: Any, error: Any) -> None:
    """Store the type of the exception."""
    recorded = _of_this_process()
    if recorded is not None and error is not None:
        recorded.error = "str" if isinstance(error, str) else type(error).__name__


@hookimpl  # type: ignore[untyped-decorator]
def before_stopping(component: Any) -> None:
    """Stop the recording at the end of a task's process, whatever its outcome."""
    if type(component).__name__ == "TaskRunnerMarker":
        _end()


def _of_this_process() -> _Recorded | None:
    return _recorded if _recorded is not None and _recorded.pid == os.getpid() else None


def _begin(key: dict[str, Any]) -> None:
    global _recorded
    from heaptide import settings

    chosen = profiling.current()
    chosen.report_problems()
    # Interpreters that this task starts do not belong to the component that forked it.
    os.environ.pop(settings.SESSION, None)
    if _of_this_process() is not None:
        return
    if not chosen.selects_task(key["dag_id"], key["task_id"]):
        if "heaptide._native" in sys.modules:
            from heaptide.platforms.airflow import captures

            captures.drop_inherited()
        return
    from heaptide import labels as process_labels
    from heaptide.platforms.airflow import captures, results
    from heaptide.recording import session, tracker

    captures.drop_inherited()
    folder = captures.writable_folder(chosen)
    path = captures.name_for(key, folder)
    results.make_folder(os.path.dirname(path))
    options = tracker.RecordingOptions.checked(**chosen.options(is_task=True))
    mapped = f"[{key['map_index']}]" if int(key["map_index"]) >= 0 else ""
    task = f"{key['dag_id']}.{key['task_id']}"
    command = ["airflow", "task", task + mapped, str(key["run_id"]), f"try {key['try_number']}"]
    # The command line of the process is that of the component that forked it.
    process_labels.label(component="task")
    warning = tracker.start(path, options, command=command, user_folders=profiling.dag_folders())
    if warning is not None:
        log.warning("%s; Python stacks are left out of the capture", warning)
    session.publish(path, sample_bytes=options.sample_bytes, objects=options.objects, interval_ms=options.interval_ms)
    labels = {name: str(key[name]) for name in KEY}
    unit = f"{key['run_id']}{mapped} try {key['try_number']}"
    results_folder = captures.folder_of(key["dag_id"], folder)
    job = results.begin(task, unit, labels, path, results_folder)
    _recorded = _Recorded(key, job, path, folder)
    # If the DAG file of a task cannot be imported, Airflow calls no further hook.
    atexit.register(_end)
    _end_before_pauses()
    if os.environ.get(REEXECUTED) != "1":
        _discard_before_reexecution()


def _end_before_pauses() -> None:
    """Stop the recording before the process reports that its task is deferred or rescheduled.

    After the report, Airflow may queue the next part of the same try. If this process still ran then, to write numbers
    or upload its capture, the scheduler would mistake its end for the end of the next part, and fail the task. The date
    of a rescheduled task is postponed by the time that this takes.
    """
    try:
        from airflow.sdk.execution_time.comms import CommsDecoder
    except ImportError:  # `before_stopping` ends the recording
        return
    original = CommsDecoder.send

    @functools.wraps(original)
    def send(self: Any, msg: Any) -> Any:
        state = PAUSES.get(type(msg).__name__)
        if state is not None and _of_this_process() is not None:
            began = time.monotonic()
            _end(state)
            if hasattr(msg, "reschedule_date"):
                msg.reschedule_date += datetime.timedelta(seconds=time.monotonic() - began)
        return original(self, msg)

    CommsDecoder.send = send


def _discard_before_reexecution() -> None:
    """Discard the recording if this process executes `sudo` (`run_as_user`): the new process records the task.

    Airflow has no hook before that, so Heaptide replaces the function that it calls.
    """
    original = os.execvp

    @functools.wraps(original)
    def execvp(file: Any, args: Any) -> Any:
        if os.environ.get(REEXECUTED) == "1":
            _discard()
        return original(file, args)

    os.execvp = execvp


@contained
def _discard() -> None:
    global _recorded
    from heaptide import settings
    from heaptide.platforms.airflow import results
    from heaptide.recording import tracker

    recorded, _recorded = _of_this_process(), None
    if recorded is not None:
        os.environ.pop(settings.SESSION, None)
        tracker.stop_only(recorded.capture)
        results.withdraw(recorded.job)


def _end(state: str = "") -> None:
    """Stop the recording and report its numbers. `state` is that of the task, if Airflow has not stored it yet."""
    global _recorded
    recorded, _recorded = _of_this_process(), None
    if recorded is None:
        return
    try:
        _finish(recorded, state)
    except Exception as error:
        log.warning("the memory of this task could not be reported: %s", reason(error))


def _finish(recorded: _Recorded, state: str) -> None:
    from heaptide import settings
    from heaptide.platforms.airflow import captures, results
    from heaptide.recording import tracker

    chosen = profiling.current()
    os.environ.pop(settings.SESSION, None)
    tracker.stop_only(recorded.capture)
    results.measure(recorded.job)
    if not state:
        stored = getattr(recorded.instance, "state", None)
        state = str(getattr(stored, "value", stored) or "failed")
    labels = {"state": state}
    if chosen.upload:
        try:
            labels["uploaded_to"] = captures.upload(recorded.capture)
        except Exception as error:
            log.warning("the capture of this task is not uploaded: %s", reason(error))
    record = results.end(recorded.job, OUTCOMES.get(state, state), recorded.error, **labels)
    log.info("%s", line(record))
    captures.retain(recorded.capture, chosen, recorded.folder)


def line(record: dict[str, Any]) -> str:
    """Return the line about a task for its log. `web/task_logs.py` reads it if the result itself cannot be read."""
    parts = [
        f"peak {size(record['peak_bytes'])}",
        f"retained {size(record['retained_bytes'])}",
        f"resident {size(record['resident_peak'])}",
        f"{record['seconds']:.{2 if record['seconds'] < 10 else 1}f} s",
    ]
    if record["sites"]:
        top = record["sites"][0]
        # Memory that no Python line allocated has no location.
        location = f" ({os.path.basename(top['file'])}:{top['line']})" if top["line"] else ""
        parts.append(f"largest site {top['function']}{location} {size(top['peak_bytes'])}")
    address = record["labels"].get("uploaded_to") or f"{record['host']}:{record['capture']}"
    return f"Heaptide memory: {', '.join(parts)}; capture {address}; {link(record['labels'])}"


def link(key: dict[str, Any]) -> str:
    """Return the address of the Memory tab of a task instance."""
    from airflow.configuration import conf

    base = conf.get("api", "base_url", fallback="") or "http://localhost:8080"
    dag, run, task = (quote(str(key[name]), safe="") for name in ("dag_id", "run_id", "task_id"))
    mapped = f"/mapped/{key['map_index']}" if int(key["map_index"]) >= 0 else ""
    return f"{base.rstrip('/')}/dags/{dag}/runs/{run}/tasks/{task}{mapped}/plugin/memory"


def prefix() -> str:
    """Return the path below which Airflow is served."""
    from airflow.configuration import conf

    return urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")


def size(n_bytes: int | None) -> str:
    """Return a size as all reports show it."""
    from heaptide import _native

    return "unknown" if n_bytes is None else _native.size_text(n_bytes)
