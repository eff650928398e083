"""Counts the objects of this process by type: ``heaptide.heap_census()``.

A census contains the number and size of the objects of each type. It is several times faster than a snapshot, which
also contains the references between the objects.
"""

from __future__ import annotations

from heaptide import _native
from heaptide.inspection.html_tables import html_table
from heaptide.inspection.snapshots import known_instance

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# Number of rows in heapy's table.
_N_SHOWN = 10


class TypeCount:
    """Objects of one type: its ``name``, the number of ``objects``, and their ``bytes`` including buffers."""

    __slots__ = ("bytes", "name", "objects")

    def __init__(self, name: str, objects: int, bytes: int) -> None:
        self.name = name
        self.objects = objects
        self.bytes = bytes

    def __repr__(self) -> str:
        return f"<{self.objects:,} of {self.name}: {_native.size_text(self.bytes)}>"


class HeapCensus:
    """A census. Iterate over it for its rows, largest first, or index it with the name of a type.

    objects            number of Python objects
    bytes              their size, including their buffers
    paused_seconds     how long the program was paused; ``stood_still`` in earlier versions
    walker_bytes       memory that the census itself needed
    notes              sentences about objects that could not be inspected
    """

    __slots__ = ("_rows", "bytes", "notes", "objects", "paused_seconds", "walker_bytes")

    def __init__(self, counted: tuple[list[tuple[str, int, int]], int, int, list[str]]) -> None:
        rows, paused_ns, self.walker_bytes, self.notes = counted
        self._rows = [TypeCount(*row) for row in rows]
        self.paused_seconds = paused_ns / 1e9
        self.objects = sum(row.objects for row in self._rows)
        self.bytes = sum(row.bytes for row in self._rows)

    @property
    def stood_still(self) -> float:
        """The old name of ``paused_seconds``."""
        return self.paused_seconds

    def __iter__(self) -> Iterator[TypeCount]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, name: str) -> TypeCount:
        """Return the row of a type, named as ``module.Name``, or without the module for built-in types."""
        for row in self._rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def since(self, earlier: HeapCensus) -> list[TypeCount]:
        """Return the types that changed since an earlier census, and by how much, the largest growth first."""
        before = {row.name: row for row in earlier}
        none = TypeCount("", 0, 0)
        changes = []
        for row in self._rows:
            old = before.pop(row.name, none)
            changes.append(TypeCount(row.name, row.objects - old.objects, row.bytes - old.bytes))
        changes += [TypeCount(gone.name, -gone.objects, -gone.bytes) for gone in before.values()]
        changes = [change for change in changes if change.objects or change.bytes]
        return sorted(changes, key=lambda change: (-change.bytes, -change.objects, change.name))

    def __repr__(self) -> str:
        """Return the table that heapy prints."""
        rows = [(row.objects, row.bytes, row.name) for row in self._rows]
        lines = _native.heap_rows_table("type", rows).rstrip("\n").split("\n")
        if len(rows) > _N_SHOWN:
            lines[-1] = f"<{len(rows) - _N_SHOWN} more types. Iterate over the census to see them.>"
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html_table("Type", [(row.objects, row.bytes, row.name) for row in self._rows])


def heap_census() -> HeapCensus:
    """Count every Python object of this process, by type."""
    return _count(object())


def _count(heaptide_token: object) -> HeapCensus:
    # The walk verifies its frame layout by finding `heaptide_token` in this frame.
    return HeapCensus(_native.count_heap(heaptide_token, known_instance()))
