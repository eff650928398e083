"""Turns objects into the boxes of a picture, and references into its arrows.

The search finds the objects first, row by row. Then each arrow gets a label: the attribute, key or index of the
reference.
"""

from __future__ import annotations

import itertools
import sys
import types
from typing import TYPE_CHECKING, Any

from heaptide.objects import references
from heaptide.objects.drawing import Graph, Node
from heaptide.objects.references import is_proper_module

if TYPE_CHECKING:
    import collections
    from collections.abc import Callable, Collection, Iterable

# Reference counts of immortal objects (Python 3.12 and later) are larger than this.
_IMMORTAL = 1 << 29


def short_name_of(each: object) -> str:
    """Return the name of an object's type."""
    return references.short_name(type(each))


def long_name_of(each: object) -> str:
    """Return the name of an object's type, with its module."""
    return references.long_name(type(each))


class Boxes:
    """Turns objects into boxes."""

    def __init__(
        self,
        filter: Callable[[Any], bool] | None,
        highlight: Callable[[Any], bool] | Collection[Any] | None,
        extra_info: Callable[[Any], str] | None,
        shortnames: bool,
        extra_node_attrs: Callable[[Any], dict[str, str]] | None,
        ignored_ids: Iterable[int],
    ) -> None:
        self._filter = filter
        self._highlight = highlight
        self._extra_info = extra_info
        self._name = short_name_of if shortnames else long_name_of
        self._attributes = extra_node_attrs
        self._ignored = set(ignored_ids)
        self._graph = Graph([], [])
        self._numbers: dict[int, int] = {}
        # Objects in the order of their boxes. References are labelled after the search: up to Python 3.12, labelling
        # creates dicts of attributes and variables, which the search would find.
        self._objects: list[Any] = []

    def backwards(self, starts: list[Any], max_depth: int, too_many: int, own: list[Any]) -> Graph:
        """Return the graph of the objects' referrers, row by row, from the bottom to the top."""
        referrers = references.Referrers([*own, own, starts, self._numbers, self._objects, self.__dict__])
        level = starts
        for each in starts:
            self._box(each, 0, "start")
        for depth in range(1, max_depth + 1):
            found = referrers.of([each for each in level if not is_proper_module(each)])
            following: list[Any] = []
            for each in level:
                around = [other for other in found.get(id(each), []) if other is not level and self._wanted(other)]
                # Modules first, so that they are kept if there are too many: the search ends at modules.
                around = sorted(references.sorted_by_name(around), key=_is_not_module)
                for other in around[:too_many]:
                    if id(other) not in self._numbers:
                        self._box(other, -depth)
                        following.append(other)
                    self._edge(other, each)
                self._add_more_box(each, len(around) - too_many, -depth, "backreference", is_source=True)
                del around  # in the next round, this list must not appear as a referrer
            level = following
        found = referrers.of([each for each in level if not is_proper_module(each)])
        for each in _distinct(level):
            around = [other for other in found.get(id(each), []) if other is not level]
            self._note_undrawn(each, around, is_backwards=True)
        return self._labelled()

    def forwards(self, starts: list[Any], max_depth: int, too_many: int) -> Graph:
        """Return the graph of the objects' referents, row by row, from the top to the bottom."""
        for each in starts:
            self._box(each, 0, "start")
        level = starts
        for depth in range(1, max_depth + 1):
            following: list[Any] = []
            for each in level:
                around = [other for other in _distinct(references.referents(each)) if self._wanted(other)]
                for other in around[:too_many]:
                    if id(other) not in self._numbers:
                        self._box(other, depth)
                        if not is_proper_module(other):
                            following.append(other)
                    self._edge(each, other)
                self._add_more_box(each, len(around) - too_many, depth, "reference", is_source=False)
            level = following
        for each in _distinct(level):
            self._note_undrawn(each, _distinct(references.referents(each)), is_backwards=False)
        return self._labelled()

    def chains(self, chains: list[list[Any]]) -> Graph:
        """Return the graph of several paths; paths that meet share boxes."""
        edges = set()
        for chain in chains:
            for row, each in enumerate(chain):
                # The ends of all paths are in one row, at the bottom.
                self._box(each, row - len(chain), "start" if row == len(chain) - 1 else None)
            for source, target in itertools.pairwise(chain):
                if (id(source), id(target)) not in edges:
                    edges.add((id(source), id(target)))
                    self._edge(source, target)
        return self._labelled()

    def count_references(self, of_arguments: collections.Counter[int]) -> None:
        """Write into each box the number of references to its object, without Heaptide's own references.

        `of_arguments` counts the references by the arguments of the call, which are also left out.
        """
        for number, box in enumerate(self._graph.nodes):
            if box.role != "more":
                count = sys.getrefcount(self._objects[number]) - 2
                shown = "immortal" if count > _IMMORTAL else count - of_arguments[id(self._objects[number])]
                box.lines[0] += f" [{shown}]"

    def _wanted(self, each: Any) -> bool:
        return id(each) not in self._ignored and (self._filter is None or self._filter(each))

    def _box(self, each: Any, row: int, role: str | None = None) -> None:
        if id(each) in self._numbers:
            return
        self._numbers[id(each)] = len(self._graph.nodes)
        self._objects.append(each)
        lines = [self._name(each), references.short_repr(each)]
        if self._extra_info is not None:
            lines.append(str(self._extra_info(each) or ""))
        node = Node(
            [line for line in lines if line], role or self._role(each), row, references.has_finalizer(type(each))
        )
        if self._attributes is not None:
            node.attributes = dict(self._attributes(each))
        self._graph.nodes.append(node)

    def _role(self, each: Any) -> str:
        if self._highlight is not None:
            highlight = self._highlight
            chosen = highlight(each) if callable(highlight) else any(each is other for other in highlight)
            if chosen:
                return "highlight"
        if is_proper_module(each):
            return "module"
        return "frame" if type(each) is types.FrameType else "object"

    def _edge(self, source: Any, target: Any) -> None:
        self._graph.edges.append((self._numbers[id(source)], self._numbers[id(target)], ""))

    def _labelled(self) -> Graph:
        """Return the graph with labelled arrows."""
        of_objects = {number for number, node in enumerate(self._graph.nodes) if node.role != "more"}
        for at, (source, target, _) in enumerate(self._graph.edges):
            if source in of_objects and target in of_objects:
                label = references.edge_label(self._objects[source], self._objects[target])
                self._graph.edges[at] = (source, target, label)
        return self._graph

    def _add_more_box(self, each: Any, number: int, row: int, word: str, is_source: bool) -> None:
        if number <= 0:
            return
        at = len(self._graph.nodes)
        self._objects.append(None)
        self._graph.nodes.append(Node([f"{number} more {word}{'' if number == 1 else 's'}"], "more", row))
        own = self._numbers[id(each)]
        self._graph.edges.append((at, own, "") if is_source else (own, at, ""))

    def _note_undrawn(self, each: Any, around: list[Any], is_backwards: bool) -> None:
        """Write into a box of the last row how many of its referrers (or referents) are not drawn."""
        own = self._numbers[id(each)]
        ends = ((target, source) if is_backwards else (source, target) for source, target, _ in self._graph.edges)
        drawn = {other for near, other in ends if near == own}
        number = sum(1 for other in around if self._wanted(other) and self._numbers.get(id(other)) not in drawn)
        if number:
            self._graph.nodes[own].lines.append(f"{'↑' if is_backwards else '↓'} {number} more")


def _is_not_module(each: Any) -> bool:
    return not is_proper_module(each)


def _distinct(objects: list[Any]) -> list[Any]:
    return list({id(each): each for each in objects}.values())
