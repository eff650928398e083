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
from typing import TYPE_CHECKING

from heaptide import _native
from heaptide._native import HeapView
from heaptide.heap_snapshots import HeapTaken, _Instance, _request, heap_snapshot
from heaptide.heapy_sets import IdentitySet, of_view

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from heaptide._native import HeapSet

_OWN_KINDS = (
    "heaptide.heapy.Heapy",
    "heaptide.heapy_sets.IdentitySet",
    "heaptide.heapy_sets.Rows",
    "heaptide.heapy_sets.Paths",
    "heaptide.heapy_sets.ReferencePattern",
    "heaptide._native.HeapView",
    "heaptide._native.HeapSet",
    "heaptide._native.HeapPartition",
    "builtins.HeapView",
    "builtins.HeapSet",
    "builtins.HeapPartition",
)

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
    load(path)      the objects of a snapshot that ``heaptide heap take`` or :meth:`save` wrote
    save(path)      write everything there is into a snapshot
    """

    __slots__ = ("_before",)

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

    def iso(self, *objects: object) -> IdentitySet:
        """The set of just these objects."""
        addresses = list(map(id, objects))
        del objects  # which would be what holds them
        return _at(addresses)

    def idset(self, objects: Iterable[object]) -> IdentitySet:
        """The set of just the objects of an iterable."""
        addresses = list(map(id, objects))
        del objects
        return _at(addresses)

    def load(self, path: str | os.PathLike[str]) -> IdentitySet:
        """The objects of a snapshot, of whatever process."""
        return of_view(HeapView.open(path))

    def save(self, path: str | os.PathLike[str]) -> HeapTaken:
        """Write all objects of this process into a snapshot."""
        return heap_snapshot(path)

    def __repr__(self) -> str:
        return "Heapy's session on Heaptide: heap(), setrelheap(), iso(), load(); help(heaptide.hpy()) says more."


def _look(token: object) -> HeapView:
    # The walk looks for the token in this very frame before it trusts what it knows of frames.
    return _native.look_at_heap(token, _TRIED, _REQUEST)


def _at(addresses: list[int]) -> IdentitySet:
    view = _look(_TOKEN)
    return of_view(view, view.at(addresses))


def _without_own(view: HeapView, found: HeapSet) -> HeapSet:
    for kind in _OWN_KINDS:
        found = found - view.of_kind(kind)
    return found
