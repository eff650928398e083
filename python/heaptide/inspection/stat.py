"""heapy's tables without references to the objects: they can be kept, written to a file, loaded and subtracted."""

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
# Classifier → the title of its tables, which identifies the classifier in a file.
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


class PackedRows(str):
    """The rows of a table as one string. `hp.heap()` leaves out this type; it could not leave out tuples."""

    __slots__ = ()

    @classmethod
    def of(cls, rows: RowList) -> PackedRows:
        """Pack rows."""
        return cls("\0".join(f"{count} {size} {name}" for count, size, name in rows))

    # `StatDifference.more` returns an empty object of this type, which must print nothing.
    __repr__ = str.__str__

    def rows(self) -> RowList:
        """Return the rows."""
        unpacked = []
        for row in self.split("\0") if self else ():
            count, size, name = row.split(" ", 2)
            unpacked.append((int(count), int(size), name))
        return unpacked


class StatRow:
    """A row of a table: its number, count, bytes, cumulative bytes, and name."""

    __slots__ = ("count", "cumulsize", "index", "name", "size")

    def __init__(self, index: int, count: int, size: int, cumulsize: int, name: str) -> None:
        self.index = index
        self.count = count
        self.size = size
        self.cumulsize = cumulsize
        self.name = name


class Stat:
    """Rows with their counts and bytes. Prints as the original table; ``-`` is the difference of two.

    count     number of objects
    size      their bytes
    timemade  time of the inspection, in seconds since 1970
    numrows   number of rows
    """

    __slots__ = ("_by", "_first", "_n_rows", "_packed", "firstheader", "timemade")

    def __init__(
        self, by: str, rows: RowList, timemade: float | None = None, first: int = 0, n_rows: int = N_ROWS
    ) -> None:
        # Classifiers that need the objects themselves, such as `id`, do not work here.
        self._by = by if by in HEADINGS else "kind"
        self._packed = PackedRows.of(rows)
        self.timemade = time.time() if timemade is None else timemade
        self._first = first
        self._n_rows = n_rows
        # Text before the table.
        self.firstheader = ""

    @property
    def kindheader(self) -> str:
        """The title of the column of names."""
        return HEADINGS[self._by]

    @property
    def _rows(self) -> RowList:
        return self._packed.rows()

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
        return self._rows

    @property
    def more(self) -> Stat:
        """The rows after these."""
        return self._part(self._rows, self._first + N_ROWS)

    @property
    def all(self) -> Stat:
        """The whole table."""
        return self._part(self._rows, n_rows=0)

    def _part(self, rows: RowList, first: int = 0, n_rows: int = N_ROWS) -> Stat:
        return Stat(self._by, rows, self.timemade, first, n_rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int | slice) -> Stat:
        rows = self._rows[index] if isinstance(index, slice) else [self._rows[index]]
        return self._part(rows)

    def get_rows(self, idx: int = 0) -> Iterator[StatRow]:
        """Yield the rows from a number on."""
        total = sum(size for _, size, _ in self._rows[:idx])
        for index, (count, size, name) in enumerate(self._rows[idx:], idx):
            total += size
            yield StatRow(index, count, size, total, name)

    def get_row(self, idx: int) -> StatRow:
        """Return a row."""
        return list(self.get_rows())[idx]

    def __sub__(self, earlier: Stat) -> StatDifference:
        return StatDifference(self._by, earlier._rows, self._rows, timemade=self.timemade)

    diff = __sub__

    def dump(self, fn: str | os.PathLike[str] | TextIO, mode: str = "a") -> None:
        """Append this to a file in heapy's format; the mode "w" replaces the file."""
        _dump(self, "SetFormat", [], fn, mode)

    def __repr__(self) -> str:
        if self._first >= max(1, len(self)):
            return ""
        return self.firstheader + _native.heap_rows_table(self._by, self._rows, self._first, self._n_rows).rstrip("\n")


def _dump(
    stat: Stat | StatDifference,
    form: str,
    facts: list[str],
    fn: str | os.PathLike[str] | TextIO,
    mode: str,
) -> None:
    """Append a table to a file in heapy's format."""
    names = [".kindname: ", f".kindheader: {stat.kindheader}"]
    lines = [
        ".loader: _load_stat",
        f".format: {form}",
        f".timemade: {stat.timemade:f}",
        *facts,
        f".count: {stat.count}",
        f".size: {stat.size}",
        *(names if form == "SetFormat" else reversed(names)),
        f".numrows: {stat.numrows}",
        *(f".r: {count} {size} {name}" for count, size, name in stat.rows),
        ".end: .loader: _load_stat",
        "",
    ]
    text = "\n".join(lines)
    if hasattr(fn, "write"):
        fn.write(text)
        return
    with open(fn, mode, encoding="utf-8", opener=private_files.opener) as file:
        file.write(text)


# The name of the row that sums all rows which a part of a difference leaves out.
_OTHERS = "<other rows>"


