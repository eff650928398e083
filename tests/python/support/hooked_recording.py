"""Records the program that calls every hooked function, and offers queries on its capture.

The program (tests/programs/hooks/allocator_scenarios.py) makes its calls through a shared library and through an extension
module, and prints what the C library returned. Tests compare this with the records and with the reported leaks.
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
    """One line of `heaptide parse` about an allocation or a release."""

    type: str
    thread: int
    address: int
    size: int
    allocator: str


class Recording:
    """The output of the program, its recorded events, and its leaks as reported."""

    def __init__(self, capture: Path, printed: dict[str, Any]) -> None:
        self.printed = printed
        self.capture = capture
        lines = heaptide("parse", capture).stdout.splitlines()
        self.events = [event_of(line) for line in lines if line.startswith(("ALLOCATION ", "FREE"))]
        self.leaks = leaks_by_function(heaptide("tree", "--layout=memray", "--leaks", "-b", "100000", capture).stdout)

    def allocation(self, address: int, size: int) -> tuple[int, str]:
        """Return the position of the only allocation of this block, and its allocator."""
        found = [
            (at, event.allocator)
            for at, event in enumerate(self.events)
            if event.type == "ALLOCATION" and (event.address, event.size) == (address, size)
        ]
        assert len(found) == 1, f"a block of {size} bytes at {address:#x} was recorded {len(found)} times: {found}"
        return found[0]

    def allocator(self, address: int, size: int) -> str:
        """Return the allocator of this block."""
        return self.allocation(address, size)[1]

    def state(self, address: int, size: int) -> str:
        """Return the state of the block at the end: "freed" or "alive"."""
        at, _ = self.allocation(address, size)
        for later, event in enumerate(self.events[at + 1 :], at + 1):
            if event.address == address and event.type == "FREE" and not self.is_refused(later):
                return "freed"
            assert event.address != address or event.type == "FREE", f"{event} while the block before was alive"
        return "alive"

    def is_refused(self, release: int) -> bool:
        """Return whether the release at this position failed. In that case the next event of its thread revokes it."""
        thread = self.events[release].thread
        following = (event.type for event in self.events[release + 1 :] if event.thread == thread)
        return next(following, "") == "FREE_REFUSED"

    def sizes(self) -> set[int]:
        """Return the sizes of all recorded allocations."""
        return {event.size for event in self.events if event.type == "ALLOCATION"}


def event_of(line: str) -> Event:
    """Parse one line of `heaptide parse`."""
    type_, *fields = line.split()
    values = dict(field.split("=", 1) for field in fields if "=" in field)
    thread, address, size = int(values["thread"]), int(values.get("address", "0"), 16), int(values.get("size", 0))
    return Event(type_, thread, address, size, values.get("allocator", ""))


def leaks_by_function(tree: str) -> dict[str, int]:
    """Sum the leaked bytes of each function that made calls under test, from the text of the leak tree.

    In memray's layout sizes have three decimals, so they are exact below a megabyte.
    """
    units = {"B": 1, "kB": 1000, "MB": 1000**2}
    leaks: dict[str, int] = {}
    path: list[str] = []
    for line in tree.splitlines():
        found = re.match(r"(\W*)[📂📄] ([\d.]+)(k?M?B) \(.*?\) (\S+) ?(.*)", line)
        if found is None:
            continue
        guides, amount, unit, function, location = found.groups()
        del path[len(guides) // 4 :]
        path.append(function)
        if "📄" in line and "allocator_calls.py" in location:
            n_bytes = round(float(amount) * units[unit])
            for name in set(path):
                leaks[name] = leaks.get(name, 0) + n_bytes
    return leaks


_recordings: dict[str, Recording] = {}


@pytest.fixture(params=["library", "module"])
def recording(
    request: pytest.FixtureRequest, extension: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Recording:
    """Record the program once for all tests that read its capture."""
    variant = request.param
    if variant not in _recordings:
        library = extension(f"hooks/allocator_calls_{variant}")
        folder = tmp_path_factory.mktemp("allocator_scenarios")
        capture = folder / "capture.tide"
        done = heaptide("run", "-q", "-o", capture, PROGRAMS / "hooks/allocator_scenarios.py", library, cwd=folder)
        _recordings[variant] = Recording(capture, json.loads(done.stdout))
    return _recordings[variant]
