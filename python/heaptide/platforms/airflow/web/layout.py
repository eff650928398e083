"""The layout of the pages: style, theme and small pieces of HTML. :func:`text` escapes all texts from outside."""

from __future__ import annotations

import html
import os
import time
from typing import Any

from heaptide import _native

# Shown where a number is unknown.
NONE = "\u2013"
_HERE = os.path.dirname(os.path.abspath(__file__))

# Airflow sets its theme as a class of its document, which the frame can read because it has the same origin.
_SCRIPT = """
const page = document.documentElement;
const outer = (() => {
  try { return parent === window ? null : parent.document.documentElement; } catch { return null; }
})();
function follow() {
  const isDark = outer ? outer.classList.contains('dark') : matchMedia('(prefers-color-scheme: dark)').matches;
  const theme = isDark ? 'dark' : 'light';
  if (page.dataset.theme === theme) return;
  page.dataset.theme = theme;
  for (const frame of document.querySelectorAll('iframe[data-src]')) {
    frame.contentWindow.location.replace(`${frame.dataset.src}#theme=${theme}`);
  }
}
if (outer) new MutationObserver(follow).observe(outer, { attributes: true, attributeFilter: ['class'] });
addEventListener('DOMContentLoaded', () => { follow(); page.dataset.ready = 'true'; });
"""


def document(title: str, body: str) -> str:
    """Return a whole page."""
    with open(os.path.join(_HERE, "style.css"), encoding="utf-8") as file:
        style = file.read()
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{text(title)} · Heaptide</title>'
        f"<style>{style}</style><script>{_SCRIPT}</script></head>\n<body><main>{body}</main></body></html>\n"
    )


def text(value: object) -> str:
    """Escape a text for HTML."""
    return html.escape(str(value))


def head(title: str, about: str = "") -> str:
    """Return the heading of a page."""
    note = f'<p class="about">{text(about)}</p>' if about else ""
    return f'<header><h1>{text(title)}</h1><span class="brand">Heaptide</span>{note}</header>'


def figures(pairs: list[tuple[str, str]]) -> str:
    """Return large numbers with their names."""
    items = "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in pairs)
    return f'<dl class="figures">{items}</dl>'


def table(columns: list[str], rows: list[list[str]], empty: str) -> str:
    """Return a table whose cells are HTML. Columns whose names begin with `#` contain numbers."""
    if not rows:
        return f'<p class="empty">{text(empty)}</p>'
    classes = [' class="number"' if name.startswith("#") else "" for name in columns]
    titles = "".join(f"<th{kind}>{text(name.lstrip('#'))}</th>" for name, kind in zip(columns, classes, strict=True))
    names = [f' data-name="{text(name.lstrip("#"))}"' for name in columns]
    lines = "".join(
        "<tr>"
        + "".join(f"<td{kind}{name}>{cell}</td>" for cell, kind, name in zip(row, classes, names, strict=True))
        + "</tr>"
        for row in rows
    )
    kind = "scroll cards" if len(columns) > 3 else "scroll"
    return f'<div class="{kind}"><table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table></div>'


def size(n_bytes: int | None) -> str:
    """Return a size as all reports show it."""
    return NONE if n_bytes is None else _native.size_text(n_bytes)


def limit(n_bytes: int | None) -> str:
    """Return a memory limit, a multiple of 16 MiB, in the unit of `heaptide jobs` and of containers."""
    if n_bytes is None:
        return NONE
    return f"{n_bytes >> 20} MiB" if n_bytes % (1 << 30) else f"{n_bytes >> 30} GiB"


def seconds(value: float | None) -> str:
    """Return a duration as the pages of reports show it."""
    if value is None:
        return NONE
    if value < 1:
        return f"{value * 1000:.{1 if value < 0.01 else 0}f} ms"
    if value < 100:
        return f"{value:.{2 if value < 10 else 1}f} s"
    minutes, rest = divmod(int(value), 60)
    return f"{minutes}:{rest:02} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02} h"


def moment(value: float) -> str:
    """Return a time as text, in the API server's time zone, which may differ from the one that Airflow's UI shows."""
    return time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(value)) if value else NONE


def site(row: dict[str, Any]) -> str:
    """Return a function with its location; memory that no Python line allocated has none."""
    if not row["line"]:
        return f"<code>{text(row['function'])}</code>"
    location = f"{os.path.basename(row['file'])}:{row['line']}"
    return (
        f'<code title="{text(row["file"])}">{text(row["function"])}</code> <span class="muted">{text(location)}</span>'
    )
