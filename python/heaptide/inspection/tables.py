"""Tables of heapy's sets: a range of rows, rows by combined classifiers, and rows as objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

from heaptide import _native
from heaptide.inspection.html_tables import N_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heaptide._native import HeapPartition, HeapSet
    from heaptide.inspection.identity_table import IdentityTable
    from heaptide.inspection.kinds import Relation
    from heaptide.inspection.sets import IdentitySet

    # A set divided into rows.
    Divided: TypeAlias = "HeapPartition | IdentityTable | JoinedPartition"


class Rows:
    """Part of a table: prints `n_rows` rows from `first` on; 0 means all. `more` has the next ten, `all` every row."""

    __slots__ = ("_first", "_n_rows", "_set")

    def __init__(self, heap_set: IdentitySet, first: int, n_rows: int) -> None:
        self._set = heap_set
        self._first = first
        self._n_rows = n_rows

    @property
    def more(self) -> Rows:
        """The rows after these."""
        return Rows(self._set, self._first + N_ROWS, N_ROWS)

    @property
    def prev(self) -> Rows:
        """The rows before these."""
        return Rows(self._set, max(self._first - N_ROWS, 0), N_ROWS)

    @property
    def top(self) -> IdentitySet:
        """The table from its beginning."""
        return self._set

    @property
    def all(self) -> Rows:
        """The whole table."""
        return Rows(self._set, 0, 0)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the whole set, such as `count`."""
        return getattr(self._set, name)

    def __len__(self) -> int:
        return len(self._set)

    def __getitem__(self, index: SupportsIndex | slice) -> IdentitySet:
        return self._set[index]

    def __repr__(self) -> str:
        return self._set.table(self._first, self._n_rows) if self._first < max(1, len(self._set)) else ""

    def _repr_html_(self) -> str:
        return self._set.html(self._first, self._n_rows)


class JoinedPartition:
    """A set divided by a classifier that combines others. Has the attributes of `_native.HeapPartition`."""

    __slots__ = ("_relation", "_rows")

    def __init__(self, heap_set: HeapSet, relation: Relation) -> None:
        self._relation = relation
        self._rows = sorted(relation.divide(heap_set), key=lambda row: (-row[1].bytes, row[0]))

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, first: int = 0, limit: int | None = None) -> list[tuple[int, int, str]]:
        """Return count, bytes and name of each row."""
        end = None if limit is None else first + limit
        return [(len(members), members.bytes, name) for name, members in self._rows[first:end]]

    def members(self, row: int) -> HeapSet:
        """Return the objects of a row."""
        return self._rows[row][1]

    def members_between(self, first: int, end: int) -> HeapSet:
        """Return the objects of several rows."""
        found = self._rows[0][1].view().empty()
        for _, members in self._rows[first:end]:
            found = found | members
        return found

    @property
    def heading(self) -> str:
        """The title of the column of names."""
        return self._relation.heading

    def table(self, first: int = 0, n_rows: int = N_ROWS) -> str:
        """Return heapy's table."""
        text = _native.heap_rows_table("type", self.rows(), first, n_rows)
        return text.replace("Cumulative  % Type\n", f"Cumulative  % {self.heading}\n", 1)


class PartitionRow:
    """A row of a table: its number, count, bytes, cumulative bytes, name and objects."""

    __slots__ = ("count", "cumulsize", "index", "name", "set", "size")

    def __init__(self, index: int, count: int, size: int, cumulsize: int, name: str, members: IdentitySet) -> None:
        self.index = index
        self.count = count
        self.size = size
        self.cumulsize = cumulsize
        self.name = name
        self.set = members

    @property
    def kind(self) -> Any:
        """The kind of the row's objects."""
        return self.set.kind


class Partition:
    """A set divided into rows. Prints like the set; `get_rows` yields the rows."""

    __slots__ = ("_divided", "_of")

    def __init__(self, of: IdentitySet, divided: Divided) -> None:
        self._of = of
        self._divided = divided

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the divided set: `rows`, `members`, `members_between`, `table`, `heading`."""
        return getattr(self._divided, name)

    @property
    def set(self) -> IdentitySet:
        """The set."""
        return self._of

    @property
    def count(self) -> int:
        """Number of objects."""
        return self._of.count

    @property
    def size(self) -> int:
        """Bytes of the objects."""
        return self._of.size

    @property
    def numrows(self) -> int:
        """Number of rows."""
        return len(self._divided)

    def get_rows(self, rowindex: int = 0) -> Iterator[PartitionRow]:
        """Yield the rows from number `rowindex` on."""
        total = sum(size for _, size, _ in self._divided.rows()[:rowindex])
        for index, (count, size, name) in enumerate(self._divided.rows()[rowindex:], rowindex):
            total += size
            yield PartitionRow(index, count, size, total, name, self._of[index])

    def get_row(self, index: int) -> PartitionRow:
        """Return a row."""
        if not 0 <= index < len(self._divided):
            raise IndexError(f"there is no row {index}: the table has {len(self._divided)}")
        return next(self.get_rows(index))

    def get_set(self, index: SupportsIndex | slice) -> IdentitySet:
        """Return the objects of a row."""
        return self._of[index]

    get_rowset = get_set

    @property
    def er(self) -> Relation:
        """The classifier."""
        return self._of.er

    def get_stat(self) -> Any:
        """Return the table without its objects."""
        return self._of.stat

    def __getitem__(self, index: SupportsIndex | slice) -> IdentitySet:
        return self._of[index]

    def __iter__(self) -> Iterator[IdentitySet]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._divided)

    def __repr__(self) -> str:
        return repr(self._of)
