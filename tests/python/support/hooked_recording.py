"""A capture of the program that drives every hooked function, and questions to ask of it.

The program (tests/programs/allocator_scenarios.py) makes its calls through a shared library and through an extension
module, and prints what the C library answered. Tests compare that with the records and with what is shown as leaked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.commands import PROGRAMS, heaptide

PAGE = 4096


class Event(NamedTuple):
    kind: str
    thread: int
    address: int
    size: int
    allocator: str


class Recording:
    """What the program told, what was recorded of it, and what is shown as alive at its end."""

    def __init__(self, capture: Path, told: dict[str, Any]) -> None:
        self.told = told
        self.capture = capture
        lines = heaptide("parse", capture).stdout.splitlines()
        self.events = [event_of(line) for line in lines if line.startswith(("ALLOCATION ", "FREE"))]
        self.leaks = leaks_by_function(heaptide("tree", "--leaks", "-b", "100000", capture).stdout)

    def born(self, address: int, size: int) -> tuple[int, str]:
        """The place of the one allocation of this block, and who made it."""
        found = [
            (at, event.allocator)
            for at, event in enumerate(self.events)
            if event.kind == "ALLOCATION" and (event.address, event.size) == (address, size)
        ]
        assert len(found) == 1, f"a block of {size} bytes at {address:#x} was recorded {len(found)} times: {found}"
        return found[0]

    def maker(self, address: int, size: int) -> str:
        return self.born(address, size)[1]

    def fate(self, address: int, size: int) -> str:
        """What became of the block: "freed" or "alive"."""
        at, _ = self.born(address, size)
        for later, event in enumerate(self.events[at + 1 :], at + 1):
            if event.address == address and event.kind == "FREE" and not self.is_refused(later):
                return "freed"
            assert event.address != address or event.kind == "FREE", f"{event} while the block before was alive"
        return "alive"

    def is_refused(self, release: int) -> bool:
        """Whether the release at this place did not happen, as its thread said before its next event."""
        thread = self.events[release].thread
        following = (event.kind for event in self.events[release + 1 :] if event.thread == thread)
        return next(following, "") == "FREE_REFUSED"

    def sizes(self) -> set[int]:
        return {event.size for event in self.events if event.kind == "ALLOCATION"}


def event_of(line: str) -> Event:
    kind, *fields = line.split()
    values = dict(field.split("=", 1) for field in fields if "=" in field)
    thread, address, size = int(values["thread"]), int(values.get("address", "0"), 16), int(values.get("size", 0))
    return Event(kind, thread, address, size, values.get("allocator", ""))


def leaks_by_function(tree: str) -> dict[str, int]:
    """Bytes that functions left alive through the calls under test, from the text of the leak tree.

    A size is printed with three decimals, so below a megabyte it is exact.
    """
    units = {"B": 1, "kB": 1000, "MB": 1000**2}
    leaks: dict[str, int] = {}
    path: list[str] = []
    for line in tree.splitlines():
        found = re.match(r"(\W*)[📂📄] ([\d.]+)(k?M?B) \(.*?\) (\S+) ?(.*)", line)
        if found is None:
            continue
        guides, amount, unit, function, place = found.groups()
        del path[len(guides) // 4 :]
        path.append(function)
        if "📄" in line and "allocator_calls.py" in place:
            n_bytes = round(float(amount) * units[unit])
            for name in set(path):
                leaks[name] = leaks.get(name, 0) + n_bytes
    return leaks


_recordings: dict[str, Recording] = {}


@pytest.fixture(params=["library", "module"])
def recording(
    request: pytest.FixtureRequest, extension: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Recording:
    """The program's capture, made once for all tests that look at it."""
    kind = request.param
    if kind not in _recordings:
        library = extension(f"allocator_calls_{kind}")
        folder = tmp_path_factory.mktemp("allocator_scenarios")
        capture = folder / "capture.tide"
        done = heaptide("run", "-q", "-o", capture, PROGRAMS / "allocator_scenarios.py", library, cwd=folder)
        _recordings[kind] = Recording(capture, json.loads(done.stdout))
    return _recordings[kind]
