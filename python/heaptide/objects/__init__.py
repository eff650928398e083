"""Counts, compares and draws objects of this process, with objgraph's functions and names: ``heaptide.objects``.

Unlike objgraph, these functions also find objects that the garbage collector does not track (strings, numbers,
and tuples and dicts that contain only these), and they draw SVG pictures and pages without graphviz.
"""

from __future__ import annotations

import array
import collections
import gc
import itertools
import os
import sys
import tempfile
import types
from typing import TYPE_CHECKING, Any

from heaptide import private_files
from heaptide.objects import drawing, references
from heaptide.objects.boxes import Boxes, long_name_of, short_name_of
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

_FORMATS = ("svg", "dot", "html")
# Formats that need graphviz; an SVG shows the same in every browser.
_PICTURES = ("png", "gif", "jpg", "jpeg", "pdf", "ps", "webp", "bmp")


def _name_function(typename: str) -> Callable[[object], str]:
    return long_name_of if "." in typename else short_name_of


def count(typename: str, objects: Iterable[Any] | None = None) -> int:
    """Return the number of objects of a type; a name with a dot includes the module."""
    name = _name_function(typename)
    return sum(1 for each in (references.all_objects() if objects is None else objects) if name(each) == typename)


def typestats(
    objects: Iterable[Any] | None = None, shortnames: bool = True, filter: Callable[[Any], bool] | None = None
) -> dict[str, int]:
    """Return the number of objects of each type."""
    name = short_name_of if shortnames else long_name_of
    found = references.all_objects() if objects is None else objects
    return dict(collections.Counter(name(each) for each in found if filter is None or filter(each)))


def most_common_types(
    limit: int | None = 10,
    objects: Iterable[Any] | None = None,
    shortnames: bool = True,
    filter: Callable[[Any], bool] | None = None,
) -> list[tuple[str, int]]:
    """Return the types with the most objects: names and counts, largest count first."""
    rows = sorted(typestats(objects, shortnames, filter).items(), key=lambda row: (-row[1], row[0]))
    return rows[:limit] if limit else rows


def show_most_common_types(
    limit: int | None = 10,
    objects: Iterable[Any] | None = None,
    shortnames: bool = True,
    file: TextIO | None = None,
    filter: Callable[[Any], bool] | None = None,
) -> None:
    """Print the types with the most objects."""
    rows = most_common_types(limit, objects, shortnames, filter)
    width = max((len(name) for name, _ in rows), default=0)
    for name, number in rows:
        print(f"{name:<{width}} {number}", file=file)


_peaks: dict[str, int] = {}


def growth(
    limit: int | None = 10,
    peak_stats: dict[str, int] | None = None,
    shortnames: bool = True,
    filter: Callable[[Any], bool] | None = None,
) -> list[tuple[str, int, int]]:
    """Return the types with more objects than ever before: name, count, increase. The largest increase comes first.

    `peak_stats` is a dict that stores the counts from call to call; by default the whole process shares one.
    """
    peaks = _peaks if peak_stats is None else peak_stats
    gc.collect()
    rows = []
    present = typestats(references.all_objects([peaks]), shortnames, filter)
    for name, number in present.items():
        before = peaks.get(name, 0)
        if number > before:
            rows.append((name, number, number - before))
            peaks[name] = number
    rows.sort(key=lambda row: (-row[2], row[0]))
    return rows[:limit] if limit else rows


def show_growth(
    limit: int | None = 10,
    peak_stats: dict[str, int] | None = None,
    shortnames: bool = True,
    file: TextIO | None = None,
    filter: Callable[[Any], bool] | None = None,
) -> None:
    """Print the types with more objects than ever before. Prints nothing if no type grew."""
    rows = growth(limit, peak_stats, shortnames, filter)
    width = max((len(name) for name, _, _ in rows), default=0)
    for name, number, more in rows:
        print(f"{name:<{width}} {number:9d} {more:+9d}", file=file)


# Addresses as plain numbers in arrays: `int` objects would be found by the next call.
_ids: dict[str, array.array[int]] = {}


