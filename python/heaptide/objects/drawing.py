"""Draws a small graph of objects as dot text, an SVG or PNG picture or a page, without graphviz.

Nodes are arranged in rows by their distance from the start. The same graph is always drawn the same way.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from heaptide import _native, private_files

# Lines, role, row, whether the object has a finalizer, and attributes for dot.
_Box = tuple[list[str], str, int, bool, list[tuple[str, str]]]


@dataclass
class Node:
    """A box: lines of text, its role and its row.

    The role is ``object``, ``start``, ``module``, ``frame``, ``highlight``, or ``more`` for omitted objects.
    """

    lines: list[str]
    role: str
    row: int
    has_finalizer: bool = False
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass
class Graph:
    """Boxes, and arrows from a referrer to its referent: the numbers of both boxes and a label."""

    nodes: list[Node]
    edges: list[tuple[int, int, str]]


def draw(graph: Graph, form: str, title: str = "") -> str:
    """Return the graph as ``svg``, ``html`` or ``dot``; only a page has a title."""
    boxes, arrows = _plain(graph)
    return _native.draw_graph(boxes, arrows, form=form, title=_encodable(title))


def write(graph: Graph, path: str, form: str) -> None:
    """Write the graph to a file as ``svg``, ``png``, ``html`` or ``dot``."""
    if form == "png":
        private_files.write(path, _native.draw_graph_png(*_plain(graph)))
    else:
        private_files.write(path, draw(graph, form, os.path.basename(path)))


def _plain(graph: Graph) -> tuple[list[_Box], list[tuple[int, int, str]]]:
    boxes = [
        (
            list(map(_encodable, node.lines)),
            node.role,
            node.row,
            node.has_finalizer,
            [(_encodable(str(name)), _encodable(str(value))) for name, value in node.attributes.items()],
        )
        for node in graph.nodes
    ]
    return boxes, [(source, target, _encodable(label)) for source, target, label in graph.edges]


def _encodable(text: str) -> str:
    """Return the text without lone surrogates, which cannot be encoded."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
