"""A session with the heap, in heapy's words: ``hp = heaptide.hpy()``.

::

    >>> hp = heaptide.hpy()
    >>> hp.setrelheap()
    >>> run_task()
    >>> h = hp.heap()
    >>> h
    >>> h[0].byvia

Looking makes no Python object of the program's and changes none. What belongs to the session itself is left out.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

from heaptide import _native
from heaptide._native import HeapView
from heaptide.inspection.kinds import Relation
from heaptide.inspection.sets import IdentitySet, of_view
from heaptide.inspection.snapshots import HeapTaken, _Instance, _request, heap_snapshot
from heaptide.inspection.stat import Stat, read

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

    from heaptide._native import HeapSet

_OWN_KINDS = (
    "heaptide.inspection.heapy.Heapy",
    "heaptide.inspection.heapy._Named",
    "heaptide.inspection.sets.IdentitySet",
    "heaptide.inspection.tables.Rows",
    "heaptide.inspection.tables.Paths",
    "heaptide.inspection.tables.ReferencePattern",
    "heaptide.inspection.sets.MappingProxy",
    "heaptide.inspection.kinds.Kind",
    "heaptide.inspection.kinds.Relation",
    "heaptide.inspection.stat.Stat",
    "heaptide.inspection.stat.StatDifference",
    "heaptide._native.HeapView",
    "heaptide._native.HeapSet",
    "heaptide._native.HeapPartition",
    "builtins.HeapView",
    "builtins.HeapSet",
    "builtins.HeapPartition",
)

# How a snapshot begins.
_MAGIC = b"\x89HEAP\r\n\x1a"

# What a look needs is made once and stays: made anew each time it would be among what came since the last look, and
# what comes could take its place.
_TOKEN, _FIRST, _SECOND = object(), object(), object()
_TRIED = (_Instance(_FIRST, _SECOND), _FIRST, _SECOND)
_REQUEST = _request(False, ())


def hpy() -> Heapy:
    """A new session."""
    return Heapy()


def heap() -> IdentitySet:
    """All objects of this process as a set: by kind when it is printed, with heapy's questions as its attributes."""
    return Heapy().heap()


class Heapy:
    """Looks at the heap of this process, or at a snapshot of another one.

    heap()          all objects, or those that came since :meth:`setrelheap`
    setrelheap()    what is there now is not shown from now on
    heapu()         objects that nothing leads to and that were not collected yet
    iso(a, b)       the set of just these objects
    load(path)      the objects of a snapshot that ``heaptide heap take`` or :meth:`save` wrote, or a table that
                    ``h.dump`` wrote
    save(path)      write everything there is into a snapshot
    Nothing         the set without objects
    Clodo, Type, Size, Module, Via, Rcs, Id, Unity, Prod
                    what sets are taken apart by: ``h.by(hp.Via)``, ``h & hp.Type(Order)``
    """

    __slots__ = ("_before",)

    Clodo, Type, Size = Relation("Clodo"), Relation("Type"), Relation("Size")
    Module, Via, Rcs = Relation("Module"), Relation("Via"), Relation("Rcs")
    Id, Unity, Prod = Relation("Id"), Relation("Unity"), Relation("Prod")
    Anything = Unity()

    def __init__(self) -> None:
        self._before: HeapView | None = None

    def heap(self) -> IdentitySet:
        """All objects that roots lead to; after :meth:`setrelheap`, those that were not there then."""
        gc.collect()
        view = _look(_TOKEN)
        found = view.reachable() if self._before is None else view.new_since(self._before) & view.reachable()
        return of_view(view, _without_own(view, found))

    def heapu(self) -> IdentitySet:
        """Objects that nothing leads to and that the collector has not taken yet."""
        view = _look(_TOKEN)
        return of_view(view, _without_own(view, view.unreachable()))

    def setrelheap(self) -> None:
        """Remember what is there now: :meth:`heap` shows what comes."""
        self._before = None
        gc.collect()
        self._before = _look(_TOKEN)

    setref = setrelheap

    @property
    def Nothing(self) -> IdentitySet:
        """The set without objects."""
        view = _look(_TOKEN)
        return of_view(view, view.empty())

    def iso(self, *objects: object) -> IdentitySet:
        """The set of just these objects."""
        return of_objects(objects)

    def idset(self, objects: Iterable[object]) -> IdentitySet:
        """The set of just the objects of an iterable."""
        return of_objects(objects)

    def load(self, fn: str | os.PathLike[str] | Iterable[str]) -> IdentitySet | Stat:
        """The objects of a snapshot, of whatever process, or the last table that was dumped into a file."""
        if isinstance(fn, (str, os.PathLike)):
            with open(fn, "rb") as file:
                is_snapshot = file.read(len(_MAGIC)) == _MAGIC
            if is_snapshot:
                return of_view(HeapView.open(fn))
        tables = self.loadall(fn)
        if not tables:
            raise ValueError(
                "there is neither a snapshot nor a table in it: heaptide heap take writes the one, h.dump the other"
            )
        return tables[-1]

    def loadall(self, fn: str | os.PathLike[str] | Iterable[str]) -> list[Stat]:
        """All tables that were dumped into a file."""
        if isinstance(fn, (str, os.PathLike)):
            with open(fn, encoding="utf-8", errors="replace") as file:
                return list(read(file))
        return list(read(fn))

    def pb(self, filename: str | None = None) -> NoReturn:
        """Heapy's profile browser, which needs a window; ours is a page."""
        raise NotImplementedError(
            "there is no profile browser here: hp.save('job.heap'), then `heaptide heap explore job.heap` makes a page"
        )

    def monitor(self) -> NoReturn:
        """Heapy's monitor of other processes, which is gone from guppy, too."""
        raise NotImplementedError("there is no monitor here: `heaptide heap --pid PID` looks at another process")

    def save(self, path: str | os.PathLike[str]) -> HeapTaken:
        """Write all objects of this process into a snapshot."""
        return heap_snapshot(path)

    def __repr__(self) -> str:
        return "Heapy's session on Heaptide: heap(), setrelheap(), iso(), load(); help(heaptide.hpy()) says more."


def _look(heaptide_token: object) -> HeapView:
    # The walk looks for `heaptide_token` in this very frame before it trusts what it knows of frames.
    return _native.look_at_heap(heaptide_token, _TRIED, _REQUEST)


def of_objects(objects: Iterable[object]) -> IdentitySet:
    """Just these objects, as a set. The heap is looked at when the set is first asked for something.

    While this call has not returned, what its caller passed them in holds them, and would be shown as what does.
    """
    return IdentitySet(None, look=_Named(list(objects)))


class _Named:
    """Some objects, until they have been looked for."""

    __slots__ = ("_objects",)

    def __init__(self, objects: list[object]) -> None:
        self._objects = objects

    def __call__(self) -> HeapSet:
        addresses = list(map(id, self._objects))
        # What nothing else refers to must not go before the look; of the others no reference of ours is to be seen.
        self._objects = _only_here(self._objects)
        return _look(_TOKEN).at(addresses)


def _only_here(objects: list[object]) -> list[object]:
    counts = [sys.getrefcount(each) for each in [*objects, object()]]
    of_none_else = counts.pop() + 1
    return [each for each, count in zip(objects, counts, strict=True) if count <= of_none_else]


def _without_own(view: HeapView, found: HeapSet) -> HeapSet:
    for kind in _OWN_KINDS:
        found = found - view.of_kind(kind)
    return found
