"""HTML tables of heap sets and censuses, for notebooks. They use the notebook's styles."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from heaptide import _native

if TYPE_CHECKING:
    from collections.abc import Sequence

N_ROWS = 10


def html_table(heading: str, rows: Sequence[tuple[int, int, str]], first: int = 0, n_rows: int = N_ROWS) -> str:
    """Return a table of rows: number of objects, bytes and name. If `n_rows` is 0, show all rows from `first` on."""
    objects, size = sum(row[0] for row in rows), sum(row[1] for row in rows)
    end = first + n_rows if n_rows else len(rows)
    names = ("", "Objects", "%", "Size", "%", heading)
    parts = [
        f"<p>{objects:,} objects, {_native.size_text(size)}</p>",
        "<table><thead><tr>",
        *(f'<th scope="col">{html.escape(name)}</th>' for name in names),
        "</tr></thead><tbody>",
    ]
    for number, (count, bytes, name) in list(enumerate(rows))[first:end]:
        cells = (f"{count:,}", _share(count, objects), _native.size_text(bytes), _share(bytes, size))
        parts.append(f'<tr><th scope="row">{number}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}')
        parts.append(f'<td style="text-align:left">{html.escape(name)}</td></tr>')
    parts.append("</tbody></table>")
    if end < len(rows):
        parts.append(f"<p>{len(rows) - end:,} more rows</p>")
    return "".join(parts)


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f}%" if whole else ""
