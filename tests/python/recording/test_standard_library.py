"""Tests that the whole standard library can be imported while recording, and that samples estimate exact sums."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import heaptide

# Leaves out modules that open a browser or print when imported, and the interpreter's own tests.
IMPORTS = """
import importlib, sys
for name in sorted(sys.stdlib_module_names - {"antigravity", "this", "test"}):
    try:
        importlib.import_module(name)
    except Exception as error:
        print(name, type(error).__name__)
print(len(sys.modules) > 300, sys.getprofile(), sys.gettrace())
"""

ALLOCATES = """
import random
choose = random.Random(7)
def load(): return [bytearray(600 + choose.randrange(40_000)) for _ in range(4000)]
def use(held): return [bytes(len(block)) for block in held[::4]]
held = load()
used = use(held)
"""


def test_every_module_of_the_standard_library_can_be_imported_while_recording(
    tmp_path: Path, stats: Callable[..., dict[str, Any]]
) -> None:
    plain = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True)
    assert plain.returncode == 0, plain.stderr
    done = heaptide("run", "-q", "-o", tmp_path / "x.tide", "-c", IMPORTS, cwd=tmp_path)
    assert done.stdout == plain.stdout
    read = stats(tmp_path / "x.tide")
    assert read["heaptide"]["damage"] == []
    assert read["total_num_allocations"] > 10_000


@pytest.mark.once
def test_sampled_sums_are_within_three_error_bars_of_the_exact_ones(
    heaptide_run: Callable[..., Any], stats: Callable[..., dict[str, Any]]
) -> None:
    exact = stats(heaptide_run(ALLOCATES).capture)
    sampled = stats(heaptide_run(ALLOCATES, "--sample=64k").capture)
    bars = sampled["heaptide"]["sampling"]
    total = abs(sampled["total_bytes_allocated"] - exact["total_bytes_allocated"])
    peak = abs(sampled["metadata"]["peak_memory"] - exact["metadata"]["peak_memory"])
    # An error bar covers 95 of 100 runs; three times the bar covers all but one of a hundred million.
    assert total <= 3 * bars["total_error_bytes_95"] < exact["total_bytes_allocated"] / 4
    assert peak <= 3 * bars["peak_error_bytes_95"] < exact["metadata"]["peak_memory"] / 4
