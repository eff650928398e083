"""Objects of this process, counted, compared and drawn, with objgraph's functions and names: ``heaptide.objects``.

Unlike objgraph these see objects that the collector does not track (strings, numbers, tuples and dicts of such), and
they draw SVG pictures and pages without graphviz.
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

from heaptide import graph_drawing, object_graph
from heaptide.graph_drawing import Graph, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import TextIO

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
# Counts of what is never freed (3.12 and later) are larger than this.
_IMMORTAL = 1 << 29
# What graphviz would make; an SVG shows the same in every browser.
_PICTURES = ("png", "gif", "jpg", "jpeg", "pdf", "ps", "webp", "bmp")


def _short_name(each: object) -> str:
    return object_graph.short_name(type(each))


def _long_name(each: object) -> str:
    return object_graph.long_name(type(each))


def _name_function(typename: str) -> Callable[[object], str]:
    return _long_name if "." in typename else _short_name


def count(typename: str, objects: Iterable[Any] | None = None) -> int:
    """How many objects there are of a type; a name with a dot in it is taken with its module."""
    name = _name_function(typename)
    return sum(1 for each in (object_graph.all_objects() if objects is None else objects) if name(each) == typename)


def typestats(
    objects: Iterable[Any] | None = None, shortnames: bool = True, filter: Callable[[Any], bool] | None = None
) -> dict[str, int]:
    """How many objects there are of each type."""
    name = _short_name if shortnames else _long_name
    found = object_graph.all_objects() if objects is None else objects
    return dict(collections.Counter(name(each) for each in found if filter is None or filter(each)))


def most_common_types(
    limit: int | None = 10,
    objects: Iterable[Any] | None = None,
    shortnames: bool = True,
    filter: Callable[[Any], bool] | None = None,
) -> list[tuple[str, int]]:
    """The types with the most objects: names and counts, the most first."""
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
    """Types of which there are more objects than ever before: name, how many, how many more. The most come first.

    `peak_stats` is a dict that remembers; without one the whole process shares one.
    """
    peaks = _peaks if peak_stats is None else peak_stats
    gc.collect()
    rows = []
    present = typestats(object_graph.all_objects([peaks]), shortnames, filter)
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
    """Print the types of which there are more objects than ever before. Prints nothing if nothing grew."""
    rows = growth(limit, peak_stats, shortnames, filter)
    width = max((len(name) for name, _, _ in rows), default=0)
    for name, number, more in rows:
        print(f"{name:<{width}} {number:9d} {more:+9d}", file=file)


# As numbers, not as objects, which would be found the next time.
_ids: dict[str, array.array[int]] = {}


def get_new_ids(
    skip_update: bool = False,
    limit: int | None = 10,
    sortby: str = "deltas",
    shortnames: bool | None = None,
    file: TextIO | None = None,
) -> dict[str, set[int]]:
    """Print how the objects of each type changed since the last call, and return addresses of the new ones by type.

    The first call only remembers. With `skip_update` nothing is remembered, and the next call compares with the same.
    """
    columns = ("old", "current", "new", "deltas")
    if sortby not in columns:
        raise ValueError(f"sortby must be one of {', '.join(columns)}, not {sortby}")
    gc.collect()
    name = _short_name if shortnames or shortnames is None else _long_name
    present: dict[str, set[int]] = {}
    for each in object_graph.all_objects([_ids, *_ids.values()]):
        present.setdefault(name(each), set()).add(id(each))
    rows: list[tuple[str, tuple[int, int, int, int]]] = []
    new_ids = {}
    for kind in sorted({*_ids, *present}):
        old, now = set(_ids.get(kind, ())), present.get(kind, set())
        new_ids[kind] = now - old
        rows.append((kind, (len(old), len(now), len(now - old), len(now) - len(old))))
    if not skip_update:
        _ids.clear()
        _ids.update({kind: array.array("Q", sorted(now)) for kind, now in present.items()})
    rows.sort(key=lambda row: -row[1][columns.index(sortby)])
    if limit:
        rows = rows[:limit]
    width = max([len("Type"), *(len(kind) for kind, _ in rows)])
    head = f"{'Type':<{width}} {'Old_ids':>13} {'Current_ids':>13} {'New_ids':>13} {'Count_Deltas':>13}"
    print("=" * len(head), head, "=" * len(head), sep="\n", file=file)
    for kind, (n_old, n_now, n_new, delta) in rows:
        print(f"{kind:<{width}} {n_old:>13d} {n_now:>13d} {n_new:>+13d} {delta:>+13d}", file=file)
    print("=" * len(head), file=file)
    return new_ids


def get_leaking_objects(objects: Iterable[Any] | None = None) -> list[Any]:
    """Objects that the collector tracks and that nothing it tracks refers to: a count is too high, or C holds them."""
    if objects is None:
        gc.collect()
        objects = gc.get_objects()
    found = list(objects)
    own = {id(found), id(objects)}
    referred: set[int] = set()
    for each in found:
        if id(each) not in own:
            referred.update(map(id, object_graph.referents(each)))
    running = set(map(id, object_graph.running_frames()))
    for frame in object_graph.running_frames():
        referred.update(map(id, object_graph.referents(frame)))
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
    """All objects of a type; a name with a dot in it is taken with its module."""
    name = _name_function(typename)
    return [each for each in (object_graph.all_objects() if objects is None else objects) if name(each) == typename]


def at(addr: int) -> Any | None:
    """The object at an address, as `id` gives it, or None."""
    return next((each for each in object_graph.all_objects() if id(each) == addr), None)


def at_addrs(address_set: Collection[int]) -> list[Any]:
    """The objects at these addresses."""
    wanted = set(address_set)
    return [each for each in object_graph.all_objects() if id(each) in wanted]


def is_proper_module(obj: Any) -> bool:
    """Tell whether an object is a module that can be imported."""
    if not object_graph.is_a(obj, types.ModuleType):
        return False
    name = object_graph.names_of_module(obj).get("__name__")
    return type(name) is str and sys.modules.get(name) is obj


def find_ref_chain(
    obj: Any, predicate: Callable[[Any], bool], max_depth: int = 20, extra_ignore: Iterable[int] = ()
) -> list[Any]:
    """The shortest way from `obj` to something for which the predicate is true; `[obj]` if there is none."""
    ignored = at_addrs(set(extra_ignore)) if extra_ignore else []
    return object_graph.chain_forward(obj, predicate, max_depth, ignored)


def find_backref_chain(
    obj: Any, predicate: Callable[[Any], bool], max_depth: int = 20, extra_ignore: Iterable[int] = ()
) -> list[Any]:
    """The shortest way from something for which the predicate is true to `obj`; `[obj]` if there is none."""
    ignored = at_addrs(set(extra_ignore)) if extra_ignore else []
    referrers = object_graph.Referrers([*ignored, sys._getframe(), sys._getframe(1)])
    return object_graph.chain_back(obj, predicate, max_depth, referrers)


def _drawer(name: str, doc: str, is_backwards: bool) -> Callable[..., str | None]:
    """One of the two functions that draw what is around objects; they differ in the direction alone."""

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
        starts = objs if object_graph.is_a(objs, (list, tuple)) else [objs]
        look = _Look(filter, highlight, extra_info, refcounts, shortnames, extra_node_attrs, extra_ignore)
        if is_backwards:
            # Those who ask refer to the objects, too. No variable refers to this very frame: that would be garbage.
            given = starts if starts is objs else None
            graph = look.backwards(
                list(starts), max_depth, too_many, [sys._getframe(), sys._getframe(1), starts, given]
            )
        else:
            graph = look.forwards(list(starts), max_depth, too_many)
        if refcounts:
            given_here = collections.Counter(map(id, starts))
            if starts is not objs and sys.version_info < (3, 11):
                given_here[id(objs)] += 1  # the caller's own stack has the argument, too
            del starts
            look.count_references(given_here)
        return _write(graph, filename, output)

    show.__name__ = show.__qualname__ = name
    show.__doc__ = doc
    return show


show_backrefs = _drawer(
    "show_backrefs",
    """Draw what refers to the objects, and what to that, up to modules. Returns the file's path.

    The end of `filename` chooses the form: svg, html or dot; for a picture of another kind there is an SVG in its
    place. Without a name a picture is put among the temporary files; `output` gets dot text.
    """,
    is_backwards=True,
)
show_refs = _drawer(
    "show_refs",
    """Draw what the objects refer to, and what that refers to; otherwise as :func:`show_backrefs`.""",
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
    """Draw chains of references, as :func:`find_backref_chain` finds them; those that are empty are left out."""
    look = _Look(None, highlight, extra_info, refcounts, shortnames, extra_node_attrs, ())
    graph = look.chains([chain for chain in chains if chain])
    if refcounts:
        look.count_references(collections.Counter(map(id, itertools.chain(*chains))))
    return _write(graph, filename, output)


class _Look:
    """Turns objects into boxes."""

    def __init__(
        self,
        filter: Callable[[Any], bool] | None,
        highlight: Callable[[Any], bool] | Collection[Any] | None,
        extra_info: Callable[[Any], str] | None,
        refcounts: bool,
        shortnames: bool,
        extra_node_attrs: Callable[[Any], dict[str, str]] | None,
        ignored_ids: Iterable[int],
    ) -> None:
        self._filter = filter
        self._highlight = highlight
        self._extra_info = extra_info
        self._refcounts = refcounts
        self._name = _short_name if shortnames else _long_name
        self._attributes = extra_node_attrs
        self._ignored = set(ignored_ids)
        self._graph = Graph([], [])
        self._numbers: dict[int, int] = {}
        # By the number of their boxes. Until all are found nobody is asked how it refers to another: objects and frames
        # then get dicts of their attributes and variables (until 3.12), which would be found as well.
        self._objects: list[Any] = []

    def backwards(self, starts: list[Any], max_depth: int, too_many: int, own: list[Any]) -> Graph:
        """What refers to the objects, row by row, from the bottom to the top."""
        referrers = object_graph.Referrers([*own, own, starts, self._numbers, self._objects, self.__dict__])
        level = starts
        for each in starts:
            self._box(each, 0, "start")
        for depth in range(1, max_depth + 1):
            found = referrers.of([each for each in level if not is_proper_module(each)])
            following: list[Any] = []
            for each in level:
                around = [other for other in found.get(id(each), []) if other is not level and self._wanted(other)]
                # Modules first: there the search ends, so they are the last to be left out.
                around = sorted(object_graph.sorted_by_name(around), key=_is_no_module)
                for other in around[:too_many]:
                    if id(other) not in self._numbers:
                        self._box(other, -depth)
                        following.append(other)
                    self._edge(other, each)
                self._more(each, len(around) - too_many, -depth, "backreference", is_source=True)
                del around  # nothing of ours refers to them when their referrers are looked for
            level = following
        found = referrers.of([each for each in level if not is_proper_module(each)])
        for each in _distinct(level):
            around = [other for other in found.get(id(each), []) if other is not level]
            self._beyond(each, around, is_backwards=True)
        return self._named()

    def forwards(self, starts: list[Any], max_depth: int, too_many: int) -> Graph:
        """What the objects refer to, row by row, from the top to the bottom."""
        for each in starts:
            self._box(each, 0, "start")
        level = starts
        for depth in range(1, max_depth + 1):
            following: list[Any] = []
            for each in level:
                around = [other for other in _distinct(object_graph.referents(each)) if self._wanted(other)]
                for other in around[:too_many]:
                    if id(other) not in self._numbers:
                        self._box(other, depth)
                        if not is_proper_module(other):
                            following.append(other)
                    self._edge(each, other)
                self._more(each, len(around) - too_many, depth, "reference", is_source=False)
            level = following
        for each in _distinct(level):
            self._beyond(each, _distinct(object_graph.referents(each)), is_backwards=False)
        return self._named()

    def chains(self, chains: list[list[Any]]) -> Graph:
        """Chains side by side; where they meet they share boxes."""
        edges = set()
        for chain in chains:
            for row, each in enumerate(chain):
                # Ends of chains stand in one row, at the bottom.
                self._box(each, row - len(chain), "start" if row == len(chain) - 1 else None)
            for source, target in itertools.pairwise(chain):
                if (id(source), id(target)) not in edges:
                    edges.add((id(source), id(target)))
                    self._edge(source, target)
        return self._named()

    def count_references(self, given: collections.Counter[int]) -> None:
        """Write into each box how many references there are to its object, when nothing else of ours has any.

        Left out are those of the call itself: its argument, or the list in which it got the object.
        """
        for number, box in enumerate(self._graph.nodes):
            if box.kind != "more":
                count = sys.getrefcount(self._objects[number]) - 2
                said = "immortal" if count > _IMMORTAL else count - given[id(self._objects[number])]
                box.lines[0] += f" [{said}]"

    def _wanted(self, each: Any) -> bool:
        return id(each) not in self._ignored and (self._filter is None or self._filter(each))

    def _box(self, each: Any, row: int, kind: str | None = None) -> None:
        if id(each) in self._numbers:
            return
        self._numbers[id(each)] = len(self._graph.nodes)
        self._objects.append(each)
        lines = [self._name(each), object_graph.short_repr(each)]
        if self._extra_info is not None:
            lines.append(str(self._extra_info(each) or ""))
        node = Node(
            [line for line in lines if line], kind or self._kind(each), row, object_graph.has_finalizer(type(each))
        )
        if self._attributes is not None:
            node.attributes = dict(self._attributes(each))
        self._graph.nodes.append(node)

    def _kind(self, each: Any) -> str:
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

    def _named(self) -> Graph:
        """The graph, with names at its arrows."""
        of_objects = {number for number, node in enumerate(self._graph.nodes) if node.kind != "more"}
        for at, (source, target, _) in enumerate(self._graph.edges):
            if source in of_objects and target in of_objects:
                label = object_graph.edge_label(self._objects[source], self._objects[target])
                self._graph.edges[at] = (source, target, label)
        return self._graph

    def _more(self, each: Any, number: int, row: int, word: str, is_source: bool) -> None:
        if number <= 0:
            return
        at = len(self._graph.nodes)
        self._objects.append(None)
        self._graph.nodes.append(Node([f"{number} more {word}{'' if number == 1 else 's'}"], "more", row))
        own = self._numbers[id(each)]
        self._graph.edges.append((at, own, "") if is_source else (own, at, ""))

    def _beyond(self, each: Any, around: list[Any], is_backwards: bool) -> None:
        """Say in a box of the last row how many steps lead on from it. Who refers stands above."""
        own = self._numbers[id(each)]
        ends = ((target, source) if is_backwards else (source, target) for source, target, _ in self._graph.edges)
        drawn = {other for near, other in ends if near == own}
        number = sum(1 for other in around if self._wanted(other) and self._numbers.get(id(other)) not in drawn)
        if number:
            self._graph.nodes[own].lines.append(f"{'↑' if is_backwards else '↓'} {number} more")


def _is_no_module(each: Any) -> bool:
    return not is_proper_module(each)


def _distinct(objects: list[Any]) -> list[Any]:
    return list({id(each): each for each in objects}.values())


def _write(graph: Graph, filename: str | os.PathLike[str] | None, output: TextIO | None) -> str | None:
    """Draw into a file, or as dot text into one that is open."""
    if output is not None:
        output.write(graph_drawing.draw(graph, "dot"))
        return None
    if filename is None:
        handle, path = tempfile.mkstemp(".svg", "heaptide-objects-")
        os.close(handle)
    else:
        path = os.fspath(filename)
    stem, _, form = path.rpartition(".")
    form = form.lower()
    if form in _PICTURES:
        print(f"{form} needs graphviz, which is not used here: {stem}.svg has the picture")
        path, form = f"{stem}.svg", "svg"
    if form not in _FORMATS:
        raise ValueError(f"{path} does not say what to write; let its name end in .svg, .html or .dot")
    text = graph_drawing.draw(graph, form, os.path.basename(path))
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    print(f"Graph written to {path} ({len(graph.nodes)} nodes)")
    return path
