"""Records the processes that a component forks, each with a descriptive capture name.

A DAG processor forks a process for each parse of each DAG file. The capture of a parse is
``heaptide/parses/<bundle>/<DAG file>.bin``; the next parse of the same file replaces it, so there is one capture per
file. Workers of LocalExecutor join the session of their scheduler: ``scheduler_memory.bin.<pid>``. Their recordings
start and stop with the scheduler's, even if the scheduler was not being recorded when it forked them. The triggerer's
child and the workers of an API server are recorded without this module, as any forked or spawned process.

Airflow has no hook at the start of these processes, so Heaptide replaces the functions that Airflow runs in them. If a
future version renames one of these functions, its processes are not recorded, and one line in the log reports this.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
from collections.abc import Callable
from typing import Any

from heaptide import settings
from heaptide.messages import reason
from heaptide.platforms.airflow import captures, profiling, results
from heaptide.platforms.airflow.profiling import Profiling
from heaptide.recording import capture_files, tracker
from heaptide.recording.session import Session

log = logging.getLogger("heaptide.airflow")

# The ending of a parse's capture while it is being written.
PART = ".part"


def follow(component: str, chosen: Profiling) -> None:
    """Record the children that the component will fork, whenever the component itself is being recorded."""
    if component == "dag_processor":
        _wrap("airflow.dag_processing.processor", "_parse_file", functools.partial(_parse, chosen))
    elif component == "scheduler":
        _wrap("airflow.executors.local_executor", "_run_worker", functools.partial(_work, chosen))


def _wrap(module: str, name: str, wrapper: Callable[..., Any]) -> None:
    try:
        owner = importlib.import_module(module)
        original = getattr(owner, name)
    except (ImportError, AttributeError):
        log.warning("this version of Airflow has no %s.%s: the processes that run it are not recorded", module, name)
        return
    if getattr(original, "is_heaptide", False):
        return

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    wrapped.is_heaptide = True  # type: ignore[attr-defined]
    setattr(owner, name, wrapped)


def _parse(chosen: Profiling, original: Callable[..., Any], msg: Any, *args: Any, **kwargs: Any) -> Any:
    job = None
    try:
        session = _session_of_parent()
        if session is not None:
            job = _begin_parse(msg, chosen, session)
    except Exception as error:
        log.warning("the parse of %s is not recorded: %s", getattr(msg, "file", "a DAG file"), reason(error))
    try:
        return original(msg, *args, **kwargs)
    finally:
        if job is not None:
            try:
                tracker.stop()
                # Replace the capture of the previous parse only now that the new one is complete.
                os.replace(job.record["capture"] + PART, job.record["capture"])
                results.end(job, "ok")
                captures.sweep(chosen, chosen.folder)
            except Exception as error:
                log.warning("the recording of a parse did not stop cleanly: %s", reason(error))


def _begin_parse(msg: Any, chosen: Profiling, session: Session) -> results.Job:
    file = os.fspath(msg.file)
    bundle = str(getattr(msg, "bundle_name", "") or "dags")
    relative = os.path.relpath(file, os.fspath(msg.bundle_path)) if getattr(msg, "bundle_path", None) else file
    path = os.path.join(chosen.folder, "parses", capture_files.safe(bundle), capture_files.safe(relative) + ".bin")
    _retarget(path + PART, chosen, session, ["airflow", "dag-processor", "parse", relative])
    labels = {"component": "dag_processor", "bundle": bundle, "dag_file": relative}
    return results.begin("parse", file, labels, path, os.path.join(chosen.folder, "parses"), keep_latest=True)


def _work(chosen: Profiling, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        session = _session_of_parent()
        if session is not None:
            path = capture_files.child_of(session.path)
            _retarget(path, chosen, session, ["airflow", "scheduler", "LocalExecutor worker"])
        from heaptide.platforms.airflow import component_recording

        component_recording.watch_as_child("scheduler", "LocalExecutor worker", chosen)
    except Exception as error:
        log.warning("a worker of LocalExecutor is not recorded: %s", reason(error))
    try:
        return original(*args, **kwargs)
    finally:
        try:
            tracker.stop()
        except Exception as error:
            log.warning("the recording of a worker did not stop cleanly: %s", reason(error))


def _session_of_parent() -> Session | None:
    """Return the session of the component that forked this process, if it is being recorded."""
    return Session.read(os.environ.get(settings.SESSION, ""))


def _retarget(path: str, chosen: Profiling, session: Session, command: list[str]) -> None:
    """Record this forked process into `path`, instead of a recording that it may have inherited."""
    captures.drop_inherited()
    results.make_folder(os.path.dirname(path))
    options = tracker.RecordingOptions.checked(**chosen.options(is_task=False, component=command[1].replace("-", "_")))
    folders = profiling.dag_folders()
    tracker.start(path, options, overwrite=True, session=session.id, command=command, user_folders=folders)
