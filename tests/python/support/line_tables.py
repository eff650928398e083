"""Parses the tables that `@profile`, `heaptide lines` and memory_profiler print."""

from __future__ import annotations

import re
from typing import NamedTuple


class Row(NamedTuple):
    """One line of a report; sizes are in MiB, and None if the line did not run."""

    line: int
    usage: float | None
    increment: float | None
    visits: int | None
    text: str


class Table(NamedTuple):
    """The table of one function."""

    file: str
    rows: list[Row]

    def row(self, text: str) -> Row:
        """Return the only row whose line contains `text`."""
        (row,) = [row for row in self.rows if text in row.text]
        return row


CELLS = re.compile(r" *(-?[\d.]+) MiB +(-?[\d.]+) MiB +(\d+)$")
# The column where the text of a line begins.
TEXT_AT = 47


def tables(report: str) -> list[Table]:
    """Parse the output of `@profile` or memory_profiler."""
    found = []
    for part in report.split("Filename: ")[1:]:
        file, _, head, rule, *lines = part.split("\n")
        assert head == "Line #    Mem usage    Increment  Occurrences   Line Contents"
        assert rule == "=" * len(head)
        rows = []
        for line in lines:
            if not line:
                break
            number, cells, text = line[:6], line[6 : TEXT_AT - 3], line[TEXT_AT:]
            if not cells.strip():
                rows.append(Row(int(number), None, None, None, text))
                continue
            match = CELLS.match(cells)
            assert match, line
            rows.append(Row(int(number), float(match[1]), float(match[2]), int(match[3]), text))
        found.append(Table(file, rows))
    return found
