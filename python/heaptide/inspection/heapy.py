"""Inspects the heap with heapy's operations: ``hp = heaptide.hpy()``.

::

    >>> hp = heaptide.hpy()
    >>> hp.setrelheap()
    >>> run_task()
    >>> h = hp.heap()
    >>> h
    >>> h[0].byvia

Inspecting the heap neither creates nor changes objects of the program. Objects of Heaptide itself are left out.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING, cast

from heaptide import _native
from heaptide._native import HeapView, HiddenObjects
from heaptide.inspection.kinds import Relation, findex
from heaptide.inspection.mapping import attributes_of
from heaptide.inspection.sets import IdentitySet, of_view
from heaptide.inspection.snapshots import HeapSnapshot, _Instance, _request, heap_snapshot
from heaptide.inspection.stat import Stat, StatDifference, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import NoReturn

    from heaptide._native import HeapSet

_OWN_KINDS = [
    "heaptide.inspection.heapy.Heapy",
    "heaptide.inspection.heapy._LazyObjects",
    "heaptide.inspection.sets.IdentitySet",
    "heaptide.inspection.tables.Rows",
    "heaptide.inspection.tables.Partition",
    "heaptide.inspection.tables.PartitionRow",
    "heaptide.inspection.tables.JoinedPartition",
    "heaptide.inspection.identity_table.IdentityTable",
    "heaptide.inspection.paths.Path",
    "heaptide.inspection.paths.Paths",
    "heaptide.inspection.patterns.PatternRow",
    "heaptide.inspection.patterns.ReferencePattern",
    "heaptide.inspection.mapping.MappingProxy",
    "heaptide.inspection.kinds.Kind",
    "heaptide.inspection.kinds.Relation",
    "heaptide.inspection.kinds.Family",
    "heaptide.inspection.stat.Stat",
    "heaptide.inspection.stat.StatRow",
    "heaptide.inspection.stat.PackedRows",
    "heaptide.inspection.stat.StatDifference",
    "heaptide._native.HeapView",
    "heaptide._native.HeapSet",
    "heaptide._native.HeapPartition",
    "heaptide._native.HiddenObjects",
    "builtins.HeapView",
    "builtins.HeapSet",
    "builtins.HeapPartition",
    "builtins.HiddenObjects",
]

# The first bytes of a snapshot.
_MAGIC = b"\x89HEAP\r\n\x1a"

# Created once: objects created for each inspection would count as new, and objects of the program could reuse their
# addresses.
_TOKEN, _FIRST, _SECOND = object(), object(), object()
_KNOWN_INSTANCE = (_Instance(_FIRST, _SECOND), _FIRST, _SECOND)
_REQUEST = _request(False, ())

# Whether the last collection found garbage, so that the next inspection begins with one.
_collects_first = False


def hpy() -> Heapy:
    """Return a new :class:`Heapy`, the object with heapy's operations."""
    return Heapy()


def heap() -> IdentitySet:
    """Return all objects of this process as a set, which prints as a table by kind and has heapy's attributes."""
    return Heapy().heap()


class Roots:
    """heapy's root: the namespaces at which reference paths begin."""

    __slots__ = ()

    @property
    def i0_modules(self) -> Mapping[str, object]:
        """All modules."""
        return sys.modules

    @property
    def i0_sysdict(self) -> dict[str, object]:
        """The names of the module `sys`."""
        return vars(sys)

    @property
    def i0_builtins(self) -> dict[str, object]:
        """The names of the module `builtins`."""
        import builtins

        return vars(builtins)

    def __repr__(self) -> str:
        return "RootState"


