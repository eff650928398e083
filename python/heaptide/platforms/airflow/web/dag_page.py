"""The Memory tab of a DAG: peak and retained memory of each task over its runs, with a suggested limit."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from heaptide.platforms.airflow import tasks
from heaptide.platforms.airflow.web import history, layout

WIDTH, HEIGHT, GAP = 200, 56, 2


def page(dag_id: str, rows: list[dict[str, Any]]) -> str:
    """Return the page."""
    body = layout.head(dag_id, "memory of each task over its runs")
    by_task: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_task.setdefault(row["labels"]["task_id"], []).append(row)
    cells = [_cells(task_id, found) for task_id, found in sorted(by_task.items(), key=lambda pair: -_peak(pair[1]))]
    body += layout.table(
        ["Task", "Peak over runs", "#Last peak", "#Highest peak", "#Retained", "#Suggested limit", "Largest site"],
        cells,
        "No record of this DAG can be read. Heaptide records the tasks that [profiling] heaptide_trace_tasks selects.",
    )
    if cells:
        body += (
            '<p class="about">Bars: peak of the heap of each process; the solid part was still allocated at its end. '
            "Last peak, retained memory and largest site: of the process with the highest peak in the last run "
            "(only last tries). "
            "The suggested limit is the highest resident size plus 20%, rounded up to a multiple of 16 MiB.</p>"
        )
    return layout.document(dag_id, body)


def _peak(rows: list[dict[str, Any]]) -> int:
    return max(row["peak_bytes"] or 0 for row in rows)


def _cells(task_id: str, rows: list[dict[str, Any]]) -> list[str]:
    last = _highest_of_last_run(rows)
    top = (last["sites"] or [None])[0]
    address = _tab(last["labels"])
    return [
        f'<a href="{layout.text(address)}" target="_top"><code>{layout.text(task_id)}</code></a>',
        bars(rows[-history.MAX_BARS :]),
        layout.size(last["peak_bytes"]),
        layout.size(_peak(rows)),
        layout.size(last["retained_bytes"]),
        layout.limit(history.suggested_limit(rows)),
        layout.site(top) if top else layout.NONE,
    ]


def _highest_of_last_run(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the process with the highest peak among the last tries of the last run.

    There are several if the task is mapped or deferred. An earlier try may have failed and retained everything.
    """
    run = [row for row in rows if row["labels"]["run_id"] == rows[-1]["labels"]["run_id"]]
    tries: dict[str, int] = {}
    for row in run:
        index, number = row["labels"]["map_index"], int(row["labels"]["try_number"])
        tries[index] = max(tries.get(index, 0), number)
    last = [row for row in run if int(row["labels"]["try_number"]) == tries[row["labels"]["map_index"]]]
    return max(last, key=lambda row: row["peak_bytes"] or 0)


def _tab(labels: dict[str, str]) -> str:
    dag, run, task = (quote(labels[name], safe="") for name in ("dag_id", "run_id", "task_id"))
    mapped = f"/mapped/{labels['map_index']}" if int(labels["map_index"]) >= 0 else ""
    return f"{tasks.prefix()}/dags/{dag}/runs/{run}/tasks/{task}{mapped}/plugin/memory"


def bars(rows: list[dict[str, Any]]) -> str:
    """Return a chart of peaks, with retained memory as the lower part of each bar."""
    highest = max(_peak(rows), 1)
    step = min(WIDTH / max(len(rows), 1), 24)
    parts = []
    for number, row in enumerate(rows):
        x = number * step
        name = f"{row['labels']['run_id']}, try {row['labels']['try_number']}: "
        name += f"{layout.size(row['peak_bytes'])} at the peak, {layout.size(row['retained_bytes'])} retained"
        for kind, value in (("peak", row["peak_bytes"]), ("retained", row["retained_bytes"])):
            height = max((value or 0) / highest * HEIGHT, 1)
            parts.append(
                f'<rect class="{kind}" x="{x:.1f}" y="{HEIGHT - height:.1f}" width="{max(step - GAP, 1):.1f}" '
                f'height="{height:.1f}"><title>{layout.text(name)}</title></rect>'
            )
    width = max(round(step * len(rows)), 1)
    return (
        f'<svg class="bars" role="img" aria-label="peaks of {len(rows)} processes" width="{width}" height="{HEIGHT}" '
        f'viewBox="0 0 {width} {HEIGHT}">{"".join(parts)}</svg>'
    )
