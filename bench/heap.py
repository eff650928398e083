"""Measures queries on objects with Heaptide, guppy3, objgraph and pympler: bench/heap.py [--objects N].

Each tool runs each query in a separate process that has created the same objects. The figure is the shortest of
several CPU times. Tools that take minutes for millions of objects get fewer objects, so figures are per million
objects. Not part of `make test`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

from measure import PROGRAMS

OBJECTS = 3_000_000
# A tool that takes longer is stopped.
TIMEOUT_SECONDS = 40


@dataclass(frozen=True)
class Query:
    """One query. `tools` has, for each tool, the share of the objects it gets and its number of repetitions."""

    name: str
    title: str
    tools: dict[str, tuple[float, int]]


QUERIES = (
    Query("census", "count every object (guppy3: collect them)", {"heaptide": (1, 5), "guppy3": (1, 3)}),
    Query(
        "table",
        "counts and bytes by type",
        {"heaptide": (1, 3), "guppy3": (1, 1), "objgraph": (1, 2), "pympler": (0.1, 1)},
    ),
    Query("snapshot", "write every object and reference to a file", {"heaptide": (1, 3)}),
    Query("via", "strings by referring attribute", {"heaptide": (1, 3), "guppy3": (1, 1)}),
    Query("dominators", "retained size of every object (guppy3: of one list)", {"heaptide": (1, 1), "guppy3": (1, 1)}),
    Query(
        "growth",
        "growth since the last query, by type",
        {"heaptide": (1, 3), "guppy3": (1, 1), "objgraph": (1, 2), "pympler": (0.1, 1)},
    ),
)
TOOLS = ("heaptide", "guppy3", "objgraph", "pympler")


@dataclass
class HeapCost:
    """CPU seconds for a number of objects; a tool that timed out or failed has a reason instead."""

    seconds: float | None = None
    objects: int = 0
    reason: str = ""

    @property
    def per_million(self) -> float | None:
        """Return seconds per million objects."""
        return self.seconds / self.objects * 1e6 if self.seconds is not None and self.objects else None

    def cell(self) -> str:
        """Return the cell of the table."""
        cost = self.per_million
        return self.reason or ("" if cost is None else f"{cost:.3f} s")


@dataclass
class HeapCosts:
    """Costs by query and tool."""

    costs: dict[str, dict[str, HeapCost]] = field(default_factory=dict)
    # Memory that the traversal for a snapshot needs, in bytes per object.
    walker_bytes: float | None = None

    def times_faster(self, query: str, tool: str = "guppy3") -> float | None:
        """Return the time of a tool per object as a multiple of Heaptide's."""
        costs = self.costs.get(query, {})
        heaptide, other = costs.get("heaptide"), costs.get(tool)
        if not (heaptide and other and heaptide.per_million and other.per_million):
            return None
        return other.per_million / heaptide.per_million


def measure_heap(python: Path, n_objects: int = OBJECTS) -> HeapCosts:
    """Run every query with every tool that supports it."""
    measured = HeapCosts()
    for query in QUERIES:
        for tool, (share, repetitions) in query.tools.items():
            cost = run_query(python, tool, query.name, int(n_objects * share), repetitions)
            measured.costs.setdefault(query.name, {})[tool] = cost
            print(f"heap {query.name:10} {tool:9} {cost.cell()} per million of {cost.objects:,}", flush=True)
    # A snapshot needs the most memory.
    with tempfile.TemporaryDirectory(prefix="heaptide-bench-") as folder:
        code = f"import heaptide; kept = [[number] for number in range({n_objects // 2})]; "
        code += f"taken = heaptide.heap_snapshot({folder + '/now.heap'!r}); print(taken.walker_bytes / taken.objects)"
        done = subprocess.run([str(python), "-c", code], capture_output=True, text=True)
    measured.walker_bytes = float(done.stdout) if done.returncode == 0 else None
    return measured


def run_query(python: Path, tool: str, query: str, n_objects: int, repetitions: int) -> HeapCost:
    """Run one query with one tool."""
    command = [str(python), str(PROGRAMS / "heap.py"), tool, query, str(n_objects), str(repetitions)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return HeapCost(reason=f"more than {TIMEOUT_SECONDS} s")
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        return HeapCost(reason="not installed" if "ModuleNotFoundError" in last[0] else f"failed: {last[0]}")
    answer = json.loads(done.stdout.splitlines()[-1])
    return HeapCost(answer["seconds"], answer["objects"])


def main() -> None:
    """Measure with one interpreter and print."""
    import tables

    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--objects", type=int, default=OBJECTS)
    arguments.add_argument("--python", type=Path, default=Path(sys.executable))
    arguments.add_argument("--json", action="store_true", help="also print the figures as JSON")
    chosen = arguments.parse_args()
    measured = measure_heap(Path(os.path.abspath(chosen.python)), chosen.objects)  # noqa: PTH100
    print()
    print("\n".join(tables.heap(measured)))
    if chosen.json:
        print(json.dumps(asdict(measured), indent=1))


if __name__ == "__main__":
    main()