class Heapy:
    """Inspects the heap of this process, or a snapshot of another one.

    heap()          all objects, or only those made since :meth:`setrelheap`
    setrelheap()    leave out the current objects from now on
    heapu()         table of unreachable objects that remain after a collection
    iso(a, b)       the set of these objects
    load(path)      the objects of a snapshot from ``heaptide heap take`` or :meth:`save`, or a table from ``h.dump``
    save(path)      write all objects to a snapshot
    Nothing         the empty set
    Clodo, Type, Size, Module, Via, Rcs, Id, Idset, Unity, Prod
                    classifiers of objects: ``h.by(hp.Via)``, ``h & hp.Type(Order)``, ``h.by(hp.Type & hp.Size)``
    findex(a, b)    classifier by the first kind that an object has
    Root            where paths begin: ``hp.Root.i0_modules`` is ``sys.modules``
    reprefix        text before `Root` in heapy's paths; kept for programs that assign it
    """

    __slots__ = ("_before", "_unreachable_before", "reprefix")

    Clodo, Type, Size = Relation("Clodo"), Relation("Type"), Relation("Size")
    Module, Via, Rcs = Relation("Module"), Relation("Via"), Relation("Rcs")
    Id, Idset, Unity, Prod = Relation("Id"), Relation("Idset"), Relation("Unity"), Relation("Prod")
    Anything = Unity()
    Root = Roots()
    findex = staticmethod(findex)
    default_reprefix = "hpy()."

    def __init__(self) -> None:
        self._before: HeapView | None = None
        self._unreachable_before: Stat | None = None
        self.reprefix = "hp."

    @property
    def doc(self) -> str:
        """The attributes of this object."""
        return attributes_of(type(self))

    def heap(self) -> IdentitySet:
        """Return all reachable objects; after :meth:`setrelheap`, only those made since."""
        view = _view_of_live_objects()
        if self._before is None:
            return of_view(view, view.reachable_without(_OWN_KINDS))
        return of_view(view, _without_own(view, view.new_since(self._before) & view.reachable()))

    def heapu(self, rma: object = 1, abs: object = 0, stat: object = 1) -> Stat | StatDifference | IdentitySet:
        """Return the table of unreachable objects that remain after a collection.

        rma   has no effect
        abs   do not subtract the table of :meth:`setref`
        stat  0 returns the set of the objects
        """
        gc.collect()
        view = _view(_TOKEN)
        found = of_view(view, _without_own(view, view.unreachable()))
        if not stat:
            return found
        table = found.by("type").stat
        if self._unreachable_before is not None and not abs:
            return table - self._unreachable_before
        table.firstheader = "Data from unreachable objects.\n"
        return table

    def setref(self, reachable: IdentitySet | None = None, unreachable: Stat | IdentitySet | None = None) -> None:
        """Leave out the current objects, or the given ones, from :meth:`heap` and :meth:`heapu`."""
        if reachable is not None or unreachable is None:
            self.setrelheap(reachable)
        if unreachable is not None or reachable is None:
            self.setrelheapu(unreachable)

    def setrelheap(self, reference: IdentitySet | None = None) -> None:
        """Leave out the current objects from now on: :meth:`heap` returns only newer ones.

        With a set, leave out all objects that were alive when that set was made.
        """
        self._before = None
        gc.collect()
        self._before = _view(_TOKEN) if reference is None else reference._set.view()

    def setrelheapu(self, reference: Stat | IdentitySet | None = None, stat: object = 1) -> None:
        """Subtract the current table, or `reference`, from later tables of :meth:`heapu`."""
        self._unreachable_before = None
        found = self.heapu(abs=1) if reference is None else reference
        self._unreachable_before = found.by("type").stat if isinstance(found, IdentitySet) else cast("Stat", found)

    def heapg(self, rma: object = 1) -> IdentitySet:
        """Return the same as :meth:`heap`: this process has one heap."""
        return self.heap()

    def setrelheapg(self, reference: IdentitySet | None = None) -> None:
        """Do the same as :meth:`setrelheap`."""
        self.setrelheap(reference)

    def dumph(self, fn: str | os.PathLike[str]) -> None:
        """Append the table of all objects to a file."""
        self.heap().dump(fn)

    @property
    def Nothing(self) -> IdentitySet:
        """The set without objects."""
        view = _view(_TOKEN)
        return of_view(view, view.empty())

    def iso(self, *objects: object, er: Relation | None = None) -> IdentitySet:
        """Return the set of exactly these objects."""
        return self.idset(objects, er)

    def idset(self, iterable: Iterable[object], er: Relation | None = None) -> IdentitySet:
        """Return the set of exactly the objects of an iterable, with a classifier if given."""
        found = of_objects(iterable)
        return found if er is None else found.by(er)

    def load(
        self, fn: str | os.PathLike[str] | Iterable[str], use_readline: object = 0
    ) -> IdentitySet | Stat | StatDifference:
        """Return the objects of a snapshot, or a table: the first of a named file, the next of an open one."""
        if isinstance(fn, (str, os.PathLike)):
            with open(fn, "rb") as file:
                is_snapshot = file.read(len(_MAGIC)) == _MAGIC
            if is_snapshot:
                return of_view(HeapView.open(fn))
            with open(fn, encoding="utf-8", errors="replace") as file:
                table = next(read(file), None)
        else:
            table = next(read(fn), None)
        if table is None:
            raise ValueError(
                "the file contains neither a snapshot nor a table: write one with heaptide heap take or h.dump"
            )
        return table

    def loadall(self, f: str | os.PathLike[str] | Iterable[str]) -> Iterator[Stat | StatDifference]:
        """Yield all tables that were dumped to a file."""
        if isinstance(f, (str, os.PathLike)):
            with open(f, encoding="utf-8", errors="replace") as file:
                yield from read(file)
        else:
            yield from read(f)

    def loadc(self, fn: str | os.PathLike[str]) -> None:
        """Print all tables that were dumped to a file."""
        for table in self.loadall(fn):
            print(table)

    def test(self, debug: bool = False) -> None:
        """Not needed: Heaptide's tests are not installed with it."""
        print("Heaptide's tests are part of its source code, not of the installed package.")

    def pb(self, filename: str | None = None) -> NoReturn:
        """Not supported: Heaptide's browser is a page, not a window."""
        raise NotImplementedError(
            "there is no profile browser: call hp.save('job.heap') and run `heaptide heap explore job.heap` instead"
        )

    def monitor(self) -> NoReturn:
        """Not supported; guppy has also removed it."""
        raise NotImplementedError("there is no monitor: inspect another process with `heaptide heap --pid PID`")

    def save(self, path: str | os.PathLike[str]) -> HeapSnapshot:
        """Write all objects of this process to a snapshot."""
        return heap_snapshot(path)

    def __repr__(self) -> str:
        return "Heapy's session on Heaptide: heap(), setrelheap(), iso(), load(). See help(heaptide.hpy())."


