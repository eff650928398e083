"""Creates typical objects, then runs one query: heap.py TOOL QUERY OBJECTS REPETITIONS.

The last line of its output is JSON: CPU seconds of the best repetition, and the number of objects. For queries on the
whole heap this is the number of objects created, because the tools count differently. guppy3 also counts a dict that it
creates for each instance, and objgraph counts only objects that the collector tracks.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

# An order with its line is eight objects: two instances, a list, a dict, two strings, a tuple and a number.
OBJECTS_PER_ORDER = 8


class Order:
    """An instance with attributes of several types."""

    def __init__(self, number: int) -> None:
        self.number, self.customer, self.lines = number, f"customer {number}", [(number, 2.5)]


class Line:
    """An instance with slots."""

    __slots__ = ("order", "text")

    def __init__(self, order: Order) -> None:
        self.order, self.text = order, {"sku": str(id(order)), "n": order.number}


# The query, and a function that returns the number of objects it covers; None if it covers all.
Measured = tuple[Callable[[], Any], Callable[[], int] | None]


def heaptide_queries(query: str, orders: list[Order]) -> Measured:
    """Return Heaptide's query."""
    import heaptide
    from heaptide._native import HeapView

    folder = tempfile.TemporaryDirectory(prefix="heaptide-bench-")
    view = None
    if query in ("via", "dominators"):
        view = HeapView.open(heaptide.heap_snapshot(f"{folder.name}/all.heap"))
    before = heaptide.heap_census()
    return {
        "census": (heaptide.heap_census, None),
        "table": (lambda: repr(heaptide.heap_census()), None),
        "snapshot": (lambda: heaptide.heap_snapshot(f"{folder.name}/now.heap", overwrite=True), None),
        "via": (lambda: view and view.of_kind("str").partition("via").rows(), lambda: n_strings(view)),
        "dominators": (lambda: view and view.all().largest(10).retained(), None),
        "growth": (lambda: heaptide.heap_census().since(before), None),
    }[query]


def n_strings(view: Any) -> int:
    """Return the number of strings in a view."""
    return len(view.of_kind("str"))


def guppy(query: str, orders: list[Order]) -> Measured:
    """Return guppy3's query."""
    from guppy import hpy

    hp = hpy()
    heap = hp.heap()

    def by_via() -> str:
        # A set caches its results, so query a new one.
        return str(hp.iso(*(order.customer for order in orders)).byvia)

    def growth() -> str:
        return str(hp.heap() - heap)

    return {
        "census": (hp.heap, None),
        "table": (lambda: str(hp.heap().bytype), None),
        "via": (by_via, lambda: len(orders)),
        "dominators": (lambda: hp.iso(orders).domisize, None),
        "growth": (growth, None),
    }[query]


def objgraph(query: str, orders: list[Order]) -> Measured:
    """Return objgraph's query, on objects that the collector tracks."""
    import objgraph as peer

    return {
        "table": (lambda: peer.most_common_types(limit=10), None),
        "growth": (lambda: peer.growth(limit=10), None),
    }[query]


def pympler(query: str, orders: list[Order]) -> Measured:
    """Return pympler's query, on objects that the collector tracks and their referents."""
    from pympler import muppy, summary

    before = summary.summarize(muppy.get_objects())
    return {
        "table": (lambda: summary.summarize(muppy.get_objects()), None),
        "growth": (lambda: summary.get_diff(before, summary.summarize(muppy.get_objects())), None),
    }[query]


def main() -> None:
    """Create the objects, run the query, and print the best time."""
    tool, query, n_objects, repetitions = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    gc.disable()
    orders = [Order(number + 1000) for number in range(n_objects // OBJECTS_PER_ORDER)]
    lines = [Line(order) for order in orders]
    tools = {"heaptide": heaptide_queries, "guppy3": guppy, "objgraph": objgraph, "pympler": pympler}
    run, count = tools[tool](query, orders)
    times = []
    for _ in range(repetitions):
        begin = time.process_time()
        run()
        times.append(time.process_time() - begin)
    n_objects_read = count() if count else len(lines) * OBJECTS_PER_ORDER
    print(json.dumps({"seconds": min(times), "objects": n_objects_read}))


if __name__ == "__main__":
    main()
