"""Tests programs whose allocator is replaced with LD_PRELOAD: each block is recorded once, and the program works.

The allocators come from system packages (`libjemalloc2` and `libmimalloc2.0` in Debian), which
`scripts/test_all_pythons.py` installs.
"""

from __future__ import annotations

import ctypes.util
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from support.attached_process import ask, attach, blocked, detach, end, n_asked
from support.commands import Finished, heaptide

pytestmark = pytest.mark.once
Run = Callable[..., Finished]

# Allocates blocks of unique sizes with each of the allocator's functions, then keeps it busy from several threads.
PROGRAM = """
    import ctypes, sys, threading

    def keep():
        return [bytearray(70_000 + number) for number in range(20)]

    def drop():
        for number in range(20):
            block = bytearray(90_000 + number)

    def call_each_function():
        blocks = [raw.PyMem_RawMalloc(123_457) for _ in range(6)]
        for block in blocks[:4]:
            raw.PyMem_RawFree(block)
        return raw.PyMem_RawCalloc(3, 50_001), raw.PyMem_RawRealloc(blocks[4], 234_567)

    def churn():
        for number in range(500):
            [bytes(600 + size) for size in range(20)]

    raw = ctypes.pythonapi
    for name, n_words in (("Malloc", 1), ("Calloc", 2), ("Realloc", 2), ("Free", 1)):
        function = getattr(raw, "PyMem_Raw" + name)
        function.restype, function.argtypes = ctypes.c_void_p, [ctypes.c_size_t] * n_words
    kept = keep()
    drop()
    call_each_function()
    threads = [threading.Thread(target=churn) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with open("/proc/self/maps") as maps:
        print(any(sys.argv[1] in line for line in maps))
"""


@pytest.fixture(params=["jemalloc", "mimalloc"])
def preload(request: pytest.FixtureRequest) -> dict[str, str]:
    """Environment variables that preload an allocator."""
    library = ctypes.util.find_library(request.param)
    assert library is not None, f"no lib{request.param}: install libjemalloc2 and libmimalloc2.0"
    environment = {**os.environ, "LD_PRELOAD": library}
    done = subprocess.run([sys.executable, "-c", ""], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), f"Python does not run with {library}"
    return {"LD_PRELOAD": library}


def sizes(capture: Path) -> Counter[int]:
    """Count the allocations of each size."""
    return Counter(int(size) for size in re.findall(r"\bsize=(\d+)", heaptide("parse", capture).stdout))


def live(capture: Path) -> str:
    """Return the live blocks at the end with their stacks, as CSV."""
    return heaptide("transform", "csv", "--leaks", "-o", "-", capture).stdout


@pytest.mark.parametrize("options", [(), ("--native",), ("--objects",)], ids=" ".join)
def test_blocks_of_a_preloaded_allocator_are_recorded_once_with_their_sizes(
    heaptide_run: Run, preload: dict[str, str], options: tuple[str, ...]
) -> None:
    name = Path(preload["LD_PRELOAD"]).name.partition(".")[0]
    done = heaptide_run(PROGRAM, *options, args=[name], env=preload)
    assert done.stdout == "True\n"
    found = sizes(done.capture)
    assert (found[123_457], found[150_003], found[234_567]) == (6, 1, 1)
    # A bytearray asks for a byte more than its length.
    for number in range(20):
        assert found[70_001 + number] == found[90_001 + number] == 1
    left = live(done.capture)
    assert "keep;" in left and "drop;" not in left
    # The allocator's mappings hold the same memory, which must not be counted twice.
    assert "opaque arena" not in left


def test_sampling_records_large_blocks_of_a_preloaded_allocator(heaptide_run: Run, preload: dict[str, str]) -> None:
    program = "kept = [bytearray(1_000_000) for _ in range(200)]\nprint(len(kept))\n"
    done = heaptide_run(program, "--sample=16k", env=preload)
    assert done.stdout == "200\n"
    # Blocks much larger than the sampling distance are all sampled.
    assert sizes(done.capture)[1_000_001] == 200


def test_process_with_a_preloaded_allocator_can_be_attached_and_detached(
    tmp_path: Path, preload: dict[str, str]
) -> None:
    environment = {**os.environ, **preload}
    with blocked(env=environment) as process:
        for number in range(2):
            capture = tmp_path / f"{number}.tide"
            attach(process, "-o", capture, *(["--native"] if number else []))
            for n_letters in (5, 0, 77):
                ask(process, n_letters)
            detach(process)
            ask(process, 3)  # no longer recorded
            assert n_asked(capture) == 3
        end(process)
