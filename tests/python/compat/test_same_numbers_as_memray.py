"""The same programs under memray and under us: every location has the same bytes and blocks.

Compared are the programs' own lines. What the interpreter and the launchers allocate around them is not the same: each
profiler imports modules of its own. Differences that are memray's defects are named where they are allowed for.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.commands import PROGRAMS, heaptide
from support.memray_comparison import Amount, Stack, by_location, heaptide_numbers, memray_numbers, memray_run

# One interpreter is enough: that frames, lines and hooks are right on each of them is tested elsewhere.
pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(
        sys.version_info[:2] == (3, 11),
        reason="memray's hook makes 3.11 build frame objects, and memray records the large ones on the callers' lines",
    ),
]

# In which function Python maps its own pools is chance, and so is at which line of a module its namespace grows: each
# launcher puts other names into it before the program runs.
CHANCE = {"make_room", "<module>"}
# memray does not see functions that a program looks up by name; test_looked_up_functions.py is about those.
LOOKED_UP = {"map_and_release_half"}


def recorded(folder: Path, program: Path, ours: list[str], theirs: list[str]) -> tuple[Path, Path]:
    """Our capture and memray's of a program; both see it under the same name."""
    local = folder / program.name
    if local != program:
        shutil.copy(program, local)
    heaptide("run", "-q", "-f", *ours, "-o", "ours.tide", local.name, cwd=folder)
    return folder / "ours.tide", memray_run(folder, Path(local.name), *theirs)


def own_lines(sums: Mapping[Stack, Amount] | None, program: Path) -> dict[tuple[str, int], Amount]:
    """The sums of the program's own lines."""
    assert sums is not None
    found = by_location(sums, lambda file: Path(file).name == program.name)
    return {place: amount for place, amount in found.items() if place[0] not in CHANCE | LOOKED_UP}


def same_everywhere(folder: Path, program: Path, ours: list[str], theirs: list[str]) -> None:
    """Total, peak and leaks of every line agree."""
    our_capture, their_capture = recorded(folder, program, ours, theirs)
    mine, memrays = heaptide_numbers(our_capture), memray_numbers(their_capture)
    for what in ("total", "peak", "leaked"):
        expected = own_lines(getattr(memrays, what), program)
        assert expected, what
        assert own_lines(getattr(mine, what), program) == expected, what


def test_kept_temporary_grown_and_mapped_blocks_agree(tmp_path: Path) -> None:
    same_everywhere(tmp_path, PROGRAMS / "deterministic_allocations.py", [], [])


def test_exceptions_generators_and_classes_agree(tmp_path: Path) -> None:
    program = tmp_path / "control_flow.py"
    program.write_text(
        "kept = []\n"
        "def numbers():\n"
        "    for size in range(1000, 5000, 100):\n"
        "        yield bytearray(size)\n"
        "def fails(size):\n"
        "    block = bytearray(size)\n"
        "    raise ValueError(len(block))\n"
        "class Node:\n"
        "    def __init__(self, below):\n"
        "        self.payload = bytearray(2000)\n"
        "        self.below = below\n"
        "def main():\n"
        "    for block in numbers():\n"
        "        if len(block) % 300 == 0:\n"
        "            kept.append(block)\n"
        "    for size in range(10_000, 20_000, 500):\n"
        "        try:\n"
        "            fails(size)\n"
        "        except ValueError:\n"
        "            pass\n"
        "    node = None\n"
        "    for _ in range(50):\n"
        "        node = Node(node)\n"
        "    ordered = sorted((bytes(n) for n in range(600, 700)), key=lambda block: bytes(len(block)))\n"
        "    bytearray(5 << 20)\n"
        "    return node, ordered\n"
        "result = main()\n"
    )
    same_everywhere(tmp_path, program, [], [])


def test_threads_that_hand_blocks_over_agree(tmp_path: Path) -> None:
    program = tmp_path / "handing_over.py"
    program.write_text(
        "import queue, threading\n"
        "handed = queue.Queue()\n"
        "def make():\n"
        "    for n in range(300):\n"
        "        handed.put(bytearray(1000 + n))\n"
        "def take(kept):\n"
        "    for n in range(300):\n"
        "        if n % 3 == 0:\n"
        "            kept[n] = handed.get()\n"
        "        else:\n"
        "            handed.get()\n"
        "kept = [None] * 300\n"
        "for target, args in ((make, ()), (take, (kept,))):\n"
        "    thread = threading.Thread(target=target, args=args)\n"
        "    thread.start()\n"
        "    thread.join()\n"
    )
    same_everywhere(tmp_path, program, [], [])


def test_python_objects_agree(tmp_path: Path) -> None:
    # Calls are left out: memray's hook makes the interpreter build a frame object for each of them, which memray then
    # records on the caller's line. So are numbers, tuples and lists: which of them come from the interpreter's free lists
    # depends on what ran before.
    program = tmp_path / "objects.py"
    program.write_text(
        "def words(count):\n"
        "    found = {}\n"
        "    for n in range(count):\n"
        "        found[n] = f'{n} {n}'\n"
        "    return found\n"
        "def pieces(count):\n"
        "    found = {}\n"
        "    for n in range(count):\n"
        "        found[b'%d piece' % n] = None\n"
        "    return found\n"
        "kept = words(2000), pieces(3000)\n"
        "words(50000)\n"
    )
    same_everywhere(tmp_path, program, ["--objects"], ["--trace-python-allocators"])
