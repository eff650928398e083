"""What is known about task instances: their records, and the line in their log where a record is out of reach.

A task that ran on another host without a shared folder, or as another user, left its record there. Airflow collects the
task's log from everywhere, so the numbers in it are shown, with the location of the capture.
"""

from __future__ import annotations

import logging
import os
import re
from typing import Any

from heaptide.messages import reason
from heaptide.platforms.airflow import captures, profiling, results
from heaptide.platforms.airflow.tasks import KEY

log = logging.getLogger("heaptide.airflow")

MAX_RUNS = 50
# A limit is this much above the highest resident size that was seen, in steps of 16 MiB.
HEADROOM = 1.2
STEP = 16 << 20

_LINE = re.compile(
    r"Heaptide memory: peak (?P<peak>[\d.]+ MB|unknown), retained (?P<retained>[\d.]+ MB|unknown), "
    r"resident (?P<resident>[\d.]+ MB|unknown), (?P<seconds>[\d.]+) s"
    r"(?:, largest site (?P<function>.*?) \((?P<file>[^()]*):(?P<line>\d+)\) (?P<site>[\d.]+ MB))?"
    r"; capture (?P<capture>\S+);"
)


def of_dag(dag_id: str) -> list[dict[str, Any]]:
    """Return the records of a DAG's task instances, the oldest first."""
    folder = captures.folder_of(dag_id, profiling.current().folder)
    rows = [row for row in results.read(folder) if row["labels"].get("dag_id") == dag_id]
    for row in rows:
        complete(row)
    return rows


def of_task_instance(dag_id: str, run_id: str, task_id: str, map_index: int) -> list[dict[str, Any]]:
    """Return the records of a task instance, one for each process of each try, the oldest first."""
    wanted = {"run_id": run_id, "task_id": task_id, "map_index": str(map_index)}
    rows = [row for row in of_dag(dag_id) if all(row["labels"].get(key) == value for key, value in wanted.items())]
    states = _states(dag_id, run_id, task_id, map_index)
    for number in states:
        tries = [row for row in rows if row["labels"].get("try_number") == str(number)]
        if any(row["peak_bytes"] is not None for row in tries):
            continue
        logged = _from_log(dag_id, run_id, task_id, map_index, number)
        if logged:
            rows = [row for row in rows if row not in tries] + logged
    for row in rows:
        row["airflow_state"] = states.get(int(row["labels"].get("try_number", 0)))
    return sorted(rows, key=lambda row: (int(row["labels"]["try_number"]), row["began"]))


def find(dag_id: str, record: str) -> dict[str, Any] | None:
    """Return a record of the DAG by its ID."""
    return next((row for row in of_dag(dag_id) if record_id(row) == record), None)


def record_id(row: dict[str, Any]) -> str:
    """Return what identifies a record in an address."""
    return f"{row['id']}/{row['labels'].get('try_number')}"


def capture_here(row: dict[str, Any]) -> str | None:
    """Return the path of a record's capture, if it is in the folder of captures and this process can read it.

    Tasks write records, so a record must not make the API server send any other file.
    """
    path = str(row["capture"] or "")
    folder = os.path.realpath(profiling.current().folder) + os.sep
    is_inside = os.path.realpath(path).startswith(folder) and not os.path.islink(path)
    return path if is_inside and os.path.isfile(path) and os.access(path, os.R_OK) else None


def location(row: dict[str, Any]) -> str:
    """Return where the capture is, for people."""
    return row["labels"].get("uploaded_to") or f"{row['host']}:{row['capture']}"


def suggested_limit(rows: list[dict[str, Any]]) -> int | None:
    """Return a memory limit for a task: the highest resident size of its processes with headroom."""
    sizes = [row["resident_peak"] for row in rows if row["resident_peak"]]
    return None if not sizes else -int(-max(sizes) * HEADROOM // STEP) * STEP


def complete(row: dict[str, Any]) -> None:
    """Add the numbers of a capture to a record without any: a killed task's, or a parse's."""
    if row["outcome"] == results.RUNNING or row["peak_bytes"] is not None:
        return
    path = capture_here(row)
    if path is not None:
        row.update(_summary(path, os.stat(path).st_mtime_ns))
        row["seconds"] = row["seconds"] or row.get("recorded_seconds")


_summaries: dict[tuple[str, int], dict[str, Any]] = {}


def _summary(path: str, changed: int) -> dict[str, Any]:
    if (path, changed) not in _summaries:
        if len(_summaries) > 1000:
            _summaries.clear()
        _summaries[path, changed] = results.summary(path)
    return _summaries[path, changed]


def _instances(dag_id: str, run_id: str, task_id: str, map_index: int) -> dict[int, Any]:
    """Return Airflow's task instances of all tries; the caller needs no session afterwards."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.taskinstancehistory import TaskInstanceHistory
    from airflow.utils.session import create_session
    from sqlalchemy import select
    from sqlalchemy.orm import joinedload

    found: dict[int, Any] = {}
    with create_session() as session:
        for model in (TaskInstanceHistory, TaskInstance):
            query = (
                select(model)
                .where(
                    model.dag_id == dag_id,
                    model.run_id == run_id,
                    model.task_id == task_id,
                    model.map_index == map_index,
                )
                .options(joinedload(model.dag_run))
            )
            for instance in session.scalars(query):
                found[instance.try_number] = instance
        session.expunge_all()
    return found


def _states(dag_id: str, run_id: str, task_id: str, map_index: int) -> dict[int, str | None]:
    """Return Airflow's state of each try."""
    instances = _instances(dag_id, run_id, task_id, map_index)
    return {number: str(instance.state) if instance.state else None for number, instance in instances.items()}


def _from_log(dag_id: str, run_id: str, task_id: str, map_index: int, try_number: int) -> list[dict[str, Any]]:
    """Return records made of the lines in a task's log."""
    try:
        from airflow.utils.log.log_reader import TaskLogReader

        instance = _instances(dag_id, run_id, task_id, map_index).get(try_number)
        if instance is None or not try_number:
            return []
        stream, _ = TaskLogReader().read_log_chunks(instance, try_number, {"download_logs": True})
        key = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "map_index": map_index, "try_number": try_number}
        found = [from_line(str(getattr(message, "event", "")), key) for message in stream]
        rows = [row for row in found if row is not None]
        for number, row in enumerate(rows, 1):
            row["id"] = f"log/{number}"
        return rows
    except Exception as error:
        log.warning("the log of %s.%s cannot be read for its memory: %s", dag_id, task_id, reason(error))
        return []


def from_line(text: str, key: dict[str, Any]) -> dict[str, Any] | None:
    """Return the record that a line in a task's log describes, or nothing."""
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
                "file": match["file"],
                "line": int(match["line"]),
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
    return None if text == "unknown" else round(float(text.split()[0]) * 1e6)
