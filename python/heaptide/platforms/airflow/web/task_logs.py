"""Creates records from lines in task logs, for tasks whose own records cannot be read.

If a task ran on another host without a shared folder, or as another user, the API server cannot read its record.
Airflow collects the logs of all hosts, so this module reads the line that Heaptide wrote to the log. Reading a log may
send a request to another host, so a page reads only a few new logs, and records of ended tries are cached. A log that
cannot be read is tried again later.
"""

from __future__ import annotations

import logging
import re
import time
from typing import Any

from heaptide.messages import reason
from heaptide.platforms.airflow import profiling
from heaptide.platforms.airflow.tasks import KEY

log = logging.getLogger("heaptide.airflow")

# The page of a DAG considers this many task instances, and reads at most this many logs, for at most this time.
MAX_INSTANCES = 200
MAX_LOGS = 20
MAX_SECONDS = 5
# A log may reach its location some time after the end of the task.
MAX_DELAY = 60
# Seconds until a log that could not be read is tried again.
RETRY_AFTER = 600
ENDED = ("success", "failed", "skipped")

_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15}
_SIZE = rf"[\d.]+ (?:{'|'.join(_UNITS)})"
_LINE = re.compile(
    rf"Heaptide memory: peak (?P<peak>{_SIZE}|unknown), retained (?P<retained>{_SIZE}|unknown), "
    rf"resident (?P<resident>{_SIZE}|unknown), (?P<seconds>[\d.]+) s"
    rf"(?:, largest site (?P<function>.*?)(?: \((?P<file>[^()]*):(?P<line>\d+)\))? (?P<site>{_SIZE}))?"
    r"; capture (?P<capture>.+); \S+$"
)

# What Airflow's log reader yields instead of a log that it could not get from the worker.
_NOT_READ = "Could not read served logs"

_cached: dict[tuple[str, ...], list[dict[str, Any]]] = {}
# When a log could not be read, by the same keys.
_failed: dict[tuple[str, ...], float] = {}


def instances(dag_id: str, run_id: str, task_id: str, map_index: int) -> dict[int, Any]:
    """Return Airflow's task instances of all tries, by the number of the try."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.taskinstancehistory import TaskInstanceHistory
    from sqlalchemy import select

    found: dict[int, Any] = {}
    for model in (TaskInstanceHistory, TaskInstance):
        query = select(model).where(
            model.dag_id == dag_id, model.run_id == run_id, model.task_id == task_id, model.map_index == map_index
        )
        found.update({instance.try_number: instance for instance in _load(query, model)})
    return found


def of_try(dag_id: str, run_id: str, task_id: str, map_index: int, try_number: int) -> list[dict[str, Any]]:
    """Return the records in the log of one try."""
    instance = instances(dag_id, run_id, task_id, map_index).get(try_number)
    return [] if instance is None else _read(instance) or []


def of_dag(dag_id: str, known: set[tuple[str, ...]]) -> list[dict[str, Any]]:
    """Return records from the logs of the latest selected task instances, except those whose keys are `known`."""
    chosen = profiling.current()
    found: list[dict[str, Any]] = []
    n_read, began = 0, time.monotonic()
    for instance in _ended_instances(dag_id):
        key = tuple(str(getattr(instance, name)) for name in KEY)
        if key[1:] in known or not chosen.selects_task(dag_id, instance.task_id):
            continue
        if key not in _cached:
            if key in _failed and time.monotonic() - _failed[key] < RETRY_AFTER:
                continue
            if n_read == MAX_LOGS or time.monotonic() - began > MAX_SECONDS:
                break
            n_read += 1
            rows = _read(instance)
            if not rows and time.time() - instance.end_date.timestamp() < MAX_DELAY:
                continue
            if len(_cached) + len(_failed) > 1000:
                _cached.clear()
                _failed.clear()
            if rows is None:
                _failed[key] = time.monotonic()
                continue
            _cached[key] = rows
        found += _cached[key]
    return found


def _ended_instances(dag_id: str) -> list[Any]:
    """Return the latest task instances of a DAG that have ended."""
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import select

    query = select(TaskInstance).where(
        TaskInstance.dag_id == dag_id, TaskInstance.state.in_(ENDED), TaskInstance.end_date.is_not(None)
    )
    return _load(query.order_by(TaskInstance.end_date.desc()).limit(MAX_INSTANCES), TaskInstance)


def _load(query: Any, model: Any) -> list[Any]:
    """Return task instances with all fields that Airflow needs to read their logs: the session ends before that."""
    from airflow.models.trigger import Trigger
    from airflow.utils.session import create_session
    from sqlalchemy.orm import joinedload

    query = query.options(joinedload(model.dag_run))
    if hasattr(model, "trigger"):
        query = query.options(joinedload(model.trigger).joinedload(Trigger.triggerer_job), joinedload(model.dag_model))
    with create_session() as session:
        found = list(session.scalars(query))
        session.expunge_all()
    return found


def _read(instance: Any) -> list[dict[str, Any]] | None:
    """Return the records in the log of a task instance, or None if the log cannot be read."""
    if not instance.try_number:
        return []
    try:
        from airflow.utils.log.log_reader import TaskLogReader

        stream, _ = TaskLogReader().read_log_chunks(instance, instance.try_number, {"download_logs": True})
        key = {name: getattr(instance, name) for name in KEY}
        rows, is_complete = [], True
        for text in (str(getattr(message, "event", "")) for message in stream):
            row = from_line(text, key)
            rows += [] if row is None else [row]
            is_complete = is_complete and not text.startswith(_NOT_READ)
    except Exception as error:
        log.warning("the log of %s.%s cannot be read: %s", instance.dag_id, instance.task_id, reason(error))
        return None
    if not rows and not is_complete:
        return None
    for number, row in enumerate(rows, 1):
        row["id"] = f"log/{number}"
        row["began"] = (instance.start_date.timestamp() if instance.start_date else 0.0) + number
    return rows


def from_line(text: str, key: dict[str, Any]) -> dict[str, Any] | None:
    """Return the record that a line in a task's log describes, or None."""
    match = _LINE.search(text)
    if match is None:
        return None
    host, colon, path = match["capture"].partition(":")
    is_address = path.startswith("//")
    sites = []
    if match["function"]:
        sites = [
            {
                "function": match["function"],
                "file": match["file"] or "",
                "line": int(match["line"] or 0),
                "peak_bytes": _bytes(match["site"]),
                "bytes": None,
                "blocks": None,
            }
        ]
    return {
        "id": "log",
        "labels": {name: str(key[name]) for name in KEY} | ({"uploaded_to": match["capture"]} if is_address else {}),
        "outcome": "",
        "error": None,
        "began": 0.0,
        "seconds": float(match["seconds"]),
        "peak_bytes": _bytes(match["peak"]),
        "retained_bytes": _bytes(match["retained"]),
        "resident_peak": _bytes(match["resident"]),
        "sites": sites,
        "host": "" if is_address or not colon else host,
        "capture": path,
    }


def _bytes(text: str) -> int | None:
    if text == "unknown":
        return None
    number, unit = text.split()
    return round(float(number) * _UNITS[unit])
