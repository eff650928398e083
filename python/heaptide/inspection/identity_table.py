"""heapy's table by identity: a row for each object, with the values of numbers and texts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from heaptide.inspection.html_tables import N_ROWS
from heaptide.inspection.kinds import Relation
from heaptide.inspection.renderings import samples

if TYPE_CHECKING:
    from heaptide._native import HeapPartition, HeapSet

# Reading the values of more objects would take too long.
_MAX_OBJECTS = 10_000
# Titles of the column of texts, by kind.
_REPRESENTED = "Representation (limited)"
_TITLES = {"type": "Name", "module": "Name", "function": "Name", "types.BuiltinMethodType": "Name"}
_TITLES.update(dict.fromkeys(("int", "bool", "float", "complex", "types.NoneType"), "Value"))
_TITLES.update({"str": _REPRESENTED, "bytes": _REPRESENTED, "types.CodeType": "File:Line:Name"})


class IdentityTable:
    """A table with one row per object of a set of this process. Has the attributes of `_native.HeapPartition`."""

    __slots__ = ("_rows", "_set", "_summary", "heading")

    def __init__(self, heap_set: HeapSet) -> None:
        self._set = heap_set
        described = heap_set.describe()
        kinds = {kind for _, _, kind, _ in described}
        texts = samples(heap_set, len(described))
        if len(kinds) > 1:
            texts = [f"{kind}: {text}" for (_, _, kind, _), text in zip(described, texts, strict=True)]
        label = next(iter(kinds)) if len(kinds) == 1 else "mixed"
        self.heading = "Brief" if len(kinds) > 1 else _TITLES.get(label, "Address")
        if self.heading == "Address" and all("*" in text for text in texts):
            self.heading = "Address*Length"
        # Bytes, text and address, the largest first.
        rows = ((size, text, address) for (address, size, _, _), text in zip(described, texts, strict=True))
        is_number = label in ("int", "float")
        self._rows = sorted(rows, key=lambda row: (-row[0], _number(row[1]) if is_number else 0, row[1]))
        plural = "" if len(described) == 1 else "s"
        total = sum(size for size, _, _ in self._rows)
        self._summary = f"Set of {len(described)} <{label}> object{plural}. Total size = {total} bytes."

    @staticmethod
    def suits(heap_set: HeapSet) -> bool:
        """Return whether the values of the objects can be read: they are in this process and not too many."""
        return heap_set.view().pid == os.getpid() and 0 < len(heap_set) <= _MAX_OBJECTS

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, first: int = 0, limit: int | None = None) -> list[tuple[int, int, str]]:
        """Return count, bytes and text of each row."""
        end = None if limit is None else first + limit
        return [(1, size, text) for size, text, _ in self._rows[first:end]]

    def members(self, row: int) -> HeapSet:
        """Return the object of a row."""
        return self.members_between(row, row + 1)

    def members_between(self, first: int, end: int) -> HeapSet:
        """Return the objects of several rows."""
        return self._set.view().at([address for *_, address in self._rows[first:end]])

    def table(self, first: int = 0, n_rows: int = N_ROWS) -> str:
        """Return heapy's table."""
        total = self._set.bytes or 1
        end = min(first + n_rows, len(self._rows)) if n_rows else len(self._rows)
        lines = [] if first else [self._summary]
        lines.append(f" Index     Size   %   Cumulative  %   {self.heading}")
        cumulative = sum(size for size, _, _ in self._rows[:first])
        for index, (size, text, _) in enumerate(self._rows[first:end], first):
            cumulative += size
            share, cumulative_share = 100 * size / total, 100 * cumulative / total
            lines.append(f"{index:6d} {size:8d} {share:5.1f} {cumulative:9d} {cumulative_share:5.1f} {text}")
        rest = len(self._rows) - end
        if rest:
            lines.append(f"<{rest} more row{'s' * (rest > 1)}. Type e.g. '_.more' to view.>")
        return "\n".join(lines)


def _number(text: str) -> float:
    """Return the value of a number's text, or 0 if the text is shortened because the number has many digits."""
    try:
        return float(text)
    except ValueError:
        return 0


def divide_by_identity(heap_set: HeapSet) -> HeapPartition | IdentityTable:
    """Return a table of the set with one row per object."""
    return IdentityTable(heap_set) if IdentityTable.suits(heap_set) else heap_set.partition("id")


class _IdentitySets(Relation):
    """Classifies objects by identity. Names each row as heapy prints a set of one object."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("Idset")

    @property
    def by(self) -> Relation:
        return self

    @property
    def heading(self) -> str:
        return "by identity set"

    def divide(self, heap_set: HeapSet) -> list[tuple[str, HeapSet]]:
        described = heap_set.describe()
        view = heap_set.view()
        return [
            (f"<1 {kind}: {text}>", view.at([address]))
            for (address, _, kind, _), text in zip(described, samples(heap_set, len(described)), strict=True)
        ]


IDENTITY_SETS = _IdentitySets()
