"""Questions about the objects of a process, next to guppy3, objgraph and pympler: bench/heap.py [--objects N].

Each tool answers each question in a process of its own that has made the same objects; the best of several times
counts, as CPU time. Tools that take minutes for millions of objects are asked with fewer, so figures are given for each
million. Not part of `make test`: it says what a machine can do, not whether something works.
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
# Longer than this no tool is waited for; it took that long, then.
PATIENCE_SECONDS = 40


@dataclass(frozen=True)
class Question:
    """What is asked, and of whom, with which part of the objects and how often."""

    name: str
    title: str
    tools: dict[str, tuple[float, int]]


QUESTIONS = (
    Question("census", "every object, counted (guppy3: gathered)", {"heaptide": (1, 5), "guppy3": (1, 3)}),
    Question(
        "table",
        "counts and bytes by type",
        {"heaptide": (1, 3), "guppy3": (1, 1), "objgraph": (1, 2), "pympler": (0.1, 1)},
    ),
    Question("snapshot", "every object and reference, in a file", {"heaptide": (1, 3)}),
    Question("via", "strings by what refers to them", {"heaptide": (1, 3), "guppy3": (1, 1)}),
    Question("dominators", "what every object keeps alive (guppy3: one list)", {"heaptide": (1, 1), "guppy3": (1, 1)}),
    Question(
        "growth",
        "what is new since the last look, by type",
        {"heaptide": (1, 3), "guppy3": (1, 1), "objgraph": (1, 2), "pympler": (0.1, 1)},
    ),
)
TOOLS = ("heaptide", "guppy3", "objgraph", "pympler")


@dataclass
class HeapCost:
    """CPU seconds for so many objects; a tool that did not end in time or failed has a reason instead."""

    seconds: float | None = None
    objects: int = 0
    reason: str = ""

    @property
    def per_million(self) -> float | None:
        """Seconds for each million objects."""
        return self.seconds / self.objects * 1e6 if self.seconds is not None and self.objects else None

    def cell(self) -> str:
        """As a table shows it."""
        cost = self.per_million
        return self.reason or ("" if cost is None else f"{cost:.3f} s")


@dataclass
class HeapCosts:
    """Question, then tool."""

    costs: dict[str, dict[str, HeapCost]] = field(default_factory=dict)
    # Memory of the walk for a snapshot, for each object.
    walker_bytes: float | None = None

    def times_faster(self, question: str, tool: str = "guppy3") -> float | None:
        """How many times longer a tool takes for each object than we do."""
        asked = self.costs.get(question, {})
        ours, theirs = asked.get("heaptide"), asked.get(tool)
        if not (ours and theirs and ours.per_million and theirs.per_million):
            return None
        return theirs.per_million / ours.per_million


def measure_heap(python: Path, n_objects: int = OBJECTS) -> HeapCosts:
    """Ask every question of every tool that answers it."""
    measured = HeapCosts()
    for question in QUESTIONS:
        for tool, (part, repetitions) in question.tools.items():
            cost = ask(python, tool, question.name, int(n_objects * part), repetitions)
            measured.costs.setdefault(question.name, {})[tool] = cost
            print(f"heap {question.name:10} {tool:9} {cost.cell()} per million of {cost.objects:,}", flush=True)
    # The walk that writes everything down needs most.
    with tempfile.TemporaryDirectory(prefix="heaptide-bench-") as folder:
        take = f"taken = heaptide.heap_snapshot({folder + '/now.heap'!r}); print(taken.walker_bytes / taken.objects)"
        many = f"import heaptide; kept = [[number] for number in range({n_objects // 2})]; {take}"
        done = subprocess.run([str(python), "-c", many], capture_output=True, text=True)
    measured.walker_bytes = float(done.stdout) if done.returncode == 0 else None
    return measured


def ask(python: Path, tool: str, question: str, n_objects: int, repetitions: int) -> HeapCost:
    """One tool, one question."""
    command = [str(python), str(PROGRAMS / "heap.py"), tool, question, str(n_objects), str(repetitions)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        return HeapCost(reason=f"more than {PATIENCE_SECONDS} s")
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
    arguments.add_argument("--json", action="store_true", help="print the figures as JSON, too")
    chosen = arguments.parse_args()
    measured = measure_heap(Path(os.path.abspath(chosen.python)), chosen.objects)  # noqa: PTH100
    print()
    print("\n".join(tables.heap(measured)))
    if chosen.json:
        print(json.dumps(asdict(measured), indent=1))


if __name__ == "__main__":
    main()
