"""objgraph's functions on Heaptide: ``HEAPTIDE_COMPAT=objgraph`` lets ``import objgraph`` find them.

Like objgraph, these functions count the objects that the garbage collector tracks; the native module counts them.
Chains and pictures are those of :mod:`heaptide.objects`, which also follow references that the collector does not see.
SVG and PNG need no graphviz; other formats use its ``dot`` program if it is installed.
"""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, Any

from heaptide import _native, objects
from heaptide.inspection.snapshots import known_instance
from heaptide.objects import chain_graph, drawer, drawing
from heaptide.objects.counting import Counting
from heaptide.objects.references import names_of_type, short_name

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal, TextIO

    from heaptide.objects.counting import Filter
    from heaptide.objects.drawing import Graph

__all__: list[str] = []
__all__ += objects.__all__

# The version of objgraph whose functions these are.
__version__ = "3.7.0"

_OWN_FORMATS = ("svg", "png", "html")


def _is_in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    current = shell.get_ipython() if shell is not None and hasattr(shell, "get_ipython") else None
    return current is not None and "TerminalInteractiveShell" not in type(current).__name__


# Whether pictures are shown in the notebook.
IS_INTERACTIVE = _is_in_notebook()


def _long_name(cls: type) -> str:
    module = names_of_type(cls)[0]
    return f"{module}.{short_name(cls)}" if module != "?" else short_name(cls)


class _CountingTracked(Counting):
    """Counts the objects in the garbage collector's own lists."""

    # Whether the last call found growth. A program that grows will probably grow again.
    _has_grown = True
    # Whether garbage has looked like growth. A program that creates garbage between calls will probably do so again.
    _has_noise = False

    def _types(self, objects: Iterable[Any] | None, filter: Filter | None, *own: object) -> list[tuple[type, int]]:
        if objects is None and filter is None:
            found = _count_tracked(object(), "all")
            if found is not None:
                return found
        return super()._types(objects, filter, *own)

    def _live(self, peaks: dict[str, int], shortnames: bool, filter: Filter | None) -> dict[str, int]:
        """Return the number of objects of each type without garbage, if possible without a collection.

        Garbage only increases counts. If no type has grown including garbage, exact counts are not needed. Both counts
        leave out tuples that a collection would stop tracking.
        """
        is_quick = not (self._has_grown or self._has_noise)
        if is_quick:
            most = _count_tracked(object(), "at_most") if filter is None else None
            present = self._by_name(self._types(None, filter) if most is None else most, shortnames)
            if not _is_above(present, peaks):
                return present
            del present, most
        types = _count_tracked(object(), "live") if filter is None else None
        present = super()._live(peaks, shortnames, filter) if types is None else self._by_name(types, shortnames)
        self._has_grown = _is_above(present, peaks)
        self._has_noise |= is_quick and not self._has_grown
        return present


# A separate function, because a cell of the caller would be counted.
def _is_above(present: dict[str, int], peaks: dict[str, int]) -> bool:
    return any(number > peaks.get(name, 0) for name, number in present.items())


def _count_tracked(heaptide_token: object, which: Literal["all", "live", "at_most"]) -> list[tuple[type, int]] | None:
    # The count verifies its frame layout by finding `heaptide_token` in this frame.
    return _native.count_tracked(heaptide_token, _KNOWN_INSTANCE, which)


_KNOWN_INSTANCE = known_instance()
_counting = _CountingTracked(lambda own: gc.get_objects(), _long_name)
at = _counting.at
at_addrs = _counting.at_addrs
by_type = _counting.by_type
count = _counting.count
find_backref_chain = objects.find_backref_chain
find_ref_chain = objects.find_ref_chain
get_leaking_objects = objects.get_leaking_objects
get_new_ids = _counting.get_new_ids
growth = _counting.growth
is_proper_module = objects.is_proper_module
most_common_types = _counting.most_common_types
show_growth = _counting.show_growth
show_most_common_types = _counting.show_most_common_types
typestats = _counting.typestats


class _InlineGraph:
    """A picture that a notebook shows."""

    def __init__(self, graph: Graph) -> None:
        self.source = drawing.draw(graph, "dot")
        self._svg = drawing.draw(graph, "svg")

    def _repr_svg_(self) -> str:
        return self._svg


def _present(graph: Graph, filename: str | os.PathLike[str] | None, output: TextIO | None) -> Any:
    """Write the graph to the same file as objgraph, and print the same lines."""
    if filename and output:
        raise ValueError("Cannot specify both output and filename.")
    if output is not None:
        output.write(drawing.draw(graph, "dot"))
        return None
    if IS_INTERACTIVE and not filename:
        return _InlineGraph(graph)
    path = os.fspath(filename) if filename else ""
    form = os.path.splitext(path)[1].lstrip(".").lower()
    if form == "dot":
        drawing.write(graph, path, "dot")
        print(f"Graph written to {path} ({len(graph.nodes)} nodes)")
        return None
    handle, dot_path = tempfile.mkstemp(prefix="objgraph-", suffix=".dot", text=True)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(drawing.draw(graph, "dot"))
    print(f"Graph written to {dot_path} ({len(graph.nodes)} nodes)")
    if not path and shutil.which("xdot"):
        print("Spawning graph viewer (xdot)")
        subprocess.Popen(["xdot", dot_path], close_fds=True)
        return None
    if not path:
        print("Graph viewer (xdot) not found, generating a png instead")
        path, form = f"{dot_path[:-4]}.png", "png"
    if form in _OWN_FORMATS:
        drawing.write(graph, path, form)
        print(f"Image generated as {path}")
    elif shutil.which("dot"):
        _render_with_graphviz(dot_path, path, form)
    else:
        print("Image renderer (dot) not found, not doing anything else")
    return None


def _render_with_graphviz(dot_path: str, path: str, form: str) -> None:
    command = ["dot", f"-T{form}", f"-o{path}", dot_path]
    code = subprocess.run(command, close_fds=False).returncode
    if code:
        print(f'dot failed (exit code {code}) while executing "{" ".join(command)}"')
    else:
        print(f"Image generated as {path}")


show_backrefs = drawer(
    "show_backrefs",
    "Draw the referrers of the objects, their referrers, and so on up to modules.",
    is_backwards=True,
    write=_present,
)
show_refs = drawer(
    "show_refs",
    "Draw the referents of the objects, their referents, and so on.",
    is_backwards=False,
    write=_present,
)


def show_chain(*chains: list[Any], backrefs: bool = True, **kw: Any) -> None:
    """Draw paths of references, as :func:`find_backref_chain` returns them; empty ones are left out."""
    if not any(chains):
        raise ValueError("there is no chain to draw: every chain is empty")
    filename, output = kw.pop("filename", None), kw.pop("output", None)
    _present(chain_graph(chains, **kw), filename, output)
