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


class HeapKind:
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
    stood_still        for how many seconds the program was paused
    walker_bytes       memory that the census itself needed
    notes              sentences about objects that could not be inspected
    """

    __slots__ = ("_kinds", "bytes", "notes", "objects", "stood_still", "walker_bytes")

    def __init__(self, counted: tuple[list[tuple[str, int, int]], int, int, list[str]]) -> None:
        kinds, stood_still, self.walker_bytes, self.notes = counted
        self._kinds = [HeapKind(*kind) for kind in kinds]
        self.stood_still = stood_still / 1e9
        self.objects = sum(kind.objects for kind in self._kinds)
        self.bytes = sum(kind.bytes for kind in self._kinds)

    def __iter__(self) -> Iterator[HeapKind]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)

    def __getitem__(self, name: str) -> HeapKind:
        """Return the row of a type, named as ``module.Name``, or without the module for built-in types."""
        for kind in self._kinds:
            if kind.name == name:
                return kind
        raise KeyError(name)

    def since(self, earlier: HeapCensus) -> list[HeapKind]:
        """Return the types that changed since an earlier census, and by how much, the largest growth first."""
        before = {kind.name: kind for kind in earlier}
        none = HeapKind("", 0, 0)
        changes = []
        for kind in self._kinds:
            old = before.pop(kind.name, none)
            changes.append(HeapKind(kind.name, kind.objects - old.objects, kind.bytes - old.bytes))
        changes += [HeapKind(gone.name, -gone.objects, -gone.bytes) for gone in before.values()]
        changes = [change for change in changes if change.objects or change.bytes]
        return sorted(changes, key=lambda change: (-change.bytes, -change.objects, change.name))

    def __repr__(self) -> str:
        """Return the table that heapy prints."""
        rows = [(kind.objects, kind.bytes, kind.name) for kind in self._kinds]
        lines = _native.heap_rows_table("type", rows).rstrip("\n").split("\n")
        if len(rows) > _N_SHOWN:
            lines[-1] = f"<{len(rows) - _N_SHOWN} more kinds. Iterate over the census to see them.>"
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return html_table("Type", [(kind.objects, kind.bytes, kind.name) for kind in self._kinds])


def heap_census() -> HeapCensus:
    """Count every Python object of this process, by type."""
    return _count(object())


def _count(heaptide_token: object) -> HeapCensus:
    # The walk verifies its frame layout by finding `heaptide_token` in this frame.
    return HeapCensus(_native.count_heap(heaptide_token, known_instance()))
