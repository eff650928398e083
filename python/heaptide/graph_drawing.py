"""Drawing a small graph of objects: dot text, an SVG picture or a page, without any other program.

Nodes stand in rows by their distance from the start; within a row they are ordered so that edges cross little. The
same graph is always drawn the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

_FONT = 12
_CHARACTER = 7.25
_LINE = 16
_PADDING = 8
_GAP = 28
_ROW_GAP = 64
_MARGIN = 20
_SWEEPS = 8

# Fill and text by what a node is.
_COLOURS = {
    "object": ("#eef2f7", "#1f2933"),
    "start": ("#fde8e8", "#9b1c1c"),
    "module": ("#dcfce7", "#14532d"),
    "frame": ("#fef3c7", "#78350f"),
    "highlight": ("#dbeafe", "#1e3a8a"),
    "more": ("#ffffff", "#b91c1c"),
}


@dataclass
class Node:
    """A box: lines of text, what it is (a key of the colours above) and its row."""

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

    def is_empty(self) -> bool:
        """Tell whether there is nothing to draw."""
        return not self.nodes


def to_dot(graph: Graph) -> str:
    """The graph for graphviz and its relatives."""
    lines = ["digraph ObjectGraph {", "  node[shape=box, style=filled, fillcolor=white];"]
    for number, node in enumerate(graph.nodes):
        fill, text = _COLOURS[node.kind]
        attributes = {"label": "\\n".join(map(_dot_text, node.lines)), "fillcolor": fill, "fontcolor": text}
        if node.has_finalizer:
            attributes["shape"] = "doubleoctagon"
        attributes.update({name: _dot_text(str(value)) for name, value in node.attributes.items()})
        shown = ", ".join(f'{name}="{value}"' for name, value in attributes.items())
        lines.append(f"  o{number}[{shown}];")
    for source, target, label in graph.edges:
        shown = f' [label="{_dot_text(label)}"]' if label else ""
        lines.append(f"  o{source} -> o{target}{shown};")
    return "\n".join([*lines, "}", ""])


def _dot_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\0", "\\\\0").replace("\n", " ")


def to_svg(graph: Graph) -> str:
    """The graph as a picture."""
    boxes = _place(graph)
    width = max((x + w for x, _, w, _ in boxes), default=0) + _MARGIN
    height = max((y + h for _, y, _, h in boxes), default=0) + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="{_FONT}">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#64748b"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#fff"/>',
    ]
    parts.extend(_edge(boxes[source], boxes[target], label) for source, target, label in graph.edges)
    parts.extend(_box(node, box) for node, box in zip(graph.nodes, boxes, strict=True))
    return "\n".join([*parts, "</svg>", ""])


def to_html(graph: Graph, title: str) -> str:
    """The picture on a page of its own, to be moved with the mouse and enlarged with the wheel."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title><style>'
        "body{margin:0;font:14px sans-serif;overflow:hidden}h1{font-size:16px;margin:12px 20px}"
        "#view{width:100vw;height:calc(100vh - 48px);overflow:hidden;cursor:grab}#view svg{transform-origin:0 0}"
        f'</style></head><body><h1>{escape(title)}</h1><div id="view">\n{to_svg(graph)}</div><script>'
        "(()=>{const v=document.getElementById('view'),s=v.querySelector('svg');let x=0,y=0,k=1,d=null;"
        "const t=()=>s.style.transform=`translate(${x}px,${y}px) scale(${k})`;"
        "v.onpointerdown=e=>{d=[e.clientX-x,e.clientY-y];v.setPointerCapture(e.pointerId)};"
        "v.onpointermove=e=>{if(d){x=e.clientX-d[0];y=e.clientY-d[1];t()}};v.onpointerup=()=>d=null;"
        "v.addEventListener('wheel',e=>{e.preventDefault();const f=e.deltaY<0?1.1:1/1.1,r=v.getBoundingClientRect(),"
        "a=e.clientX-r.left,b=e.clientY-r.top;x=a-(a-x)*f;y=b-(b-y)*f;k*=f;t()},{passive:false})})()"
        "</script></body></html>\n"
    )


