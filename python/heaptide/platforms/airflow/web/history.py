"""The history of task instances, from their records, or from a line in their log if a record cannot be read."""

from __future__ import annotations

import os
from typing import Any

from heaptide.platforms.airflow import captures, profiling, results
from heaptide.platforms.airflow.tasks import KEY
from heaptide.platforms.airflow.web import task_logs

# The chart of a task shows at most this many processes, the latest ones.
MAX_BARS = 50
# A suggested limit is the highest resident size times HEADROOM, rounded up to a multiple of STEP.
HEADROOM = 1.2
STEP = 16 << 20


def of_dag(dag_id: str) -> list[dict[str, Any]]:
    """Return the records of a DAG's task instances, the oldest first."""
    folder = captures.folder_of(dag_id, profiling.current().folder)
    rows = [row for row in results.read(folder) if row["labels"].get("dag_id") == dag_id]
    _mark_killed_on_other_hosts(dag_id, rows)
    for row in rows:
        complete(row)
    return rows


def of_dag_and_its_logs(dag_id: str) -> list[dict[str, Any]]:
    """Return the records of a DAG's task instances, and the records that are only in their logs, the oldest first."""
    rows = of_dag(dag_id)
    known = {tuple(str(row["labels"].get(name)) for name in KEY[1:]) for row in rows}
    return sorted(rows + task_logs.of_dag(dag_id, known), key=lambda row: float(row["began"]))


def of_task_instance(dag_id: str, run_id: str, task_id: str, map_index: int) -> list[dict[str, Any]]:
    """Return the records of a task instance, one for each process of each try, the oldest first.

    Numbers of a process that is still running are those of this moment.
    """
    wanted = {"run_id": run_id, "task_id": task_id, "map_index": str(map_index)}
    rows = [row for row in of_dag(dag_id) if all(row["labels"].get(key) == value for key, value in wanted.items())]
    for row in rows:
        path = readable_capture(row) if row["outcome"] == results.RUNNING else None
        if path is not None:
            _add(row, results.summary(path))
    states = _states(dag_id, run_id, task_id, map_index)
    for number in states:
        tries = [row for row in rows if row["labels"].get("try_number") == str(number)]
        if any(row["peak_bytes"] is not None for row in tries):
            continue
        logged = task_logs.of_try(dag_id, run_id, task_id, map_index, number)
        if logged:
            rows = [row for row in rows if row not in tries] + logged
    for row in rows:
        row["airflow_state"] = states.get(int(row["labels"].get("try_number", 0)))
    return sorted(rows, key=lambda row: (int(row["labels"]["try_number"]), row["began"]))


def _mark_killed_on_other_hosts(dag_id: str, rows: list[dict[str, Any]]) -> None:
    """Mark running processes of other hosts as killed if their try has failed in Airflow."""
    known: dict[tuple[str, str, int], dict[int, str | None]] = {}
    for row in rows:
        if row["outcome"] == results.RUNNING and not results.is_visible(row):
            labels = row["labels"]
            key = (labels["run_id"], labels["task_id"], int(labels["map_index"]))
            if key not in known:
                known[key] = _states(dag_id, *key)
            if known[key].get(int(labels["try_number"])) in ("failed", "up_for_retry"):
                row["outcome"] = results.KILLED


def last_host(dag_id: str, run_id: str, task_id: str, map_index: int) -> str:
    """Return the host of a task instance's last try, as Airflow names it; empty if it has not run."""
    found = task_logs.instances(dag_id, run_id, task_id, map_index)
    return str(found[max(found)].hostname or "") if found else ""


def find(dag_id: str, record: str) -> dict[str, Any] | None:
    """Return a record of the DAG by its ID."""
    return next((row for row in of_dag(dag_id) if record_id(row) == record), None)


def record_id(row: dict[str, Any]) -> str:
    """Return the text that identifies a record in a URL."""
    return f"{row['id']}/{row['labels'].get('try_number')}"


def readable_capture(row: dict[str, Any]) -> str | None:
    """Return the path of a record's capture, if it is in the folder of captures and this process can read it.

    Tasks write records, so a record must not make the API server send any other file.
    """
    path = str(row["capture"] or "")
    folder = os.path.realpath(profiling.current().folder) + os.sep
    is_inside = os.path.realpath(path).startswith(folder) and not os.path.islink(path)
    return path if is_inside and os.path.isfile(path) and os.access(path, os.R_OK) else None


def is_removed(row: dict[str, Any]) -> bool:
    """Return whether the capture was removed: it is missing in the folder that has the record, and was not uploaded.

    For a row from a log this is unknown: the folder may be on another host, with the same path.
    """
    is_record = "boot_id" in row and "uploaded_to" not in row["labels"]
    path = str(row["capture"] or "")
    is_inside = path.startswith(profiling.current().folder + os.sep)
    return is_record and is_inside and not os.path.lexists(path)


def location(row: dict[str, Any]) -> str:
    """Return the location of the capture as a text to show."""
    return row["labels"].get("uploaded_to") or f"{row['host']}:{row['capture']}"


def suggested_limit(rows: list[dict[str, Any]]) -> int | None:
    """Return a memory limit for a task: the highest resident size of its processes with headroom."""
    keys = ("resident_peak", "resident_after", "resident_before")
    sizes = [max(row.get(key) or 0 for key in keys) for row in rows if row["resident_peak"]]
    return None if not sizes else -int(-max(sizes) * HEADROOM // STEP) * STEP


def complete(row: dict[str, Any]) -> None:
    """Add the numbers of the capture to a record that lacks them: of a killed task, or of a parse."""
    path = None if row["outcome"] == results.RUNNING or row["peak_bytes"] is not None else readable_capture(row)
    if path is not None:
        _add(row, _summary(path, os.stat(path).st_mtime_ns))


def _add(row: dict[str, Any], numbers: dict[str, Any]) -> None:
    row.update(numbers)
    row["seconds"] = row["seconds"] or row.get("recorded_seconds")


_summaries: dict[tuple[str, int], dict[str, Any]] = {}


def _summary(path: str, changed: int) -> dict[str, Any]:
    if (path, changed) not in _summaries:
        if len(_summaries) > 1000:
            _summaries.clear()
        _summaries[path, changed] = results.summary(path)
    return _summaries[path, changed]


def _states(dag_id: str, run_id: str, task_id: str, map_index: int) -> dict[int, str | None]:
    """Return Airflow's state of each try."""
    found = task_logs.instances(dag_id, run_id, task_id, map_index)
    return {number: str(instance.state) if instance.state else None for number, instance in found.items()}
