"""Tests that memray and Heaptide report the same bytes and blocks for every line of a program.

Only lines of the program are compared, since the two profilers import different modules around it. Comments name the
defects of memray that the comparison allows for.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.commands import PROGRAMS, heaptide
from support.memray_comparison import Amount, Stack, by_location, heaptide_numbers, memray_numbers, memray_run

# One interpreter is enough: other tests check frames, lines and hooks on each of them.
pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(
        sys.version_info[:2] == (3, 11),
        reason="memray's hook makes 3.11 build frame objects, and memray records the large ones on the callers' lines",
    ),
]

# The function in which Python maps its pools varies. The line where the namespace of a module grows also varies: each
# launcher adds other names to it before the program runs.
VARYING = {"make_room", "<module>"}
# memray does not record functions that a program finds with dlsym; hooks/test_dlsym.py tests those.
FOUND_BY_DLSYM = {"map_and_release_half"}


def record(folder: Path, program: Path, options: list[str], memray_options: list[str]) -> tuple[Path, Path]:
    """Record a program with Heaptide and with memray, under the same path."""
    local = folder / program.name
    if local != program:
        shutil.copy(program, local)
    heaptide("run", "-q", "-f", *options, "-o", "heaptide.tide", local.name, cwd=folder)
    return folder / "heaptide.tide", memray_run(folder, Path(local.name), *memray_options)


def own_lines(sums: Mapping[Stack, Amount] | None, program: Path) -> dict[tuple[str, int], Amount]:
    """Return the sums of the program's own lines."""
    assert sums is not None
    found = by_location(sums, lambda file: Path(file).name == program.name)
    return {location: amount for location, amount in found.items() if location[0] not in VARYING | FOUND_BY_DLSYM}


def check_same_numbers(folder: Path, program: Path, options: list[str], memray_options: list[str]) -> None:
    """Check that total, peak and leaks of every line agree."""
    capture, memray_capture = record(folder, program, options, memray_options)
    actual, reference = heaptide_numbers(capture), memray_numbers(memray_capture)
    for statistic in ("total", "peak", "leaked"):
        expected = own_lines(getattr(reference, statistic), program)
        assert expected, statistic
        assert own_lines(getattr(actual, statistic), program) == expected, statistic


def test_kept_temporary_grown_and_mapped_blocks_agree(tmp_path: Path) -> None:
    check_same_numbers(tmp_path, PROGRAMS / "recording/deterministic_allocations.py", [], [])


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
    check_same_numbers(tmp_path, program, [], [])


def test_blocks_passed_between_threads_agree(tmp_path: Path) -> None:
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
    check_same_numbers(tmp_path, program, [], [])


def test_python_objects_agree(tmp_path: Path) -> None:
    # The program makes no calls in its loops: memray's hook makes the interpreter build a frame object for each call,
    # which memray then records on the caller's line. It creates no floats, tuples or lists either: whether they come
    # from the interpreter's free lists depends on earlier code.
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
    check_same_numbers(tmp_path, program, ["--objects"], ["--trace-python-allocators"])
