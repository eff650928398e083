"""guppy's sets of objects by identity: equal objects are different members, and members need no hash."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


class NodeSet:
    """A set of objects by identity."""

    __slots__ = ("_by_id", "_hiding_tag_")

    def __init__(self, iterable: Iterable[Any] = (), hiding_tag: object = None) -> None:
        self._by_id = {id(each): each for each in iterable}
        self._hiding_tag_ = hiding_tag

    def _new(self, ids: Iterable[int], *sources: NodeSet) -> Any:
        known = {number: each for source in sources for number, each in source._by_id.items()}
        return type(self)([known[number] for number in ids], self._hiding_tag_)

    def __and__(self, other: Iterable[Any]) -> Any:
        return self._new(self._by_id.keys() & _nodes(other)._by_id.keys(), self)

    def __or__(self, other: Iterable[Any]) -> Any:
        second = _nodes(other)
        return self._new(self._by_id.keys() | second._by_id.keys(), self, second)

    def __sub__(self, other: Iterable[Any]) -> Any:
        return self._new(self._by_id.keys() - _nodes(other)._by_id.keys(), self)

    def __xor__(self, other: Iterable[Any]) -> Any:
        second = _nodes(other)
        return self._new(self._by_id.keys() ^ second._by_id.keys(), self, second)

    def __contains__(self, each: object) -> bool:
        return id(each) in self._by_id

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeSet) and self._by_id.keys() == other._by_id.keys()

    __hash__ = None  # type: ignore[assignment]

    def __le__(self, other: NodeSet) -> bool:
        return self._by_id.keys() <= other._by_id.keys()

    def __lt__(self, other: NodeSet) -> bool:
        return self._by_id.keys() < other._by_id.keys()

    def __ge__(self, other: NodeSet) -> bool:
        return self._by_id.keys() >= other._by_id.keys()

    def __gt__(self, other: NodeSet) -> bool:
        return self._by_id.keys() > other._by_id.keys()

    def theone(self) -> Any:
        """Return the only object."""
        if len(self) != 1:
            raise ValueError(f"the set has {len(self)} objects, not one")
        return next(iter(self))

    def obj_at(self, address: int) -> Any:
        """Return the member at an address."""
        if address not in self._by_id:
            raise ValueError(f"no member is at {address:#x}")
        return self._by_id[address]


class ImmNodeSet(NodeSet):
    """An immutable set of objects."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self._by_id))

    def mutcopy(self) -> MutNodeSet:
        """Return a copy that can be changed."""
        return MutNodeSet(self, self._hiding_tag_)


class MutNodeSet(NodeSet):
    """A set of objects that can be changed."""

    __slots__ = ()

    def add(self, each: Any) -> None:
        """Add an object."""
        self._by_id[id(each)] = each

    append = add

    def remove(self, each: Any) -> None:
        """Remove an object that is in the set."""
        if each not in self:
            raise ValueError("the object is not in the set")
        self.discard(each)

    def discard(self, each: Any) -> None:
        """Remove an object if it is in the set."""
        self._by_id.pop(id(each), None)

    def pop(self) -> Any:
        """Remove and return an object."""
        return self._by_id.popitem()[1]

    def clear(self) -> None:
        """Remove all objects."""
        self._by_id.clear()

    def tas(self, each: Any) -> bool:
        """Add an object, and return whether it was in the set."""
        was_member = each in self
        self.add(each)
        return was_member

    def tac(self, each: Any) -> bool:
        """Remove an object, and return whether it was in the set."""
        was_member = each in self
        self.discard(each)
        return was_member

    def __ior__(self, other: Iterable[Any]) -> MutNodeSet:
        self._by_id.update(_nodes(other)._by_id)
        return self

    def __iand__(self, other: Iterable[Any]) -> MutNodeSet:
        self._by_id = (self & other)._by_id
        return self

    def __isub__(self, other: Iterable[Any]) -> MutNodeSet:
        self._by_id = (self - other)._by_id
        return self

    def __ixor__(self, other: Iterable[Any]) -> MutNodeSet:
        self._by_id = (self ^ other)._by_id
        return self


def _nodes(other: Iterable[Any]) -> NodeSet:
    return other if isinstance(other, NodeSet) else NodeSet(other)


immnodeset = ImmNodeSet
mutnodeset = MutNodeSet


def mutnodeset_union(iterable: Iterable[Iterable[Any]]) -> MutNodeSet:
    """Return the union of sets as a set that can be changed."""
    union = MutNodeSet()
    for each in iterable:
        union |= each
    return union


def immnodeset_union(iterable: Iterable[Iterable[Any]], *args: Any) -> ImmNodeSet:
    """Return the union of sets as an immutable set."""
    return ImmNodeSet(mutnodeset_union(iterable), *args)
