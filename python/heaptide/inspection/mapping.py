"""Operations of heapy's sets that read attributes of the objects, or follow all references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from heaptide._native import HeapSet
    from heaptide.inspection.sets import IdentitySet


class MappingProxy:
    """Reads an attribute or item of all objects of a set; objects without it are skipped."""

    __slots__ = ("_of",)

    def __init__(self, of: IdentitySet) -> None:
        self._of = of

    def __getattr__(self, name: str) -> IdentitySet:
        return self._map(lambda each: getattr(each, name))

    def __getitem__(self, key: object) -> IdentitySet:
        return self._map(lambda each: each[key])

    def _map(self, read: Callable[[Any], object]) -> IdentitySet:
        from heaptide.inspection.heapy import of_objects

        values = []
        for each in self._of.nodes:
            try:
                values.append(read(each))
            except Exception:  # the object does not have it
                continue
        return of_objects(values)


def reached(heap_set: HeapSet) -> HeapSet:
    """Return the objects of a set and all objects reachable from them."""
    found, latest = heap_set, heap_set
    while len(latest):
        latest = latest.referents() - found
        found = found | latest
    return found


def immediate_dominators(heap_set: HeapSet) -> HeapSet:
    """Return the referrers of the set that are reachable without passing through another of its referrers."""
    referrers = heap_set.referrers()
    others = heap_set.view().reachable() - referrers.dominated()
    found = referrers & others.referents()
    # The set is empty if all referrers are roots, to which nothing refers.
    return found if len(found) else heap_set.dominators()


def attributes_of(kind: type) -> str:
    """Return the public attributes of a class with the first line of their descriptions."""
    names = sorted(name for name in dir(kind) if not name.startswith("_"))
    lines = [(name, (getattr(kind, name).__doc__ or "").partition("\n")[0]) for name in names]
    return "\n".join(f"{name:<20}{line}" for name, line in lines)
