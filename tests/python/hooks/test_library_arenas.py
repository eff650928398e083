"""Tests allocators bundled in libraries: their arenas are named, and jemalloc's blocks are recorded one by one."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import Finished, heaptide, python
from support.native_frames import functions

pytestmark = pytest.mark.once
Run = Callable[..., Finished]
Extension = Callable[..., Path]

PROGRAM = """
    import ctypes, sys
    library = ctypes.CDLL(sys.argv[1])
    library.arena_grow.restype = ctypes.c_void_p
    library.arena_grow.argtypes = [ctypes.c_size_t]
    library.arena_shrink.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

    def grow():
        kept.append(library.arena_grow(3_002_368))
        kept.append(library.arena_grow(5_001_216))
        kept.append(library.arena_grow(8_192))

    kept = []
    grow()
    library.arena_shrink(kept[1], 5_001_216)
"""
ARENA = "opaque arena of bundled_allocator.so"
needs_polars = pytest.mark.skipif(
    importlib.util.find_spec("polars") is None, reason="no polars: install it to run this test"
)


@pytest.mark.parametrize("options", [(), ("--native",), ("--aggregate",), ("--objects",)], ids=" ".join)
def test_arena_of_a_bundled_allocator_has_a_frame_that_names_its_library(
    heaptide_run: Run, extension: Extension, options: tuple[str, ...]
) -> None:
    library = extension("hooks/bundled_allocator")
    capture = heaptide_run(PROGRAM, *options, args=[str(library)]).capture
    found = functions(capture)
    assert found[3_002_368][-1] == found[5_001_216][-1] == ARENA
    assert "grow" in found[3_002_368][:-1]
    assert ARENA not in found[8_192] and "grow" in found[8_192]
    left = functions(capture, selection="--leaks")
    assert 3_002_368 in left and 5_001_216 not in left
    assert f"{ARENA}:{library}" in heaptide("stats", capture).stdout


def test_arena_is_named_in_a_second_recording_of_the_same_process(extension: Extension, tmp_path: Path) -> None:
    library = extension("hooks/bundled_allocator")
    program = f"""
import ctypes, heaptide
library = ctypes.CDLL({str(library)!r})
for number, name in enumerate(("first", "second")):
    with heaptide.Tracker(name + ".tide"):
        library.arena_grow(3_002_368 + 4096 * number)
    library.arena_grow(7_000_064)
"""
    python("-c", program, cwd=tmp_path)
    assert functions(tmp_path / "first.tide")[3_002_368][-1] == ARENA
    second = functions(tmp_path / "second.tide")
    assert second[3_006_464][-1] == ARENA
    assert 7_000_064 not in second


def bytes_below(function: str, capture: Path, selection: str = "--total") -> int:
    """Sum the bytes allocated below a function of the program; skip the test if polars' allocator hides them."""
    text = heaptide("transform", "csv", selection, "-o", "-", capture).stdout
    rows = list(csv.DictReader(text.splitlines()))
    if any("opaque arena of" in row["stack_trace"] for row in rows):
        pytest.skip("this polars has no jemalloc whose blocks can be recorded")
    return sum(int(row["size"]) for row in rows if f"{function};" in row["stack_trace"])


@needs_polars
def test_blocks_of_polars_are_recorded_with_their_call_stacks(heaptide_run: Run) -> None:
    program = """
        import polars
        def fill_and_keep():
            return polars.int_range(0, 3_000_017, eager=True)
        def fill_and_drop():
            polars.int_range(0, 5_000_011, eager=True)
        kept = fill_and_keep()
        fill_and_drop()
    """
    capture = heaptide_run(program).capture
    for function, size in (("fill_and_keep", 8 * 3_000_017), ("fill_and_drop", 8 * 5_000_011)):
        assert size <= bytes_below(function, capture) < 1.2 * size
    assert bytes_below("fill_and_keep", capture, "--leaks") >= 8 * 3_000_017
    assert bytes_below("fill_and_drop", capture, "--leaks") < 1_000_000


@needs_polars
def test_blocks_of_polars_are_not_recorded_between_recordings(tmp_path: Path) -> None:
    program = """
import heaptide, polars
def fill(size):
    return polars.int_range(0, size, eager=True)
kept = []
for name in ("first", "second"):
    with heaptide.Tracker(name + ".tide"):
        kept.append(fill(300_007))
    kept.append(fill(5_000_011))
print(sum(series.sum() for series in kept))
"""
    done = python("-c", program, cwd=tmp_path)
    assert done.stdout.split() == [str(sum(sum(range(size)) for size in (300_007, 5_000_011)) * 2)]
    for name in ("first", "second"):
        assert 8 * 300_007 <= bytes_below("fill", tmp_path / f"{name}.tide") < 8 * 5_000_011
