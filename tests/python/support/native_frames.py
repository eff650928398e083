"""Reads stacks with native functions from reports."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from support.commands import PROGRAMS, heaptide


class Frame(NamedTuple):
    """One frame of a report."""

    function: str
    file: str
    line: int


class Trace(NamedTuple):
    """One stack of a report, outermost frame first, and the allocations made at it."""

    n_allocations: int
    size: int
    frames: list[Frame]


def traces(capture: Path, *options: str, selection: str = "--total") -> Iterator[Trace]:
    """Return all stacks of a capture."""
    text = heaptide("transform", "csv", selection, "-o", "-", *options, capture).stdout
    for row in csv.DictReader(text.splitlines()):
        frames = []
        for text in row["stack_trace"].split("|"):
            function, _, rest = text.partition(";")
            file, _, line = rest.rpartition(";")
            frames.append(Frame(function, file, int(line or 0)))
        yield Trace(int(row["num_allocations"]), int(row["size"]), frames[::-1])


def stacks(capture: Path, *options: str, selection: str = "--total") -> dict[int, list[Frame]]:
    """Return the stack of each block whose stack is unique, by the block's size, outermost frame first."""
    found = traces(capture, *options, selection=selection)
    return {trace.size: trace.frames for trace in found if trace.n_allocations == 1}


def called_by(function: str, frames: list[Frame]) -> list[Frame]:
    """Return the frames of a stack that a function called, directly or indirectly; none if it is not in the stack."""
    called = [frame.function for frame in frames]
    return frames[called.index(function) + 1 :] if function in called else []


def names(frames: list[Frame], *folders: Path) -> list[str]:
    """Return the functions whose files lie in these folders or among the test programs."""
    wanted = (*map(str, folders), str(PROGRAMS))
    return [frame.function for frame in frames if frame.file.startswith(wanted)]


def lost(capture: Path) -> list[dict[str, Any]]:
    """Return the counters of records that are missing from a capture."""
    found: list[dict[str, Any]] = json.loads(heaptide("stats", "--json", capture).stdout)["heaptide"]["lost"]
    return found


def functions(capture: Path, *options: str, selection: str = "--total") -> dict[int, list[str]]:
    """Return the same stacks as `stacks`, as names of functions."""
    found = stacks(capture, *options, selection=selection)
    return {size: [frame.function for frame in frames] for size, frames in found.items()}
