"""Measures objgraph's and guppy's queries on Heaptide, next to the peers themselves: bench/drop_in.py [--objects N …].

Both tools answer in turn in the same process, on the same heap; the best of several CPU times counts. Each peer and
shape of heap has a separate process. Needs the peers and Heaptide in this environment. Not part of `make test`.
"""

from __future__ import annotations

import argparse
import gc
import io
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

REQUIRED = {"objgraph": 3, "guppy": 10}
SIZES = (100_000, 1_000_000)
ROUNDS = 7
RESULTS = Path(__file__).resolve().parent / "results" / "drop-in.md"


class Small:
    """An instance with one attribute."""

    def __init__(self, number: int) -> None:
        self.number = number


def small_objects(n_objects: int) -> Any:
    """Create lists, dicts, tuples and instances in equal parts."""
    return [each for i in range(n_objects // 4) for each in ([i], {"key": i}, (i, []), Small(i))]


def many_types(n_objects: int) -> Any:
    """Create 1,000 classes and their instances."""
    classes = [type(f"Type{number}", (Small,), {}) for number in range(1000)]
    return [each(number) for number in range(n_objects // 1000) for each in classes]


def linked(n_objects: int) -> Any:
    """Create instances that refer to each other in both directions: a tree whose leaves are lists."""
    nodes = [Small(number) for number in range(n_objects // 2)]
    for number, node in enumerate(nodes):
        node.__dict__.update(parent=nodes[number // 2], rows=[node])
    return nodes


def few_objects(n_objects: int) -> Any:
    """Create nothing: the heap of a small program."""


SHAPES = {"small objects": small_objects, "many types": many_types, "linked": linked, "few objects": few_objects}
Queries = dict[str, tuple[Callable[[], Any], Callable[[], Any]]]


def objgraph_queries() -> Queries:
    """Return the queries on objects that the collector tracks."""
    import objgraph as peer
    from heaptide.compat import objgraph as own

    kept: list[Any] = []
    # Each call of `growth` finds ten more objects of a type, or none.
    grow: Callable[[], Any] = lambda: kept.extend([number] for number in range(10))  # noqa: E731
    queries = {
        "typestats": (peer.typestats, own.typestats),
        "most_common_types": (peer.most_common_types, own.most_common_types),
        "growth, some": (lambda: (grow(), peer.growth()), lambda: (grow(), own.growth())),
        "show_growth, some": (
            lambda: (grow(), peer.show_growth(file=io.StringIO())),
            lambda: (grow(), own.show_growth(file=io.StringIO())),
        ),
        "growth, none": (peer.growth, own.growth),
        "show_growth, none": (
            lambda: peer.show_growth(file=io.StringIO()),
            lambda: own.show_growth(file=io.StringIO()),
        ),
    }
    return queries


def guppy_queries() -> Queries:
    """Return the heap with its table."""
    import heaptide
    from guppy import hpy

    peer, own = hpy(), heaptide.hpy()
    return {
        "hp.heap()": (peer.heap, own.heap),
        "str(hp.heap())": (lambda: str(peer.heap()), lambda: str(own.heap())),
    }


QUERIES = {"objgraph": objgraph_queries, "guppy": guppy_queries}


def cost(run: Callable[[], Any]) -> float:
    """Return the CPU seconds of a call, with its result."""
    begin = time.process_time()
    result = run()
    spent = time.process_time() - begin
    del result
    return spent


def measure(peer: str, shape: str, n_objects: int) -> dict[str, tuple[float, float]]:
    """Return the best CPU seconds of the peer and of Heaptide for each query, in this process."""
    kept = SHAPES[shape](n_objects)
    gc.collect()
    gc.collect()
    best = {}
    for name, (theirs, ours) in QUERIES[peer]().items():
        cost(theirs), cost(ours)
        times = [(cost(theirs), cost(ours)) for _ in range(ROUNDS)]
        best[name] = (min(each for each, _ in times), min(each for _, each in times))
    del kept
    return best


def main() -> None:
    """Measure every peer and shape, print the factors and write them to a file."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--objects", type=int, nargs="+", default=SIZES)
    arguments.add_argument("--peer", choices=REQUIRED, nargs="+", default=list(REQUIRED))
    arguments.add_argument("--results", type=Path, help=f"write the table to this file, such as {RESULTS.name}")
    arguments.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.one:
        peer, shape, n_objects = chosen.one
        print(json.dumps(measure(peer, shape, int(n_objects))))
        return
    rows = [
        f"Python {sys.version.split()[0]}. CPU milliseconds; the best of {ROUNDS} calls, in turn in one process."
        " Written by `bench/drop_in.py --results`.",
        "",
        "| peer | query | heap | objects | peer | Heaptide | times faster |",
        "|---|---|---|---|---|---|---|",
    ]
    for peer, shape in itertools.product(chosen.peer, SHAPES):
        for n_objects in chosen.objects if shape != "few objects" else [0]:
            command = [sys.executable, __file__, "--one", peer, shape, str(n_objects)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            for query, (theirs, ours) in json.loads(done.stdout).items():
                factor = theirs / ours
                miss = "" if factor >= REQUIRED[peer] else f", below {REQUIRED[peer]}"
                row = f"| {peer} | `{query}` | {shape} | {n_objects:,} | {theirs * 1e3:.3f} | {ours * 1e3:.3f} |"
                rows.append(f"{row} {factor:.1f}{miss} |")
                print(rows[-1], flush=True)
    if chosen.results:
        chosen.results.write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
