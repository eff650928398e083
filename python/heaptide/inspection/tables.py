"""Further tables of heapy's sets: later rows, paths from roots, reference patterns."""

from __future__ import annotations

from typing import TYPE_CHECKING, SupportsIndex

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heaptide._native import HeapSet
    from heaptide.inspection.sets import IdentitySet

N_ROWS = 10


class Rows:
    """Part of a table: prints ten rows from `first` on. `more` has the next ten, `all` the whole table."""

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

    def __getitem__(self, index: SupportsIndex | slice) -> IdentitySet:
        return self._set[index]

    def __repr__(self) -> str:
        return self._set.partition.table(self._first, self._n_rows).rstrip("\n")


class Paths:
    """Shortest paths from roots to a set. Each is a Python expression in which `hp` is the :class:`Heapy`."""

    __slots__ = ("_n_paths", "_shown")

    def __init__(self, n_paths: int, shown: list[str]) -> None:
        self._n_paths = n_paths
        self._shown = shown

    def __len__(self) -> int:
        return self._n_paths

    def __getitem__(self, index: int) -> str:
        return self._shown[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shown)

    def __repr__(self) -> str:
        lines = [f"{number:2d}: {path}" for number, path in enumerate(self._shown)]
        if self._n_paths > len(self._shown):
            lines.append(f"<... {self._n_paths - len(self._shown)} more paths ...>")
        return "\n".join(lines) or "<No paths>"


class ReferencePattern:
    """Referrers of a set by kind, and their referrers. Prints ten rows; `more` has the next ten."""

    __slots__ = ("_avoid", "_depth", "_first", "_set")

    def __init__(self, heap_set: HeapSet, depth: int, first: int, avoid: HeapSet | None) -> None:
        self._set = heap_set
        self._depth = depth
        self._first = first
        self._avoid = avoid

    @property
    def more(self) -> ReferencePattern:
        """The rows after these."""
        return ReferencePattern(self._set, self._depth, self._first + N_ROWS, self._avoid)

    def __repr__(self) -> str:
        return self._set.pattern_text(self._depth, self._first, N_ROWS, avoid=self._avoid).rstrip("\n")
