"""Parts of heapy's sets that read the objects themselves, or follow references to the end."""

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
        return self._ask(lambda each: getattr(each, name))

    def __getitem__(self, key: object) -> IdentitySet:
        return self._ask(lambda each: each[key])

    def _ask(self, question: Callable[[Any], object]) -> IdentitySet:
        from heaptide.inspection.heapy import of_objects

        answers = []
        for each in self._of.nodes:
            try:
                answers.append(question(each))
            except Exception:  # the object does not have it
                continue
        return of_objects(answers)


def reached(heap_set: HeapSet) -> HeapSet:
    """Return a set and everything that can be reached from it."""
    found, latest = heap_set, heap_set
    while len(latest):
        latest = latest.referents() - found
        found = found | latest
    return found


def immediate_dominators(heap_set: HeapSet) -> HeapSet:
    """Return the referrers that the program reaches without passing through another referrer of the set."""
    referrers = heap_set.referrers()
    others = heap_set.view().reachable() - referrers.dominated()
    found = referrers & others.referents()
    # The referrers are roots, which nothing refers to.
    return found if len(found) else heap_set.dominators()


def attributes_of(kind: type) -> str:
    """Return the public attributes of a class with the first line of their descriptions."""
    names = sorted(name for name in dir(kind) if not name.startswith("_"))
    lines = [(name, (getattr(kind, name).__doc__ or "").partition("\n")[0]) for name in names]
    return "\n".join(f"{name:<20}{line}" for name, line in lines)
