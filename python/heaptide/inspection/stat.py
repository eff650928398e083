"""heapy's tables without their objects: they can be kept, written to a file, read again and subtracted."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from heaptide import _native, private_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TextIO

    RowList = list[tuple[int, int, str]]

N_ROWS = 10
# Titles of tables, by which a file identifies the classifier.
HEADINGS = {
    "kind": "Kind (class / dict of class)",
    "type": "Type",
    "size": "Individual Size",
    "module": "Module",
    "via": "Referred Via:",
    "referrers": "Referrers by Kind (class / dict of class)",
    "unity": "<unclassified>",
    "producer": "Producer (line of allocation)",
}


class Stat:
    """Rows with their counts and bytes. Prints as the original table; ``-`` is the difference of two.

    count     number of objects
    size      their bytes
    timemade  time of the inspection, in seconds since 1970
    numrows   number of rows
    """

    __slots__ = ("_by", "_first", "_n_rows", "_rows", "timemade")

    def __init__(
        self, by: str, rows: RowList, timemade: float | None = None, first: int = 0, n_rows: int = N_ROWS
    ) -> None:
        # A classifier that needs the objects themselves, such as `id`, cannot be used without them.
        self._by = by if by in HEADINGS else "kind"
        self._rows = rows
        self.timemade = time.time() if timemade is None else timemade
        self._first = first
        self._n_rows = n_rows

    @property
    def count(self) -> int:
        """Number of objects."""
        return sum(row[0] for row in self._rows)

    @property
    def size(self) -> int:
        """Their bytes."""
        return sum(row[1] for row in self._rows)

    @property
    def numrows(self) -> int:
        """Number of rows."""
        return len(self._rows)

    @property
    def rows(self) -> RowList:
        """Count, bytes and name of each row."""
        return list(self._rows)

    @property
    def more(self) -> Stat:
        """The rows after these."""
        return Stat(self._by, self._rows, self.timemade, self._first + N_ROWS)

    @property
    def all(self) -> Stat:
        """The whole table."""
        return Stat(self._by, self._rows, self.timemade, n_rows=0)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Stat:
        return Stat(self._by, [self._rows[index]], self.timemade)

    def __sub__(self, earlier: Stat) -> StatDifference:
        return StatDifference(self._by, earlier._rows, self._rows)

    diff = __sub__

    def dump(self, fn: str | os.PathLike[str] | TextIO, mode: str = "a") -> None:
        """Append this to a file in heapy's format; the mode "w" replaces the file."""
        if hasattr(fn, "write"):
            fn.write(self._text())
            return
        with open(fn, mode, encoding="utf-8", opener=private_files.opener) as file:
            file.write(self._text())

    def _text(self) -> str:
        lines = [
            ".loader: _load_stat",
            ".format: SetFormat",
            f".timemade: {self.timemade:f}",
            f".count: {self.count}",
            f".size: {self.size}",
            ".kindname: ",
            f".kindheader: {HEADINGS[self._by]}",
            f".numrows: {self.numrows}",
        ]
        lines += [f".r: {count} {size} {name}" for count, size, name in self._rows]
        return "\n".join([*lines, ".end: .loader: _load_stat", "", ""])

    def __repr__(self) -> str:
        return _native.heap_rows_table(self._by, self._rows, self._first, self._n_rows).rstrip("\n")


class StatDifference:
    """The difference of two tables. Prints as a table; `all` has all its rows."""

    __slots__ = ("_after", "_before", "_by", "_n_rows")

    def __init__(self, by: str, before: RowList, after: RowList, n_rows: int = N_ROWS) -> None:
        self._by = by
        self._before = before
        self._after = after
        self._n_rows = n_rows

    @property
    def count(self) -> int:
        """Increase in the number of objects."""
        return sum(row[0] for row in self._after) - sum(row[0] for row in self._before)

    @property
    def size(self) -> int:
        """Increase in bytes."""
        return sum(row[1] for row in self._after) - sum(row[1] for row in self._before)

    @property
    def all(self) -> StatDifference:
        """The whole table."""
        return StatDifference(self._by, self._before, self._after, 0)

    def __repr__(self) -> str:
        return _native.heap_rows_difference(self._by, self._before, self._after, self._n_rows).rstrip("\n")


def read(lines: Iterable[str]) -> Iterator[Stat]:
    """Yield the tables in a file that :meth:`Stat.dump` or guppy wrote."""
    titles = {title: by for by, title in HEADINGS.items()}
    by, timemade = "kind", 0.0
    rows: RowList = []
    for line in lines:
        tag, _, rest = line.rstrip("\n").partition(": ")
        if tag == ".loader":
            by, timemade, rows = "kind", 0.0, []
        elif tag == ".timemade":
            timemade = float(rest)
        elif tag == ".kindheader":
            by = titles.get(rest, "kind")
        elif tag == ".r":
            count, size, name = rest.split(" ", 2)
            rows.append((int(count), int(size), name))
        elif tag == ".end":
            yield Stat(by, rows, timemade)
