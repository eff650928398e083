"""Makes objects as programs have them, then answers one question: heap.py TOOL QUESTION OBJECTS REPETITIONS.

The last line it prints is JSON: CPU seconds of the best repetition, and of how many objects. Of questions about the
whole heap that is how many were made, the same for every tool: guppy3 makes a dict of each instance as it looks, and
counts it, and objgraph sees only what the collector tracks.
"""

from __future__ import annotations

import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

# An order with its line is eight objects: two instances, two dicts or lists, two strings, a tuple and a number.
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


# What is measured, and how many objects it looked at if these are not all.
Measured = tuple[Callable[[], Any], Callable[[], int] | None]


def ours(question: str, orders: list[Order]) -> Measured:
    """As this product answers."""
    import heaptide
    from heaptide._native import HeapView

    folder = tempfile.TemporaryDirectory(prefix="heaptide-bench-")
    view = None
    if question in ("via", "dominators"):
        view = HeapView.open(heaptide.heap_snapshot(f"{folder.name}/all.heap"))
    before = heaptide.heap_census()
    return {
        "census": (heaptide.heap_census, None),
        "table": (lambda: repr(heaptide.heap_census()), None),
        "snapshot": (lambda: heaptide.heap_snapshot(f"{folder.name}/now.heap", overwrite=True), None),
        "via": (lambda: view and view.of_kind("str").partition("via").rows(), lambda: n_strings(view)),
        "dominators": (lambda: view and view.all().largest(10).retained(), None),
        "growth": (lambda: heaptide.heap_census().since(before), None),
    }[question]


def n_strings(view: Any) -> int:
    """How many strings a view has."""
    return len(view.of_kind("str"))


def guppy(question: str, orders: list[Order]) -> Measured:
    """The same questions, as heapy answers them."""
    from guppy import hpy

    hp = hpy()
    heap = hp.heap()

    def by_via() -> str:
        # An answer is kept in the set that was asked: ask a new one.
        return str(hp.iso(*(order.customer for order in orders)).byvia)

    def growth() -> str:
        return str(hp.heap() - heap)

    return {
        "census": (hp.heap, None),
        "table": (lambda: str(hp.heap().bytype), None),
        "via": (by_via, lambda: len(orders)),
        "dominators": (lambda: hp.iso(orders).domisize, None),
        "growth": (growth, None),
    }[question]


def objgraph(question: str, orders: list[Order]) -> Measured:
    """What the collector tracks, which is less than all."""
    import objgraph as peer

    return {
        "table": (lambda: peer.most_common_types(limit=10), None),
        "growth": (lambda: peer.growth(limit=10), None),
    }[question]


def pympler(question: str, orders: list[Order]) -> Measured:
    """Counts and sizes of what the collector tracks and what that refers to."""
    from pympler import muppy, summary

    before = summary.summarize(muppy.get_objects())
    return {
        "table": (lambda: summary.summarize(muppy.get_objects()), None),
        "growth": (lambda: summary.get_diff(before, summary.summarize(muppy.get_objects())), None),
    }[question]


def main() -> None:
    """Make the objects, ask, and print the best time."""
    tool, question, n_objects, repetitions = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    gc.disable()
    orders = [Order(number + 1000) for number in range(n_objects // OBJECTS_PER_ORDER)]
    lines = [Line(order) for order in orders]
    tools = {"heaptide": ours, "guppy3": guppy, "objgraph": objgraph, "pympler": pympler}
    ask, count = tools[tool](question, orders)
    times = []
    for _ in range(repetitions):
        begin = time.process_time()
        ask()
        times.append(time.process_time() - begin)
    n_asked = count() if count else len(lines) * OBJECTS_PER_ORDER
    print(json.dumps({"seconds": min(times), "objects": n_asked}))


if __name__ == "__main__":
    main()
