"""Drawing a small graph of objects: dot text, an SVG picture or a page, without any other program.

Nodes stand in rows by their distance from the start. The same graph is always drawn the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from heaptide import _native


@dataclass
class Node:
    """A box: lines of text, what it is and its row.

    It is an ``object``, a ``start``, a ``module``, a ``frame``, a ``highlight``, or says how many ``more`` there are.
    """

    lines: list[str]
    kind: str
    row: int
    has_finalizer: bool = False
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass
class Graph:
    """Boxes, and arrows from a referrer to what it refers to: two numbers of boxes and a word."""

    nodes: list[Node]
    edges: list[tuple[int, int, str]]


def draw(graph: Graph, form: str, title: str = "") -> str:
    """The graph as ``svg``, ``html`` or ``dot``; the title is for a page alone."""
    boxes = [
        (
            list(map(_sound, node.lines)),
            node.kind,
            node.row,
            node.has_finalizer,
            [(_sound(str(name)), _sound(str(value))) for name, value in node.attributes.items()],
        )
        for node in graph.nodes
    ]
    arrows = [(source, target, _sound(label)) for source, target, label in graph.edges]
    return _native.draw_graph(boxes, arrows, form=form, title=_sound(title))


def _sound(text: str) -> str:
    """The text without halves of characters, which no file can hold."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
