"""heapy's sets of objects: they print as tables, and can be classified, compared and traced.

A set belongs to one view of the heap. Sets of different views can also be combined: objects at the same address count
as the same object.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

from heaptide.inspection.html_tables import N_ROWS, html_table
from heaptide.inspection.identity_table import IDENTITY_SETS, divide_by_identity
from heaptide.inspection.kinds import Family, Kind, Relation, classifier_name, findex, kind_of_rows, type_name
from heaptide.inspection.mapping import MappingProxy, attributes_of, immediate_dominators, reached
from heaptide.inspection.paths import Paths, as_edges
from heaptide.inspection.patterns import DEPTH, ReferencePattern
from heaptide.inspection.renderings import brief
from heaptide.inspection.stat import Stat, StatDifference
from heaptide.inspection.tables import JoinedPartition, Partition, Rows

# Imported now: if imported later, its objects would count as new since the first inspection.
from heaptide.objects import at, at_addrs
from heaptide.objects.references import is_a, short_name

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator
    from typing import TextIO

    from heaptide._native import HeapSet, HeapView
    from heaptide.inspection.tables import Divided


class IdentitySet:
    """A set of objects, with heapy's attributes. It prints as a table.

    An index returns the objects of a row. ``byvia``, ``bytype`` and so on show the same objects by another classifier.
    ``referrers``, ``shpaths`` and ``rp`` show what keeps the objects alive, ``domisize`` the bytes that would be freed
    with them. ``&``, ``|``, ``-`` and ``^`` combine sets, also with a type.
    """

    __slots__ = ("_by", "_heap_set", "_make", "_partition", "_pattern")

    def __init__(
        self,
        heap_set: HeapSet | None,
        by: str | Relation = "kind",
        make: Callable[[], HeapSet] | None = None,
        pattern: tuple[ReferencePattern, tuple[int, ...]] | None = None,
    ) -> None:
        self._heap_set = heap_set
        # The reference pattern and the row that this set belongs to, for `rp.a.b`; None for other sets.
        self._pattern = pattern
        # If `heap_set` is None, creates it when it is first used.
        self._make = make
        self._by = by
        self._partition: Divided | None = None

    @property
    def _set(self) -> HeapSet:
        if self._heap_set is None:
            assert self._make is not None
            self._heap_set = self._make()
        return self._heap_set

    def __getattr__(self, name: str) -> Any:
        """If this set is a row of a reference pattern, return the row of that name below it."""
        pattern = None if name.startswith("_") else self._pattern
        found = pattern[0].below(pattern[1], name) if pattern is not None else None
        if found is not None:
            return found
        raise AttributeError(f"a set of objects has no attribute {name!r}", name=name, obj=self)

    @property
    def _divided(self) -> Divided:
        if self._partition is None:
            by = self._by
            if by == "id":
                self._partition = divide_by_identity(self._set)
            else:
                self._partition = self._set.partition(by) if isinstance(by, str) else JoinedPartition(self._set, by)
        return self._partition

    @property
    def partition(self) -> Partition:
        """The set, divided into rows."""
        return Partition(self, self._divided)

    def table(self, first: int = 0, n_rows: int = N_ROWS) -> str:
        """Return `n_rows` rows from `first` on as text; all of them if `n_rows` is 0."""
        return self._divided.table(first, n_rows).rstrip("\n")

    def html(self, first: int = 0, n_rows: int = N_ROWS) -> str:
        """Return the same rows as an HTML table, which notebooks show."""
        return html_table(self._divided.heading, self._divided.rows(), first, n_rows)

    def by(self, er: str | Relation) -> IdentitySet:
        """Return the same objects by another classifier: `hp.Via`, ``"Via"``, or its name in `_native`."""
        if str(er) in ("Idset", "hp.Idset"):
            return self.byidset
        name = classifier_name(er)
        return self.byid if name == "id" else IdentitySet(self._set, name)

    @property
    def er(self) -> Relation:
        """The classifier of the set."""
        return Relation.of(self._by)

    @property
    def fam(self) -> Family:
        """The family of the set."""
        return Family("IdentitySet", self.er)

    @property
    def biper(self) -> Relation:
        """A classifier with two rows: the objects of this set, and all others."""
        label = self.brief if self.count else "<Nothing>"
        return findex(Kind("kind", label, members=lambda view: view.at(self._set.addresses())))

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
        """By the attribute, key or index through which referrers refer to each object."""
        return self.by("via")

    @property
    def byid(self) -> IdentitySet:
        """One row per object, the largest first, with the values of numbers and texts of this process."""
        found = IdentitySet(self._set, "id")
        # Read the values now: objects may be freed before the table is printed.
        found._partition = divide_by_identity(found._set)
        return found

    @property
    def byidset(self) -> IdentitySet:
        """One row per object, each as a set of one object."""
        return IdentitySet(self._set, IDENTITY_SETS)

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
        """By the line that allocated each object, if the allocation was recorded."""
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
        """The objects that would be freed with these, and these objects."""
        return IdentitySet(self._set.dominated())

    @property
    def imdom(self) -> IdentitySet:
        """The immediate dominators of these objects."""
        return IdentitySet(immediate_dominators(self._set))

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
        """The table without references to its objects, to keep, dump or subtract."""
        by = self._by if isinstance(self._by, str) else "kind"
        return Stat(by, self._divided.rows(), self._set.view().taken)

    def dump(self, fn: str | os.PathLike[str] | TextIO, mode: str = "a") -> None:
        """Append the table to a file that `hp.load` reads; `hp.save` writes the objects."""
        self.stat.dump(fn, mode)

    def diff(self, other: IdentitySet | Stat) -> StatDifference:
        """Return the difference from an earlier table."""
        return self.stat - (other.by(self._by).stat if isinstance(other, IdentitySet) else other)

    @property
    def maprox(self) -> MappingProxy:
        """``h.maprox.name`` is the set of the values of attribute ``name``, ``h.maprox[key]`` of item ``key``."""
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
    def kind(self) -> Kind:
        """The kinds of these objects, in one line. Can be combined with sets and other kinds."""
        return kind_of_rows(self._set, self._by)

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
        self,
        src: IdentitySet | None = None,
        avoid_nodes: IdentitySet | None = None,
        avoid_edges: Any = (),
        limit: int = N_ROWS,
    ) -> Paths:
        """Return the shortest paths from the roots or from `src`, without the objects and references to avoid."""
        avoid = self._set.view().of_kind("heaptide.inspection.heapy._LazyObjects")
        if avoid_nodes is not None:
            avoid = avoid | self._in_this_view(avoid_nodes)
        sources = None if src is None else self._in_this_view(src)
        return Paths(self._set, avoid, sources, as_edges(self._set, avoid_edges), maxpaths=limit)

    @property
    def pathsin(self) -> Paths:
        """The references to these objects: paths of one step."""
        return Paths(self._set, sources=self._set.referrers())

    @property
    def pathsout(self) -> Paths:
        """The references from these objects: paths of one step."""
        return Paths(self._set.referents() - self._set, sources=self._set)

    @property
    def rp(self) -> ReferencePattern:
        """The referrers of these objects by kind, and their referrers."""
        return self.get_rp()

    def get_rp(
        self,
        depth: int | None = None,
        er: Relation | None = None,
        imdom: bool = False,
        bf: bool = False,
        src: IdentitySet | None = None,
        stopkind: object = None,
        nocyc: bool = False,
        ref: Any = None,
        avoid_nodes: IdentitySet | None = None,
    ) -> ReferencePattern:
        """Return the reference pattern.

        depth        number of steps to follow; 7 by default
        er           classifier of the referrers; by kind by default
        imdom        follow immediate dominators instead of referrers
        bf           list rows breadth first
        src          only referrers that can be reached from these objects
        stopkind     kinds whose referrers are not followed; modules, types, code and frames by default
        nocyc        leave out objects of the rows above
        ref          ``"imdom"``, or a function from a set to its referrers
        avoid_nodes  objects that do not count as referrers
        """
        within = None if src is None else reached(self._in_this_view(src))
        avoid = self._set.view().of_kind("heaptide.inspection.heapy._LazyObjects")
        if avoid_nodes is not None:
            avoid = avoid | self._in_this_view(avoid_nodes)

        def children(members: HeapSet) -> HeapSet:
            if callable(ref):
                found = self._in_this_view(ref(IdentitySet(members)))
            else:
                found = immediate_dominators(members) if imdom or ref == "imdom" else members.referrers()
            found = found if within is None else found & within
            return found if avoid is None else found - avoid

        stop = None
        if stopkind is not None:
            stops = self._in_this_view(stopkind)

            def stop(members: HeapSet, names: list[str]) -> bool:
                return members.is_subset(stops)

        limit = DEPTH if depth is None else depth
        return ReferencePattern(self._set, limit, children, er or Relation("Clodo"), stop, bool(bf), nocyc)

    @property
    def more(self) -> Rows:
        """The rows after the first ten."""
        return Rows(self, N_ROWS, N_ROWS)

    @property
    def all(self) -> Rows:
        """The whole table."""
        return Rows(self, 0, 0)

    @property
    def nodes(self) -> list[Any]:
        """The objects themselves, if they still exist."""
        return at_addrs(self._set.addresses())

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
        return brief(self._set)

    @property
    def sites(self) -> list[list[tuple[str, str, int]]]:
        """Return the allocation stack of each object, if recorded: function, file and line, outermost first."""
        return self._set.sites()

    def get_examples(self, env: object = None) -> list[Any]:
        """Return some of the objects."""
        return at_addrs(self._set.addresses(3))

    def get_ckc(self) -> tuple[object, Kind, object]:
        """Return the classifier, the kind and the comparison that describe the set."""
        return self.er, self.kind, "<="

    def get_render(self) -> Callable[[Any], str]:
        """Return the function that renders an object for `brief`."""
        return lambda each: IdentitySet(self._set.view().at([id(each)])).brief

    def test_contains(self, element: object, env: object = None) -> bool:
        """Return whether an object is in the set."""
        return element in self

    @property
    def doc(self) -> str:
        """The attributes of sets."""
        return attributes_of(type(self))

    def disjoint(self, other: IdentitySet) -> bool:
        """Return whether no object is in both sets."""
        return (self & other).count == 0

    def _in_this_view(self, other: object) -> HeapSet:
        """Return the other operand as a set of this set's view of the heap."""
        view = self._set.view()
        # Not with `isinstance`, which objects and metaclasses can override.
        if is_a(other, IdentitySet):
            other = cast("IdentitySet", other)
            # The operators raise ValueError for sets of different views; match those by address.
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
        return IdentitySet(self._set & self._in_this_view(other), self._by)

    def __or__(self, other: object) -> IdentitySet:
        return IdentitySet(self._set | self._in_this_view(other), self._by)

    def __sub__(self, other: object) -> IdentitySet:
        return IdentitySet(self._set - self._in_this_view(other), self._by)

    def __xor__(self, other: object) -> IdentitySet:
        return IdentitySet(self._set ^ self._in_this_view(other), self._by)

    __rand__ = __and__
    __ror__ = __or__
    __rxor__ = __xor__

    def __invert__(self) -> IdentitySet:
        return IdentitySet(self._set.view().reachable() - self._set, self._by)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentitySet) and self._set == self._in_this_view(other)

    def __hash__(self) -> int:
        # Equal for sets of different views with the same objects.
        return hash((self.count, *self._set.addresses(8)))

    def __le__(self, other: IdentitySet) -> bool:
        return self._set.is_subset(self._in_this_view(other))

    def __ge__(self, other: IdentitySet) -> bool:
        return self._in_this_view(other).is_subset(self._set)

    def __lt__(self, other: IdentitySet) -> bool:
        return self <= other and self.count < other.count

    def __gt__(self, other: IdentitySet) -> bool:
        return self >= other and self.count > other.count

    def __contains__(self, each: object) -> bool:
        found = self._set.view().at([id(each)])
        return len(found) == 1 and found.is_subset(self._set)

    def __len__(self) -> int:
        return len(self._divided)

    def __bool__(self) -> bool:
        return self.count > 0

    def __getitem__(self, index: SupportsIndex | slice) -> IdentitySet:
        n_rows = len(self._divided)
        if isinstance(index, slice):
            first, end, step = index.indices(n_rows)
            if step != 1:
                raise ValueError("a slice of rows cannot have a step")
            return IdentitySet(self._divided.members_between(first, max(first, end)), self._by)
        number = operator.index(index)
        if not -n_rows <= number < n_rows:
            raise IndexError(f"there is no row {number}: the table has {n_rows}")
        return IdentitySet(self._divided.members(number % n_rows), self._by)

    def __iter__(self) -> Iterator[IdentitySet]:
        return (self[number] for number in range(len(self)))

    def __repr__(self) -> str:
        return self.table() if self.count else "hp.Nothing"

    def __str__(self) -> str:
        return self.table() if self.count else "<Nothing>"

    def _repr_html_(self) -> str:
        return self.html()


def of_view(view: HeapView, heap_set: HeapSet | None = None) -> IdentitySet:
    """Return the reachable objects of a view, or `heap_set`, as a heapy set."""
    return IdentitySet(view.reachable() if heap_set is None else heap_set)