class StatDifference:
    """The difference of two tables. Prints as a table; an index is the difference of one row, `all` has all rows."""

    __slots__ = ("_by", "_n_rows", "_packed_after", "_packed_before", "timemade")

    def __init__(
        self, by: str, before: RowList, after: RowList, n_rows: int = N_ROWS, timemade: float | None = None
    ) -> None:
        self._by = by
        self._packed_before = PackedRows.of(before)
        self._packed_after = PackedRows.of(after)
        self._n_rows = n_rows
        self.timemade = time.time() if timemade is None else timemade

    @property
    def kindheader(self) -> str:
        """The title of the column of names."""
        return HEADINGS[self._by]

    @property
    def _before(self) -> RowList:
        return self._packed_before.rows()

    @property
    def _after(self) -> RowList:
        return self._packed_after.rows()

    @property
    def count(self) -> int:
        """Increase in the number of objects."""
        return sum(row[0] for row in self._after) - self.b_count

    @property
    def size(self) -> int:
        """Increase in bytes."""
        return sum(row[1] for row in self._after) - self.b_size

    @property
    def b_count(self) -> int:
        """Number of objects before."""
        return sum(row[0] for row in self._before)

    @property
    def b_size(self) -> int:
        """Bytes before."""
        return sum(row[1] for row in self._before)

    @property
    def rows(self) -> RowList:
        """Increase in count and bytes, and name of each row, the largest change in bytes first."""
        before = {name: (count, size) for count, size, name in self._before}
        after = {name: (count, size) for count, size, name in self._after}
        rows = []
        for name in {**after, **before}:
            (old_count, old_size), (new_count, new_size) = before.get(name, (0, 0)), after.get(name, (0, 0))
            if old_count != new_count or old_size != new_size:
                rows.append((new_count - old_count, new_size - old_size, name))
        return sorted(rows, key=lambda row: (-abs(row[1]), row[2]))

    @property
    def numrows(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int | slice) -> StatDifference:
        rows = self.rows
        names = {row[2] for row in (rows[index] if isinstance(index, slice) else [rows[index]])}
        before = [row for row in self._before if row[2] in names]
        after = [row for row in self._after if row[2] in names]
        # Other rows are in the totals, with the same value before and after.
        others = (
            self.b_count - sum(row[0] for row in before),
            self.b_size - sum(row[1] for row in before),
            _OTHERS,
        )
        return StatDifference(self._by, [*before, others], [*after, others], self._n_rows, self.timemade)

    def __iter__(self) -> Iterator[StatDifference]:
        return (self[number] for number in range(len(self)))

    @property
    def more(self) -> StatDifference | str:
        """The rows after these; an empty string if there are none."""
        return self[N_ROWS:] if len(self) > N_ROWS else PackedRows()

    @property
    def all(self) -> StatDifference:
        """The whole table."""
        return StatDifference(self._by, self._before, self._after, 0, self.timemade)

    def dump(self, fn: str | os.PathLike[str] | TextIO, mode: str = "a") -> None:
        """Append this to a file in heapy's format; the mode "w" replaces the file."""
        _dump(self, "DiffFormat", [f".b_count: {self.b_count}", f".b_size: {self.b_size}"], fn, mode)

    def __repr__(self) -> str:
        text = _native.heap_rows_difference(self._by, self._before, self._after, self._n_rows)
        return (text if len(self) else text.partition("\n\n")[0]).rstrip("\n")


def read(lines: Iterable[str]) -> Iterator[Stat | StatDifference]:
    """Yield the tables in a file that :meth:`Stat.dump` or guppy wrote."""
    facts: dict[str, str] = {}
    rows: list[str] = []
    for line in lines:
        tag, _, rest = line.rstrip("\n").partition(": ")
        if tag == ".loader":
            facts, rows = {}, []
        elif tag == ".r":
            rows.append(rest)
        elif tag == ".end":
            yield _loaded(facts, rows)
        else:
            facts[tag] = rest


def _loaded(facts: dict[str, str], texts: list[str]) -> Stat | StatDifference:
    by = next((by for by, title in HEADINGS.items() if title == facts.get(".kindheader")), "kind")
    timemade = float(facts.get(".timemade", 0))
    # A row of a table by identity has no count.
    one = "1 " if facts.get(".format") == "IdFormat" else ""
    parts = [f"{one}{text}".split(" ", 2) for text in texts]
    rows = [(int(count), int(size), name) for count, size, name in parts]
    if facts.get(".format") != "DiffFormat":
        return Stat(by, rows, timemade)
    before = [(max(0, -count), max(0, -size), name) for count, size, name in rows]
    after = [(max(0, count), max(0, size), name) for count, size, name in rows]
    others = (
        max(0, int(facts.get(".b_count", 0)) - sum(row[0] for row in before)),
        max(0, int(facts.get(".b_size", 0)) - sum(row[1] for row in before)),
        _OTHERS,
    )
    return StatDifference(by, [*before, others], [*after, others], timemade=timemade)