def _view(heaptide_token: object) -> HeapView:
    # The walk verifies its frame layout by finding `heaptide_token` in this frame.
    return _native.snapshot_heap(heaptide_token, _KNOWN_INSTANCE, _REQUEST)


def _view_of_live_objects() -> HeapView:
    """Return a view in which the reachable objects are those that a collection would leave.

    The walk finds garbage by the collector's own rule. A collection is needed only if it does more than free memory.
    """
    global _collects_first
    if _collects_first or gc.get_debug() & gc.DEBUG_SAVEALL:
        _collects_first = gc.collect() > 0
        return _view(_TOKEN)
    view = _view(_TOKEN)
    if view.needs_collection:
        del view
        # The program may create such garbage again: the next call collects first and walks only once.
        _collects_first = gc.collect() > 0
        view = _view(_TOKEN)
    return view


def of_objects(objects: Iterable[object]) -> IdentitySet:
    """Return the set of these objects. The heap is inspected when the set is first used.

    An inspection during this call would show the caller's argument list as a referrer of the objects.
    """
    return IdentitySet(None, make=_LazyObjects(objects))


class _LazyObjects:
    """Objects that are inspected when the set of them is first used."""

    __slots__ = ("_kept", "_objects")

    def __init__(self, objects: Iterable[object]) -> None:
        self._objects = HiddenObjects(list(objects))

    def __call__(self) -> HeapSet:
        objects = self._objects.take()
        addresses = list(map(id, objects))
        # Keep only objects that would otherwise be freed: this list would appear as a referrer of the others.
        self._kept = _without_other_referrers(objects)
        del objects
        return _view(_TOKEN).at(addresses)


def _without_other_referrers(objects: list[object]) -> list[object]:
    counts = [sys.getrefcount(each) for each in [*objects, object()]]
    highest = counts.pop() + 1
    return [each for each, count in zip(objects, counts, strict=True) if count <= highest]


def _without_own(view: HeapView, found: HeapSet) -> HeapSet:
    return found - view.of_kinds(_OWN_KINDS)