def get_new_ids(
    skip_update: bool = False,
    limit: int | None = 10,
    sortby: str = "deltas",
    shortnames: bool | None = None,
    file: TextIO | None = None,
) -> dict[str, set[int]]:
    """Print how the objects of each type changed since the last call, and return the addresses of new ones by type.

    The first call only stores the present objects. With `skip_update`, the next call compares with the same objects.
    """
    columns = ("old", "current", "new", "deltas")
    if sortby not in columns:
        raise ValueError(f"sortby must be one of {', '.join(columns)}, not {sortby}")
    gc.collect()
    name = short_name_of if shortnames or shortnames is None else long_name_of
    present: dict[str, set[int]] = {}
    for each in references.all_objects([_ids, *_ids.values()]):
        present.setdefault(name(each), set()).add(id(each))
    rows: list[tuple[str, tuple[int, int, int, int]]] = []
    new_ids = {}
    for typename in sorted({*_ids, *present}):
        old, now = set(_ids.get(typename, ())), present.get(typename, set())
        new_ids[typename] = now - old
        rows.append((typename, (len(old), len(now), len(now - old), len(now) - len(old))))
    if not skip_update:
        _ids.clear()
        _ids.update({typename: array.array("Q", sorted(now)) for typename, now in present.items()})
    rows.sort(key=lambda row: -row[1][columns.index(sortby)])
    if limit:
        rows = rows[:limit]
    width = max([len("Type"), *(len(typename) for typename, _ in rows)])
    head = f"{'Type':<{width}} {'Old_ids':>13} {'Current_ids':>13} {'New_ids':>13} {'Count_Deltas':>13}"
    print("=" * len(head), head, "=" * len(head), sep="\n", file=file)
    for typename, (n_old, n_now, n_new, delta) in rows:
        print(f"{typename:<{width}} {n_old:>13d} {n_now:>13d} {n_new:>+13d} {delta:>+13d}", file=file)
    print("=" * len(head), file=file)
    return new_ids


def get_leaking_objects(objects: Iterable[Any] | None = None) -> list[Any]:
    """Return tracked objects without a tracked referrer: native code refers to them, or forgot to release them."""
    if objects is None:
        gc.collect()
        objects = gc.get_objects()
    found = list(objects)
    own = {id(found), id(objects)}
    referred: set[int] = set()
    for each in found:
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


def by_type(typename: str, objects: Iterable[Any] | None = None) -> list[Any]:
    """Return all objects of a type; a name with a dot includes the module."""
    name = _name_function(typename)
    return [each for each in (references.all_objects() if objects is None else objects) if name(each) == typename]


def at(addr: int) -> Any | None:
    """Return the object at an address, which is its `id`, or None."""
    return next((each for each in references.all_objects() if id(each) == addr), None)


def at_addrs(address_set: Collection[int]) -> list[Any]:
    """Return the objects at these addresses."""
    wanted = set(address_set)
    return [each for each in references.all_objects() if id(each) in wanted]


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


def _drawer(name: str, doc: str, is_backwards: bool) -> Callable[..., str | None]:
    """Make `show_refs` or `show_backrefs`, which differ only in direction."""

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
    ) -> str | None:
        starts = objs if references.is_a(objs, (list, tuple)) else [objs]
        boxes = Boxes(filter, highlight, extra_info, refcounts, shortnames, extra_node_attrs, extra_ignore)
        if is_backwards:
            # Callers also refer to the objects. No variable may refer to this frame itself: that would be a cycle.
            given = starts if starts is objs else None
            graph = boxes.backwards(
                list(starts), max_depth, too_many, [sys._getframe(), sys._getframe(1), starts, given]
            )
        else:
            graph = boxes.forwards(list(starts), max_depth, too_many)
        if refcounts:
            given_here = collections.Counter(map(id, starts))
            if starts is not objs and sys.version_info < (3, 11):
                given_here[id(objs)] += 1  # the caller's stack also has the argument
            del starts
            boxes.count_references(given_here)
        return _write(graph, filename, output)

    show.__name__ = show.__qualname__ = name
    show.__doc__ = doc
    return show


show_backrefs = _drawer(
    "show_backrefs",
    """Draw the referrers of the objects, their referrers, and so on up to modules. Returns the file's path.

    The ending of `filename` chooses the format: svg, html or dot; other picture formats become an SVG. Without a name
    the picture goes to the folder for temporary files; a file object in `output` receives dot text.
    """,
    is_backwards=True,
)
show_refs = _drawer(
    "show_refs",
    """Draw the referents of the objects, their referents, and so on; otherwise like :func:`show_backrefs`.""",
    is_backwards=False,
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
    boxes = Boxes(None, highlight, extra_info, refcounts, shortnames, extra_node_attrs, ())
    graph = boxes.chains([chain for chain in chains if chain])
    if refcounts:
        boxes.count_references(collections.Counter(map(id, itertools.chain(*chains))))
    return _write(graph, filename, output)


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
        raise ValueError(f"the format of {path} is unknown: use a name that ends in .svg, .html or .dot")
    text = drawing.draw(graph, form, os.path.basename(path))
    private_files.write(path, text)
    print(f"Graph written to {path} ({len(graph.nodes)} nodes)")
    return path
