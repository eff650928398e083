"""heapy's sets of objects: they print as tables, and can be classified, compared and traced.

A set belongs to one view of the heap. Sets of different views can also be combined: objects at the same address count
as the same object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, cast

from heaptide.inspection.kinds import RELATIONS, Kind, Relation, type_name
from heaptide.inspection.stat import Stat, StatDifference
from heaptide.inspection.tables import N_ROWS, Paths, ReferencePattern, Rows

# Imported now: if imported later, its objects would count as new since the first inspection.
from heaptide.objects import at, at_addrs
from heaptide.objects.references import is_a, short_name

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator
    from typing import TextIO

    from heaptide._native import HeapPartition, HeapSet, HeapView

# Attributes of heapy's sets that are missing here, and their replacements.
_INSTEAD = {
    "biper": "use by(relation) to classify the set",
    "fam": "use er for the classifier of the set, and kind for the kinds in it",
    "pathsin": "use shpaths for the shortest paths to the objects, and referrers for the last step of all paths",
    "pathsout": "use referents for the first step, and get_shpaths(src=...) for paths from one set to another",
}


class IdentitySet:
    """A set of objects, with heapy's attributes. It prints as a table.

    An index returns the objects of a row. ``byvia``, ``bytype`` and so on show the same objects by another classifier.
    ``referrers``, ``shpaths`` and ``rp`` show what keeps the objects alive, ``domisize`` the bytes that would be freed
    with them. ``&``, ``|``, ``-`` and ``^`` combine sets, also with a type.
    """

    __slots__ = ("_by", "_make", "_partition", "_seen")

    def __init__(self, heap_set: HeapSet | None, by: str = "kind", make: Callable[[], HeapSet] | None = None) -> None:
        self._seen = heap_set
        # Makes the set when it is first used, if it does not exist yet.
        self._make = make
        self._by = by
        self._partition: HeapPartition | None = None

    @property
    def _set(self) -> HeapSet:
        if self._seen is None:
            assert self._make is not None
            self._seen = self._make()
        return self._seen

    def __getattr__(self, name: str) -> NoReturn:
        """Raise AttributeError; for missing attributes of heapy, it names the replacement."""
        instead = f"; {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise AttributeError(f"a set of objects has no attribute {name!r}{instead}", name=name, obj=self)

    @property
    def partition(self) -> HeapPartition:
        """The set, divided into rows."""
        if self._partition is None:
            self._partition = self._set.partition(self._by)
        return self._partition

    def by(self, relation: str | Relation) -> IdentitySet:
        """Return the same objects by another classifier: `hp.Via`, its name, or a name of `_native`."""
        name = relation.by if isinstance(relation, Relation) else RELATIONS.get(relation, relation)
        return IdentitySet(self._set, name)

    @property
    def er(self) -> Relation:
        """The classifier of the set."""
        return Relation(next(name for name, by in RELATIONS.items() if by == self._by))

    @property
    def byclodo(self) -> IdentitySet:
        """By class or dict owner, the default."""
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
        """By the kinds of each object's referrers."""
        return self.by("referrers")

    @property
    def byvia(self) -> IdentitySet:
        """By how its referrers refer to each object."""
        return self.by("via")

    @property
    def byid(self) -> IdentitySet:
        """One row per object, the largest first."""
        return self.by("id")

    byidset = byid

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
        """Number of objects."""
        return len(self._set)

    @property
    def size(self) -> int:
        """Bytes of the objects themselves."""
        return self._set.bytes

    indisize = size

    @property
    def domisize(self) -> int:
        """Bytes that would be freed with these objects."""
        return self._set.dominated().bytes

    @property
    def dominos(self) -> IdentitySet:
        """The objects that would be freed with these, including themselves."""
        return IdentitySet(self._set.dominated())

    @property
    def imdom(self) -> IdentitySet:
        """The immediate dominators of these objects."""
        return IdentitySet(self._set.dominators())

    @property
    def referrers(self) -> IdentitySet:
        """The referrers of these objects."""
        return IdentitySet(self._set.referrers())

    @property
    def referents(self) -> IdentitySet:
        """The objects that these refer to."""
        return IdentitySet(self._set.referents())

    @property
    def owners(self) -> IdentitySet:
        """The objects whose `__dict__` is in the set."""
        return IdentitySet(self._set.owners())

    @property
    def dictof(self) -> IdentitySet:
        """The `__dict__` of each object that has one."""
        return IdentitySet(self._set.dicts())

    @property
    def stat(self) -> Stat:
        """The table without its objects, to keep, dump or subtract."""
        return Stat(self._by, self.partition.rows(), self._set.view().taken)

    def dump(self, fn: str | os.PathLike[str] | TextIO, mode: str = "a") -> None:
        """Append the table to a file that `hp.load` reads; `hp.save` writes the objects."""
        self.stat.dump(fn, mode)

    def diff(self, earlier: IdentitySet | Stat) -> StatDifference:
        """Return the difference from an earlier table."""
        return self.stat - (earlier.by(self._by).stat if isinstance(earlier, IdentitySet) else earlier)

    @property
    def maprox(self) -> MappingProxy:
        """``h.maprox.name`` is the set of that attribute of all objects, ``h.maprox[key]`` of that item."""
        return MappingProxy(self)

    @property
    def prod(self) -> str:
        """The stack that allocated the set's only object, innermost call last, if it was recorded."""
        if self.count != 1:
            raise ValueError(f"the set has {self.count} objects, not one")
        lines = [f'  File "{file}", line {line}, in {function}' for function, file, line in self._set.sites()[0]]
        if not lines:
            return "unknown: record the program with --objects while it allocates the objects"
        return "\n".join(["Allocated at (most recent call last):", *lines])

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
        """The shortest paths from roots to these objects."""
        return self.get_shpaths()

    sp = shpaths

    def get_shpaths(
        self, src: IdentitySet | None = None, avoid_nodes: IdentitySet | None = None, limit: int = N_ROWS
    ) -> Paths:
        """Return the shortest paths, optionally from other objects or avoiding some."""
        avoid = None if avoid_nodes is None else self._here(avoid_nodes)
        sources = None if src is None else self._here(src)
        n_paths, paths = self._set.paths(limit, avoid=avoid, sources=sources)
        return Paths(n_paths, ["".join(steps) for _, steps in paths])

    @property
    def rp(self) -> ReferencePattern:
        """The referrers of these objects by kind, and their referrers."""
        return self.get_rp()

    def get_rp(self, depth: int = 7, avoid_nodes: IdentitySet | None = None) -> ReferencePattern:
        """Return the reference pattern, optionally deeper or avoiding some objects."""
        return ReferencePattern(self._set, depth, 0, None if avoid_nodes is None else self._here(avoid_nodes))

    @property
    def more(self) -> Rows:
        """The rows after the first ten."""
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
        """The object itself, if the set has only one and it still exists."""
        if self.count != 1:
            raise ValueError(f"the set has {self.count} objects, not one")
        found = at(self._set.addresses()[0])
        if found is None:
            raise LookupError("the object was freed, or no object that the collector tracks leads to it")
        return found

    @property
    def brief(self) -> str:
        """The set in one line, with some of its objects."""
        if not self.count:
            return "<Nothing>"
        samples = [sample or hex(address) for address, _, _, sample in self._set.describe(3)]
        return f"<{self.count} {self.kind}: {', '.join(samples)}{'...' if self.count > 3 else ''}>"

    @property
    def sites(self) -> list[list[tuple[str, str, int]]]:
        """Return the allocation stack of each object, if recorded: function, file and line, outermost first."""
        return self._set.sites()

    def disjoint(self, other: IdentitySet) -> bool:
        """Return whether no object is in both sets."""
        return (self & other).count == 0

    def _here(self, other: object) -> HeapSet:
        """Return another operand as a set of the same view of the heap."""
        view = self._set.view()
        # Not with `isinstance`, which objects and metaclasses can override.
        if is_a(other, IdentitySet):
            other = cast("IdentitySet", other)
            # Sets of one view can be combined directly; a set of another view is matched by address.
            try:
                return self._set & other._set | other._set
            except ValueError:
                return view.at(other._set.addresses())
        if is_a(other, Kind):
            return cast("Kind", other).members(view)
        if is_a(other, type):
            return view.of_kind(type_name(other))
        if is_a(other, str):
            return view.of_kind(cast("str", other))
        raise TypeError(
            f"a set can be combined with another one, a type or a kind's name, not {short_name(type(other))}"
        )

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
                raise ValueError("a slice of rows cannot have a step")
            return IdentitySet(self.partition.members_between(first, max(first, end)), self._by)
        number = index.__index__()
        if not -n_rows <= number < n_rows:
            raise IndexError(f"there is no row {number}: the table has {n_rows}")
        return IdentitySet(self.partition.members(number % n_rows))

    def __iter__(self) -> Iterator[IdentitySet]:
        return (self[number] for number in range(len(self)))

    def __repr__(self) -> str:
        return self.partition.table(0, N_ROWS).rstrip("\n") if self.count else "<Nothing>"


class MappingProxy:
    """Reads an attribute or item of all objects of a set; objects without it are skipped."""

    __slots__ = ("_of",)

    def __init__(self, of: IdentitySet) -> None:
        self._of = of

    def __getattr__(self, name: str) -> IdentitySet:
        return self._ask(lambda each: getattr(each, name))

    def __getitem__(self, key: object) -> IdentitySet:
        return self._ask(lambda each: each[key])

    def _ask(self, question: Callable[[Any], object]) -> IdentitySet:
        from heaptide.inspection.heapy import of_objects

        answers = []
        for each in at_addrs(self._of.nodes):
            try:
                answers.append(question(each))
            except Exception:  # the object does not have it
                continue
        return of_objects(answers)


def of_view(view: HeapView, heap_set: HeapSet | None = None) -> IdentitySet:
    """Return a view of the heap, or some of its objects, as a set."""
    return IdentitySet(view.reachable() if heap_set is None else heap_set)
