"""The Memory tab of a task instance: its numbers, its largest sites, and its curve and flame graph in a frame."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from heaptide.platforms.airflow import captures, profiling, results
from heaptide.platforms.airflow.web import history, layout

# The name of the site of memory that Python allocates for small objects.
ARENA = "Python objects (arena)"
OUTCOMES = {
    "ok": "succeeded",
    "killed": "killed",
    "running": "running",
    "retried": "failed, will be retried",
    "deferred": "deferred",
}


def page(dag_id: str, run_id: str, task_id: str, map_index: int, rows: list[dict[str, Any]], record: str) -> str:
    """Return the page."""
    title = f"{dag_id}.{task_id}" + (f" [{map_index}]" if map_index >= 0 else "")
    body = layout.head(title, run_id)
    if not rows:
        return layout.document(title, body + _empty(dag_id, run_id, task_id, map_index))
    shown = next((row for row in rows if history.record_id(row) == record), rows[-1])
    key = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "map_index": map_index}
    body += _tries(rows, shown, key) + _figures(shown) + _notes(shown) + _sites(shown) + _graph(shown)
    return layout.document(title, body)


def _empty(dag_id: str, run_id: str, task_id: str, map_index: int) -> str:
    """Return the reason why there is nothing to show."""
    host = history.last_host(dag_id, run_id, task_id, map_index)
    if not profiling.current().selects_task(dag_id, task_id):
        reason = (
            "No memory was recorded for this task instance. Heaptide records the tasks that "
            "<code>heaptide_trace_tasks</code> in the section <code>[profiling]</code> of Airflow's configuration "
            f"selects, for example <code>{layout.text(dag_id)}.*</code>"
        )
    elif not host:
        reason = "This task instance has not run yet."
    else:
        folder = captures.folder_of(dag_id, "heaptide")
        reason = (
            f"No record of this task instance can be read. It ran on <code>{layout.text(host)}</code>. If it was being "
            "recorded and was killed there, its capture is on that host, in the folder "
            f"<code>{layout.text(folder)}</code> of <code>heaptide_home</code>."
        )
    return f'<p class="empty">{reason}</p>'


def _tries(rows: list[dict[str, Any]], shown: dict[str, Any], key: dict[str, Any]) -> str:
    """Return links to all processes of this task instance with their peaks, if there are several."""
    if len(rows) == 1:
        return ""
    links = []
    for row in rows:
        number = row["labels"]["try_number"]
        parts = [other for other in rows if other["labels"]["try_number"] == number]
        name = f"try {number}" + (f", part {parts.index(row) + 1}" if len(parts) > 1 else "")
        if row["peak_bytes"] is not None:
            name += f": {layout.size(row['peak_bytes'])}"
        address = "?" + urlencode({**key, "record": history.record_id(row)})
        current = ' aria-current="true"' if row is shown else ""
        links.append(f'<a href="{layout.text(address)}"{current}>{name}</a>')
    return f'<nav class="choice">{"".join(links)}</nav>'


def _figures(row: dict[str, Any]) -> str:
    outcome = OUTCOMES.get(row["outcome"], row["outcome"]) or row.get("airflow_state") or layout.NONE
    return layout.figures(
        [
            ("peak of the heap", layout.size(row["peak_bytes"])),
            ("live now" if _is_running(row) else "retained at the end", layout.size(row["retained_bytes"])),
            ("resident peak", layout.size(row["resident_peak"])),
            ("duration", layout.seconds(row["seconds"])),
            ("outcome", outcome),
        ]
    )


def _is_running(row: dict[str, Any]) -> bool:
    return bool(row["outcome"] == results.RUNNING)


def _notes(row: dict[str, Any]) -> str:
    notes = []
    if row["outcome"] == "killed" and results.is_visible(row):
        notes.append("The process was killed: it ended without calling any hook. The numbers reach up to that moment.")
    elif row["outcome"] == "killed":
        notes.append(
            f"The process on {row['host']} did not report its end: it was killed, or it runs without contact to "
            "Airflow. The numbers reach up to its last record."
        )
    if _is_running(row) and row.get("airflow_state") in ("failed", "up_for_retry"):
        notes.append(f"Airflow counts this task as {row['airflow_state']}, but its process is still running.")
    if row["error"]:
        notes.append(f"The task raised {row['error']}.")
    if history.is_removed(row):
        notes.append(
            "The capture has been removed: [profiling] heaptide_keep, heaptide_keep_days and "
            "heaptide_keep_bytes limit what is kept."
        )
    elif history.readable_capture(row) is None:
        notes.append(f"The capture is not readable on this host; it is at {history.location(row)}")
    return "".join(f'<p class="note">{layout.text(note)}</p>' for note in notes)


def _sites(row: dict[str, Any]) -> str:
    rows = [
        [layout.site(site), layout.size(site["peak_bytes"]), layout.size(site["bytes"])]
        for site in (row["sites"] or [])[:5]
    ]
    columns = ["Largest sites", "#At the peak", "#Now" if _is_running(row) else "#At the end"]
    body = layout.table(columns, rows, "No site was recorded.")
    if any(site["function"] == ARENA for site in (row["sites"] or [])[:5]):
        body += (
            '<p class="about">Small Python objects share arenas, so no line is named for them. '
            "<code>heaptide_mode = objects</code> records the line of each object.</p>"
        )
    return body


def _graph(row: dict[str, Any]) -> str:
    if history.readable_capture(row) is None:
        return ""
    query = urlencode({"dag_id": row["labels"]["dag_id"], "record": history.record_id(row)})
    links = "".join(
        f'<a href="task-instance/{layout.text(report)}?{layout.text(query)}" target="_blank">{layout.text(name)}</a>'
        for report, name in (
            ("flamegraph", "Flame graph"),
            ("table", "Table"),
            ("timeline", "Timeline"),
            ("stats", "Statistics"),
            ("capture", "Capture"),
        )
    )
    source = f"task-instance/flamegraph?{layout.text(query)}"
    frame = f'<iframe data-src="{source}" title="Memory over time and flame graph"></iframe>'
    return f'<nav class="links">{links}</nav>{frame}'
