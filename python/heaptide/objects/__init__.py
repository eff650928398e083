"""Counts, compares and draws objects of this process, with objgraph's functions and names: ``heaptide.objects``.

Unlike objgraph, these functions also find objects that the garbage collector does not track: strings, numbers, and
tuples and dicts that contain only these. They draw SVG pictures and pages without graphviz.
"""

from __future__ import annotations

import collections
import gc
import itertools
import os
import sys
import tempfile
import types
from typing import TYPE_CHECKING, Any

from heaptide.objects import drawing, references
from heaptide.objects.boxes import Boxes
from heaptide.objects.counting import Counting
from heaptide.objects.references import is_proper_module

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import TextIO

    from heaptide.objects.drawing import Graph

__all__ = [
    "at",
    "at_addrs",
    "by_type",
    "count",
    "find_backref_chain",
    "find_ref_chain",
    "get_leaking_objects",
    "get_new_ids",
    "growth",
    "is_proper_module",
    "most_common_types",
    "show_backrefs",
    "show_chain",
    "show_growth",
    "show_most_common_types",
    "show_refs",
    "typestats",
]

_FORMATS = ("svg", "png", "dot", "html")
# Formats that need graphviz; an SVG shows the same in every browser.
_PICTURES = ("gif", "jpg", "jpeg", "pdf", "ps", "webp", "bmp")


_counting = Counting(references.all_objects, references.long_name)
at = _counting.at
at_addrs = _counting.at_addrs
by_type = _counting.by_type
count = _counting.count
get_new_ids = _counting.get_new_ids
growth = _counting.growth
most_common_types = _counting.most_common_types
show_growth = _counting.show_growth
show_most_common_types = _counting.show_most_common_types
typestats = _counting.typestats


def get_leaking_objects(objects: Iterable[Any] | None = None) -> list[Any]:
    """Return the given objects, by default all tracked ones, to which no tracked object refers.

    Either native code refers to them, or native code failed to release its reference.
    """
    gc.collect()
    tracked = gc.get_objects()
    found = tracked if objects is None else list(objects)
    own = {id(tracked), id(found), id(objects)}
    referred: set[int] = set()
    for each in tracked:
        if id(each) not in own:
            referred.update(map(id, references.referents(each)))
    running = set(map(id, references.running_frames()))
    for frame in references.running_frames():
        referred.update(map(id, references.referents(frame)))
    return [
        each
        for each in found
        if id(each) not in referred
        and id(each) not in own
        and id(each) not in running
        and each is not referred
        and type(each) is not types.FrameType
    ]


def find_ref_chain(
    obj: Any, predicate: Callable[[Any], bool], max_depth: int = 20, extra_ignore: Iterable[int] = ()
) -> list[Any]:
    """Return the shortest path from `obj` to an object for which the predicate is true; `[obj]` if there is none."""
    ignored = at_addrs(set(extra_ignore)) if extra_ignore else []
    return references.chain_forward(obj, predicate, max_depth, ignored)


def find_backref_chain(
    obj: Any, predicate: Callable[[Any], bool], max_depth: int = 20, extra_ignore: Iterable[int] = ()
) -> list[Any]:
    """Return the shortest path from an object for which the predicate is true to `obj`; `[obj]` if there is none."""
    ignored = at_addrs(set(extra_ignore)) if extra_ignore else []
    referrers = references.Referrers([*ignored, sys._getframe(), sys._getframe(1)])
    return references.chain_back(obj, predicate, max_depth, referrers)


