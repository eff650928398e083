"""The page of components: their processes with start, stop and snapshot, their captures, and DAG file parses."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from heaptide.platforms.airflow.web import layout

MAX_CAPTURES = 50
# More workers than this share one row; LocalExecutor has 32 workers by default.
MAX_UNFOLDED = 4
REPORTS = (("flamegraph", "Flame graph"), ("table", "Table"), ("stats", "Statistics"), ("capture", "Download"))


def page(found: dict[str, Any]) -> str:
    """Return the page."""
    body = layout.head("Component memory", f"captures in {found['home']}")
    rows = [row for component in found["components"] for row in _rows(component, found["home"])]
    body += layout.table(["Component", "Process", "State", "Capture", "Control"], rows, "No component is selected.")
    body += "<h2>DAG file parses</h2>" + layout.table(
        ["DAG file", "#Peak", "#Retained", "#Duration", "Largest site", "Report"],
        [_parse(row, found["home"]) for row in sorted(found["parses"], key=lambda row: -(row["peak_bytes"] or 0))],
        "No parse was recorded: select dag_processor.",
    )
    captures = [capture for capture in found["captures"] if not capture["is_parse"]]
    body += "<h2>Captures</h2>" + layout.table(
        ["Capture", "#Size", "Written", "Report"], _captures(captures), "There is no capture yet."
    )
    return layout.document("Component memory", body)


def _captures(captures: list[dict[str, Any]]) -> list[list[str]]:
    """Return a row for each capture. Captures of many workers of a component share one row."""
    workers: dict[str, list[dict[str, Any]]] = {}
    for capture in captures:
        stem, ending, pid = capture["name"].partition(".bin.")
        if pid:
            workers.setdefault(stem + ending, []).append(capture)
    rows: list[list[str]] = []
    for capture in captures:
        stem, ending, pid = capture["name"].partition(".bin.")
        group = workers.get(stem + ending, [])
        if not pid or len(group) <= MAX_UNFOLDED:
            rows.append(_capture(f"<code>{layout.text(capture['name'])}</code>", [capture], _links(capture["name"])))
        elif capture is group[0]:
            name = (
                f"<code>{layout.text(stem + ending)}<i>PID</i></code> <span class='muted'>{len(group)} workers</span>"
            )
            links = "".join(f"<code>{layout.text(one['name'])}</code>{_links(one['name'])}" for one in group)
            rows.append(_capture(name, group, f"<details><summary>Show all</summary>{links}</details>"))
    return rows[:MAX_CAPTURES]


def _capture(name: str, captures: list[dict[str, Any]], links: str) -> list[str]:
    size = sum(capture["bytes"] for capture in captures)
    return [name, layout.size(size), layout.moment(captures[0]["time"]), links]


def _rows(component: dict[str, Any], home: str) -> list[list[str]]:
    name = component["component"]
    if not component["processes"]:
        state = "selected, not running" if component["is_controlled"] else "not selected in [profiling]"
        return [[f"<b>{layout.text(name)}</b>", layout.NONE, f'<span class="muted">{state}</span>', layout.NONE, ""]]
    rows = []
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in component["processes"]:
        groups.setdefault((entry["role"], entry["host"]), []).append(entry)
    for entry in component["processes"]:
        group = groups[entry["role"], entry["host"]]
        if len(group) > MAX_UNFOLDED:
            if entry is group[0]:
                rows.append(_group(name, group))
            continue
        is_main = entry["role"] == "main"
        capture = entry["capture"]
        rows.append(
            [
                f"<b>{layout.text(name)}</b>" + ("" if is_main else f"<br>{layout.text(entry['role'])}"),
                f"{layout.text(entry['host'])}<br>{layout.text(entry['pid'])}",
                '<span class="recording">recording</span>' if capture else '<span class="muted">on standby</span>',
                f"<code>{layout.text(capture.removeprefix(home + '/'))}</code>" if capture else layout.NONE,
                _buttons(name, bool(capture)) if is_main and component["is_controlled"] else "",
            ]
        )
    return rows


def _group(component: str, entries: list[dict[str, Any]]) -> list[str]:
    """Return one row for many workers of one host."""
    first, recorded = entries[0], sum(bool(entry["capture"]) for entry in entries)
    state = f"{recorded} recording" if recorded else "on standby"
    if 0 < recorded < len(entries):
        state += f", {len(entries) - recorded} on standby"
    pids = ", ".join(str(entry["pid"]) for entry in entries)
    return [
        f"<b>{layout.text(component)}</b><br>{len(entries)} \u00d7 {layout.text(first['role'])}",
        f"{layout.text(first['host'])}<details><summary>Process IDs</summary>{layout.text(pids)}</details>",
        f'<span class="{"recording" if recorded else "muted"}">{state}</span>',
        f"<code>{layout.text(component)}_memory.bin.<i>PID</i></code>" if recorded else layout.NONE,
        "",
    ]


def _buttons(component: str, is_recording: bool) -> str:
    actions = ("snapshot", "stop") if is_recording else ("start",)
    return "".join(
        f'<form method="post" action="components/{action}"><input type="hidden" name="component" '
        f'value="{layout.text(component)}"><button>{action.capitalize()}</button></form>'
        for action in actions
    )


def _parse(row: dict[str, Any], home: str) -> list[str]:
    top = (row["sites"] or [None])[0]
    capture = (row["capture"] or "").removeprefix(home + "/")
    return [
        f"<code>{layout.text(row['labels'].get('dag_file', row['key']))}</code>"
        + (" (killed)" if row["outcome"] == "killed" else ""),
        layout.size(row["peak_bytes"]),
        layout.size(row["retained_bytes"]),
        layout.seconds(row["seconds"]),
        layout.site(top) if top else layout.NONE,
        _links(capture),
    ]


def _links(name: str) -> str:
    query = layout.text(urlencode({"name": name}))
    links = [f'<a href="components/{report}?{query}" target="_blank">{label}</a>' for report, label in REPORTS]
    return f'<nav class="links">{"".join(links)}</nav>'
