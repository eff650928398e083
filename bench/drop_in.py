"""Measures objgraph's and guppy's queries on Heaptide, next to the peers themselves: bench/drop_in.py [--objects N …].

Each tool answers in a process of its own, because guppy leaves garbage that the other tool would inspect.
Both processes import both tools, have the same shape of heap and answer in turn; the best of several CPU times counts.
Needs the peers and Heaptide in this environment. Not part of `make test`.
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
# This query has no budget, because guppy finds the sizes of the objects only for the table.
WITHOUT_BUDGET = "hp.heap()"
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
Queries = dict[str, Callable[[], Any]]


def objgraph_queries(is_own: bool) -> Queries:
    """Return the queries on objects that the collector tracks."""
    import objgraph
    from heaptide.compat import objgraph as own

    tool = own if is_own else objgraph
    kept: list[Any] = []
    # Each call of `growth` finds ten more objects of a type, or none.
    grow: Callable[[], Any] = lambda: kept.extend([number] for number in range(10))  # noqa: E731
    return {
        "typestats": tool.typestats,
        "most_common_types": tool.most_common_types,
        "growth, some": lambda: (grow(), tool.growth()),
        "show_growth, some": lambda: (grow(), tool.show_growth(file=io.StringIO())),
        "growth, none": tool.growth,
        "show_growth, none": lambda: tool.show_growth(file=io.StringIO()),
    }


def guppy_queries(is_own: bool) -> Queries:
    """Return the heap with its table."""
    import guppy
    import heaptide

    hp = heaptide.hpy() if is_own else guppy.hpy()
    return {"hp.heap()": hp.heap, "str(hp.heap())": lambda: str(hp.heap())}


QUERIES = {"objgraph": objgraph_queries, "guppy": guppy_queries}


def answer(tool: str, peer: str, shape: str, n_objects: str) -> None:
    """Create a heap, print the names of the queries, and the CPU seconds of each query that a line of input names."""
    kept = SHAPES[shape](int(n_objects))
    queries = QUERIES[peer](tool == "own")
    gc.collect()
    print(json.dumps(list(queries)), flush=True)
    for line in sys.stdin:
        begin = time.process_time()
        result = queries[line.rstrip("\n")]()
        spent = time.process_time() - begin
        del result
        print(spent, flush=True)
    del kept


class Tool:
    """A process that answers queries with one tool."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--answer", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.queries = json.loads(self.line())

    def line(self) -> str:
        """Return the next line of output."""
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the process ended with {self.process.wait()}")
        return line

    def cost(self, query: str) -> float:
        """Return the CPU seconds of a query."""
        self.process.stdin.write(query + "\n")
        self.process.stdin.flush()
        return float(self.line())

    def end(self) -> None:
        """End the process."""
        self.process.stdin.close()
        self.process.wait()


def measure(peer: str, shape: str, n_objects: int) -> dict[str, tuple[float, float]]:
    """Return the best CPU seconds of the peer and of Heaptide for each query."""
    peer_tool, own_tool = (Tool(tool, peer, shape, str(n_objects)) for tool in ("peer", "own"))
    best = {}
    for query in peer_tool.queries:
        times = [(peer_tool.cost(query), own_tool.cost(query)) for _ in range(ROUNDS + 1)]
        best[query] = (min(each for each, _ in times[1:]), min(each for _, each in times[1:]))
    peer_tool.end()
    own_tool.end()
    return best


def main() -> None:
    """Measure every peer and shape, print the factors and write them to a file."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--objects", type=int, nargs="+", default=SIZES)
    arguments.add_argument("--peer", choices=REQUIRED, nargs="+", default=list(REQUIRED))
    arguments.add_argument("--results", type=Path, help=f"write the table to this file, such as {RESULTS.name}")
    arguments.add_argument("--answer", nargs=4, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.answer:
        answer(*chosen.answer)
        return
    rows = [
        f"Python {sys.version.split()[0]}. CPU milliseconds; the best of {ROUNDS} calls, in turn in two processes."
        " Written by `bench/drop_in.py --results`.",
        "",
        "| peer | query | heap | objects | peer | Heaptide | times faster |",
        "|---|---|---|---|---|---|---|",
    ]
    for peer, shape in itertools.product(chosen.peer, SHAPES):
        for n_objects in chosen.objects if shape != "few objects" else [0]:
            for query, (peer_seconds, own_seconds) in measure(peer, shape, n_objects).items():
                factor = peer_seconds / own_seconds
                miss = "" if factor >= REQUIRED[peer] or query == WITHOUT_BUDGET else f", below {REQUIRED[peer]}"
                row = f"| {peer} | `{query}` | {shape} | {n_objects:,} | {peer_seconds * 1e3:.3f} |"
                rows.append(f"{row} {own_seconds * 1e3:.3f} | {factor:.1f}{miss} |")
                print(rows[-1], flush=True)
    if chosen.results:
        chosen.results.write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