def drawer(
    name: str, doc: str, is_backwards: bool, write: Callable[[Graph, Any, TextIO | None], Any]
) -> Callable[..., Any]:
    """Create `show_refs` or `show_backrefs`, which differ only in direction. `write` receives the graph."""

    def show(
        objs: Any,
        max_depth: int = 3,
        extra_ignore: Iterable[int] = (),
        filter: Callable[[Any], bool] | None = None,
        too_many: int = 10,
        highlight: Callable[[Any], bool] | Collection[Any] | None = None,
        filename: str | os.PathLike[str] | None = None,
        extra_info: Callable[[Any], str] | None = None,
        refcounts: bool = False,
        shortnames: bool = True,
        output: TextIO | None = None,
        extra_node_attrs: Callable[[Any], dict[str, str]] | None = None,
    ) -> Any:
        starts = objs if references.is_a(objs, (list, tuple)) else [objs]
        boxes = Boxes(filter, highlight, extra_info, shortnames, extra_node_attrs, extra_ignore)
        if is_backwards:
            # Exclude the callers, which also refer to the objects. A variable for this frame would create a cycle.
            given = starts if starts is objs else None
            graph = boxes.backwards(
                list(starts), max_depth, too_many, [sys._getframe(), sys._getframe(1), starts, given]
            )
        else:
            graph = boxes.forwards(list(starts), max_depth, too_many)
        if refcounts:
            of_arguments = collections.Counter(map(id, starts))
            if starts is not objs and sys.version_info < (3, 11):
                of_arguments[id(objs)] += 1  # the caller's evaluation stack also refers to the argument
            del starts
            boxes.count_references(of_arguments)
        return write(graph, filename, output)

    show.__name__ = show.__qualname__ = name
    show.__doc__ = doc
    return show


show_backrefs = drawer(
    "show_backrefs",
    """Draw the referrers of the objects, their referrers, and so on up to modules. Returns the file's path.

    The ending of `filename` chooses the format: svg, png, html or dot; other picture formats become an SVG.
    Without a name the picture goes to the folder for temporary files; a file object in `output` receives dot text.
    """,
    is_backwards=True,
    write=lambda graph, filename, output: _write(graph, filename, output),
)
show_refs = drawer(
    "show_refs",
    """Draw the referents of the objects, their referents, and so on; otherwise like :func:`show_backrefs`.""",
    is_backwards=False,
    write=lambda graph, filename, output: _write(graph, filename, output),
)


def show_chain(
    *chains: list[Any],
    backrefs: bool = True,
    highlight: Callable[[Any], bool] | Collection[Any] | None = None,
    filename: str | os.PathLike[str] | None = None,
    extra_info: Callable[[Any], str] | None = None,
    refcounts: bool = False,
    shortnames: bool = True,
    output: TextIO | None = None,
    extra_node_attrs: Callable[[Any], dict[str, str]] | None = None,
) -> str | None:
    """Draw paths of references, as :func:`find_backref_chain` returns them; empty ones are left out."""
    return _write(chain_graph(chains, highlight, extra_info, refcounts, shortnames, extra_node_attrs), filename, output)


def chain_graph(
    chains: Iterable[list[Any]],
    highlight: Callable[[Any], bool] | Collection[Any] | None = None,
    extra_info: Callable[[Any], str] | None = None,
    refcounts: bool = False,
    shortnames: bool = True,
    extra_node_attrs: Callable[[Any], dict[str, str]] | None = None,
) -> Graph:
    """Return the graph that :func:`show_chain` draws."""
    boxes = Boxes(None, highlight, extra_info, shortnames, extra_node_attrs, ())
    graph = boxes.chains([chain for chain in chains if chain])
    if refcounts:
        boxes.count_references(collections.Counter(map(id, itertools.chain(*chains))))
    return graph


def _write(graph: Graph, filename: str | os.PathLike[str] | None, output: TextIO | None) -> str | None:
    """Draw to a file, or write dot text to a file object."""
    if output is not None:
        output.write(drawing.draw(graph, "dot"))
        return None
    if filename is None:
        handle, path = tempfile.mkstemp(".svg", "heaptide-objects-")
        os.close(handle)
    else:
        path = os.fspath(filename)
    stem, _, form = path.rpartition(".")
    form = form.lower()
    if form in _PICTURES:
        print(f"{form} needs graphviz, which Heaptide does not use: the picture is in {stem}.svg")
        path, form = f"{stem}.svg", "svg"
    if form not in _FORMATS:
        raise ValueError(f"the format of {path} is unknown: use a name that ends in .svg, .png, .html or .dot")
    drawing.write(graph, path, form)
    print(f"Graph written to {path} ({len(graph.nodes)} nodes)")
    return path
