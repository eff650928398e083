"""Sets of objects as heapy has them: they print as tables, are taken apart, compared and followed.

A set belongs to one look at the heap. Sets of different looks can be combined all the same: an object is taken for the
same if it stands at the same address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex

if TYPE_CHECKING:
    from collections.abc import Iterator

    from heaptide._native import HeapPartition, HeapSet, HeapView

N_ROWS = 10
# Heapy's words for what sets are taken apart by, and ours.
RELATIONS = {
    "Clodo": "kind",
    "Type": "type",
    "Size": "size",
    "Rcs": "referrers",
    "Via": "via",
    "Id": "id",
    "Module": "module",
    "Unity": "unity",
    "Prod": "producer",
}


class Rows:
    """A table from some row on: prints ten rows; `more` are the next ten, `all` is the whole table."""

    __slots__ = ("_first", "_n_rows", "_set")

    def __init__(self, heap_set: IdentitySet, first: int, n_rows: int) -> None:
        self._set = heap_set
        self._first = first
        self._n_rows = n_rows

    @property
    def more(self) -> Rows:
        """The rows behind these."""
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
    """Shortest ways from roots to a set. A path is its text, which can be evaluated where `hp` is the session."""

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
    """Who refers to a set, by kind, and who to those. Prints ten rows; `more` are the next ten."""

    __slots__ = ("_avoid", "_depth", "_first", "_set")

    def __init__(self, heap_set: HeapSet, depth: int, first: int, avoid: HeapSet | None) -> None:
        self._set = heap_set
        self._depth = depth
        self._first = first
        self._avoid = avoid

    @property
    def more(self) -> ReferencePattern:
        """The rows behind these."""
        return ReferencePattern(self._set, self._depth, self._first + N_ROWS, self._avoid)

    def __repr__(self) -> str:
        return self._set.pattern_text(self._depth, self._first, N_ROWS, avoid=self._avoid).rstrip("\n")


class IdentitySet:
    """Some objects, as heapy shows them.

    Printed it is a table. An index gives the objects of a row; ``byvia``, ``bytype`` and so on make another table of
    the same objects; ``referrers``, ``shpaths``, ``rp`` and ``domisize`` say what holds them and what goes when they
    go; ``&``, ``|``, ``-``, ``^`` combine sets, also with a type.
    """

    __slots__ = ("_by", "_partition", "_set")

    def __init__(self, heap_set: HeapSet, by: str = "kind") -> None:
        self._set = heap_set
        self._by = by
        self._partition: HeapPartition | None = None

    @property
    def partition(self) -> HeapPartition:
        """The set in rows."""
        if self._partition is None:
            self._partition = self._set.partition(self._by)
        return self._partition

    def by(self, relation: str) -> IdentitySet:
        """The same objects, taken apart by something else: a name of heapy's, such as Via, or of ours."""
        return IdentitySet(self._set, RELATIONS.get(relation, relation))

    @property
    def byclodo(self) -> IdentitySet:
        """By class or dict owner: what a table shows at first."""
        return self.by("kind")

    @property
    def bytype(self) -> IdentitySet:
        """By type."""
        return self.by("type")

    @property
    def bysize(self) -> IdentitySet:
        """By the size of each object."""
        return self.by("size")

    @property
    def byrcs(self) -> IdentitySet:
        """By the kinds of what refers to each object."""
        return self.by("referrers")

    @property
    def byvia(self) -> IdentitySet:
        """By how each object is referred to."""
        return self.by("via")

    @property
    def byid(self) -> IdentitySet:
        """Each object in a row of its own, the largest first."""
        return self.by("id")

    @property
    def bymodule(self) -> IdentitySet:
        """By module."""
        return self.by("module")

    @property
    def byunity(self) -> IdentitySet:
        """All in one row."""
        return self.by("unity")

    @property
    def byprod(self) -> IdentitySet:
        """By the line that allocated each object, if that was recorded."""
        return self.by("producer")

    @property
    def count(self) -> int:
        """How many objects there are."""
        return len(self._set)

    @property
    def size(self) -> int:
        """Bytes of the objects themselves."""
        return self._set.bytes

    indisize = size

    @property
    def domisize(self) -> int:
        """Bytes that go when these objects go."""
        return self._set.dominated().bytes

    @property
    def dominos(self) -> IdentitySet:
        """The objects that go when these go, themselves included."""
        return IdentitySet(self._set.dominated())

    @property
    def imdom(self) -> IdentitySet:
        """The objects that hold these directly and alone: their immediate dominators."""
        return IdentitySet(self._set.dominators())

    @property
    def referrers(self) -> IdentitySet:
        """What refers to these objects."""
        return IdentitySet(self._set.referrers())

    @property
    def referents(self) -> IdentitySet:
        """What these objects refer to."""
        return IdentitySet(self._set.referents())

    @property
    def kind(self) -> str:
        """The kinds of these objects, in one line."""
        return ", ".join(sorted(name for _, _, name in self._set.partition("kind").rows())) or "<Nothing>"

    @property
    def parts(self) -> list[IdentitySet]:
        """The objects of each row."""
        return list(self)

    @property
    def shpaths(self) -> Paths:
        """The shortest ways from roots to these objects."""
        return self.get_shpaths()

    sp = shpaths

    def get_shpaths(
        self, src: IdentitySet | None = None, avoid_nodes: IdentitySet | None = None, limit: int = N_ROWS
    ) -> Paths:
        """The same: from other objects, or around some."""
        avoid = None if avoid_nodes is None else self._here(avoid_nodes)
        sources = None if src is None else self._here(src)
        n_paths, paths = self._set.paths(limit, avoid=avoid, sources=sources)
        return Paths(n_paths, ["".join(steps) for _, steps in paths])

    @property
    def rp(self) -> ReferencePattern:
        """Who refers to these objects, and who to those, by kind."""
        return self.get_rp()

    def get_rp(self, depth: int = 7, avoid_nodes: IdentitySet | None = None) -> ReferencePattern:
        """The same, deeper or around some objects."""
        return ReferencePattern(self._set, depth, 0, None if avoid_nodes is None else self._here(avoid_nodes))

    @property
    def more(self) -> Rows:
        """The rows behind the first ten."""
        return Rows(self, N_ROWS, N_ROWS)

    @property
    def all(self) -> Rows:
        """The whole table."""
        return Rows(self, 0, 0)

    @property
    def nodes(self) -> list[int]:
        """The addresses of the objects."""
        return self._set.addresses()

    @property
    def theone(self) -> Any:
        """The object itself, if the set has just one and it is still there."""
        if self.count != 1:
            raise ValueError(f"the set has {self.count} objects, not one")
        from heaptide.objects import at

        found = at(self._set.addresses()[0])
        if found is None:
            raise LookupError("the object is gone, or nothing that the collector tracks leads to it")
        return found

    @property
    def brief(self) -> str:
        """The set in one line."""
        return f"<{self.count} {self.kind}>" if self.count else "<Nothing>"

    @property
    def sites(self) -> list[list[tuple[str, str, int]]]:
        """The stack that allocated each object, if that was recorded: function, file and line, outermost first."""
        return self._set.sites()

    def disjoint(self, other: IdentitySet) -> bool:
        """Tell whether no object is in both sets."""
        return (self & other).count == 0

    def _here(self, other: object) -> HeapSet:
        """Another operand as a set of the same look at the heap."""
        view = self._set.view()
        if isinstance(other, IdentitySet):
            # Of one look the sets can be combined as they are; of another one addresses are what counts.
            try:
                return self._set & other._set | other._set
            except ValueError:
                return view.at(other._set.addresses())
        if isinstance(other, type):
            module = other.__module__
            return view.of_kind(other.__qualname__ if module == "builtins" else f"{module}.{other.__qualname__}")
        if isinstance(other, str):
            return view.of_kind(other)
        raise TypeError(f"a set can be combined with another one, a type or a kind's name, not {type(other).__name__}")

    def __and__(self, other: object) -> IdentitySet:
        return IdentitySet(self._set & self._here(other), self._by)

    def __or__(self, other: object) -> IdentitySet:
        return IdentitySet(self._set | self._here(other), self._by)

    def __sub__(self, other: object) -> IdentitySet:
        return IdentitySet(self._set - self._here(other), self._by)

    def __xor__(self, other: object) -> IdentitySet:
        return IdentitySet(self._set ^ self._here(other), self._by)

    __rand__ = __and__
    __ror__ = __or__
    __rxor__ = __xor__

    def __invert__(self) -> IdentitySet:
        return IdentitySet(self._set.view().reachable() - self._set, self._by)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentitySet) and self._set == self._here(other)

    def __hash__(self) -> int:
        return hash(self._set)

    def __le__(self, other: IdentitySet) -> bool:
        return self._set.is_subset(self._here(other))

    def __ge__(self, other: IdentitySet) -> bool:
        return self._here(other).is_subset(self._set)

    def __lt__(self, other: IdentitySet) -> bool:
        return self <= other and self.count < other.count

    def __gt__(self, other: IdentitySet) -> bool:
        return self >= other and self.count > other.count

    def __contains__(self, each: object) -> bool:
        found = self._set.view().at([id(each)])
        return len(found) == 1 and found.is_subset(self._set)

    def __len__(self) -> int:
        return len(self.partition)

    def __bool__(self) -> bool:
        return self.count > 0

    def __getitem__(self, index: SupportsIndex | slice) -> IdentitySet:
        n_rows = len(self.partition)
        if isinstance(index, slice):
            first, end, step = index.indices(n_rows)
            if step != 1:
                raise ValueError("rows are taken one after the other: leave the step out")
            return IdentitySet(self.partition.members_between(first, max(first, end)), self._by)
        number = index.__index__()
        if not -n_rows <= number < n_rows:
            raise IndexError(f"there is no row {number}: the table has {n_rows}")
        return IdentitySet(self.partition.members(number % n_rows))

    def __iter__(self) -> Iterator[IdentitySet]:
        return (self[number] for number in range(len(self)))

    def __repr__(self) -> str:
        return self.partition.table(0, N_ROWS).rstrip("\n")


def of_view(view: HeapView, heap_set: HeapSet | None = None) -> IdentitySet:
    """A look at the heap, or some objects of it, as a set."""
    return IdentitySet(view.reachable() if heap_set is None else heap_set)