Box = tuple[float, float, float, float]


def _place(graph: Graph) -> list[Box]:
    """Left, top, width and height of every box."""
    sizes = [
        (max(map(len, node.lines), default=1) * _CHARACTER + 2 * _PADDING, len(node.lines) * _LINE + 2 * _PADDING)
        for node in graph.nodes
    ]
    rows: dict[int, list[int]] = {}
    for number, node in enumerate(graph.nodes):
        rows.setdefault(node.row, []).append(number)
    ordered = [rows[row] for row in sorted(rows)]
    _uncross(ordered, graph.edges)
    widths = [sum(sizes[number][0] + _GAP for number in row) - _GAP for row in ordered]
    boxes: list[Box] = [(0, 0, 0, 0)] * len(graph.nodes)
    top = float(_MARGIN)
    for row, row_width in zip(ordered, widths, strict=True):
        left = _MARGIN + (max(widths) - row_width) / 2
        for number in row:
            width, height = sizes[number]
            boxes[number] = (left, top, width, height)
            left += width + _GAP
        top += max(sizes[number][1] for number in row) + _ROW_GAP
    return boxes


def _uncross(rows: list[list[int]], edges: list[tuple[int, int, str]]) -> None:
    """Order each row by the middle of its neighbours, down and up in turn."""
    neighbours: dict[int, list[int]] = {}
    for source, target, _ in edges:
        neighbours.setdefault(source, []).append(target)
        neighbours.setdefault(target, []).append(source)
    place: dict[int, float] = {}

    def remember(row: list[int]) -> None:
        for at, number in enumerate(row):
            place[number] = (at + 0.5) / len(row)

    for row in rows:
        remember(row)
    for sweep in range(_SWEEPS):
        for at in range(len(rows)) if sweep % 2 == 0 else range(len(rows) - 1, -1, -1):
            row = rows[at]

            def middle(number: int) -> float:
                around = neighbours.get(number)
                return sum(place[other] for other in around) / len(around) if around else place[number]

            row.sort(key=middle)
            remember(row)


def _edge(source: Box, target: Box, label: str) -> str:
    x1, x2 = source[0] + source[2] / 2, target[0] + target[2] / 2
    down = source[1] <= target[1]
    y1 = source[1] + source[3] if down else source[1]
    y2 = target[1] if down else target[1] + target[3]
    if source[1] == target[1]:  # the same row: below the boxes
        y1, y2 = source[1] + source[3], target[1] + target[3]
    bend = _ROW_GAP / 2 if down or source[1] == target[1] else -_ROW_GAP / 2
    end = bend if source[1] == target[1] else -bend
    path = f"M{x1:.1f} {y1:.1f}C{x1:.1f} {y1 + bend:.1f} {x2:.1f} {y2 + end:.1f} {x2:.1f} {y2:.1f}"
    text = ""
    if label:
        x, y = (x1 + x2) / 2, (y1 + y2) / 2 + 4 + (bend * 0.75 if source[1] == target[1] else 0)
        text = (
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" fill="#475569" stroke="#fff" stroke-width="4" '
            f'paint-order="stroke">{escape(label)}</text>'
        )
    return f'<path d="{path}" fill="none" stroke="#64748b" marker-end="url(#tip)"/>{text}'


def _box(node: Node, box: Box) -> str:
    x, y, width, height = box
    fill, colour = _COLOURS[node.kind]
    double = ' stroke-width="3"' if node.has_finalizer else ""
    rows = "".join(
        f'<tspan x="{x + _PADDING:.1f}" dy="{_LINE if at else 0}">{escape(line)}</tspan>'
        for at, line in enumerate(node.lines)
    )
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="4" fill="{fill}" '
        f'stroke="{colour}"{double}/><text x="{x:.1f}" y="{y + _PADDING + _FONT:.1f}" fill="{colour}" '
        f'xml:space="preserve">{rows}</text>'
    )
