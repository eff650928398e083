"""The page of components: which run and are recorded, with start, stop and snapshot; captures; parses of DAG files."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from heaptide.platforms.airflow.web import layout

MAX_CAPTURES = 50
REPORTS = (("flamegraph", "Flame graph"), ("table", "Table"), ("stats", "Statistics"), ("capture", "Download"))


def page(found: dict[str, Any]) -> str:
    """Return the page."""
    body = layout.head("Component memory", f"captures in {found['home']}")
    rows = [row for component in found["components"] for row in _rows(component, found["home"])]
    body += layout.table(["Component", "Process", "State", "Capture", "Control"], rows, "No component is selected.")
    body += "<h2>DAG file parses</h2>" + layout.table(
        ["DAG file", "#peak", "#retained", "#duration", "Largest site", "Report"],
        [_parse(row, found["home"]) for row in sorted(found["parses"], key=lambda row: -(row["peak_bytes"] or 0))],
        "No parse was recorded: select dag_processor.",
    )
    captures = [capture for capture in found["captures"] if not capture["is_parse"]][:MAX_CAPTURES]
    body += "<h2>Captures</h2>" + layout.table(
        ["Capture", "#size", "Written", "Report"],
        [
            [
                f"<code>{layout.text(capture['name'])}</code>",
                layout.size(capture["bytes"]),
                layout.moment(capture["time"]),
                _links(capture["name"]),
            ]
            for capture in captures
        ],
        "There is no capture yet.",
    )
    return layout.document("Component memory", body)


def _rows(component: dict[str, Any], home: str) -> list[list[str]]:
    name = component["component"]
    if not component["processes"]:
        state = "selected, not running" if component["is_controlled"] else "not selected in [profiling]"
        return [[f"<b>{layout.text(name)}</b>", layout.NONE, f'<span class="muted">{state}</span>', layout.NONE, ""]]
    rows = []
    for entry in component["processes"]:
        is_main = entry["role"] == "main"
        capture = entry["capture"]
        rows.append(
            [
                f"<b>{layout.text(name)}</b>" + ("" if is_main else f"<br>{layout.text(entry['role'])}"),
                f"{layout.text(entry['host'])}<br>{layout.text(entry['pid'])}",
                '<span class="recording">recording</span>' if capture else '<span class="muted">standing by</span>',
                f"<code>{layout.text(capture.removeprefix(home + '/'))}</code>" if capture else layout.NONE,
                _buttons(name, bool(capture)) if is_main and component["is_controlled"] else "",
            ]
        )
    return rows


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
