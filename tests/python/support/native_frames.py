"""Stacks with native functions, read from what reports say of them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any, NamedTuple

from support.commands import PROGRAMS, heaptide


class Place(NamedTuple):
    """One frame of a report."""

    function: str
    file: str
    line: int


def stacks(capture: Path, *options: str, which: str = "--total") -> dict[int, list[Place]]:
    """The stack of each block that no other was made with, by its size, outermost frame first, as the CSV has it."""
    text = heaptide("transform", "csv", which, "-o", "-", *options, capture).stdout
    found = {}
    for row in csv.DictReader(text.splitlines()):
        places = []
        for frame in row["stack_trace"].split("|"):
            function, _, rest = frame.partition(";")
            file, _, line = rest.rpartition(";")
            places.append(Place(function, file, int(line or 0)))
        if row["num_allocations"] == "1":
            found[int(row["size"])] = places[::-1]
    return found


def names(places: list[Place], *folders: Path) -> list[str]:
    """Functions of the files in these folders, and of the sources of our extensions."""
    wanted = (*map(str, folders), str(PROGRAMS))
    return [place.function for place in places if place.file.startswith(wanted)]


def lost(capture: Path) -> list[dict[str, Any]]:
    """What is missing from a capture."""
    found: list[dict[str, Any]] = json.loads(heaptide("stats", "--json", capture).stdout)["heaptide"]["lost"]
    return found


def functions(capture: Path, *options: str, which: str = "--total") -> dict[int, list[str]]:
    """The same, names of functions alone."""
    found = stacks(capture, *options, which=which)
    return {size: [place.function for place in places] for size, places in found.items()}
