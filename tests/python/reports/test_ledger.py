"""Tests the breakdown of resident memory: untouched address space, memory of a heap snapshot, and large Python objects."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import heaptide

pytestmark = pytest.mark.once

MB = 1_000_000

# The buffers are longer than the data, which is empty, so their pages are never touched.
THREADS = """
import threading
def read():
    for _ in range(20):
        open("/dev/null", "rb", buffering=0).read(10_000_000)
threads = [threading.Thread(target=read) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""

# libc keeps large blocks on its heap instead of mapping each, and never returns its end to the kernel.
UNTOUCHED = """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
libc.mallopt(-3, 1 << 30), libc.mallopt(-1, 1 << 30)
blocks = [libc.malloc(1_000_000) for _ in range(60)]
for block in blocks: libc.free(block)
"""

TOUCHED = (
    UNTOUCHED
    + """
again = [libc.malloc(1_000_000) for _ in range(60)]
for block in again: ctypes.memset(block, 1, 1_000_000)
for block in again: libc.free(block)
"""
)

# Python takes blocks of this size from libc, which counts them also.
LARGE_OBJECTS = "kept = [bytes([1]) * 100_000 for _ in range(300)]\n"

SNAPSHOT = """
import heaptide
kept = [[number] for number in range(300_000)]
heaptide.heap_snapshot("job.heap")
"""


@pytest.fixture
def recorded(tmp_path: Path, stats: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Return a function that records a program and returns its statistics."""

    def record(program: str, *options: str) -> dict[str, Any]:
        (tmp_path / "job.py").write_text(program)
        heaptide("run", "-q", *options, "-f", "-o", "job.tide", "job.py", cwd=tmp_path)
        return stats(tmp_path / "job.tide")

    return record


def ledger_of(statistics: dict[str, Any]) -> dict[str, int]:
    """Check that the parts of the breakdown add up and that each is possible, and return it."""
    [process] = statistics["heaptide"]["processes"]
    ledger: dict[str, int] = process["ledger"]
    parts = {name: part for name, part in ledger.items() if name not in ("pid", "resident_bytes", "not_resident_bytes")}
    assert all(0 <= part <= ledger["resident_bytes"] for part in parts.values()), ledger
    assert sum(parts.values()) == ledger["resident_bytes"], ledger
    return ledger


def kinds(statistics: dict[str, Any]) -> set[str]:
    """Return the kinds of all findings."""
    return {finding["kind"] for finding in statistics["heaptide"]["findings"]}


@pytest.mark.parametrize("program", [THREADS, UNTOUCHED], ids=["threads", "malloc"])
def test_free_memory_that_was_never_touched_is_not_resident(
    recorded: Callable[[str], dict[str, Any]], tmp_path: Path, program: str
) -> None:
    statistics = recorded(program)
    assert ledger_of(statistics)["libc_free_bytes"] < 2 * MB
    assert "kept_free" not in kinds(statistics)
    assert "\t   -" not in heaptide("stats", tmp_path / "job.tide").stdout


def test_free_memory_that_was_touched_is_reported(recorded: Callable[[str], dict[str, Any]]) -> None:
    statistics = recorded(TOUCHED)
    assert 55 * MB < ledger_of(statistics)["libc_free_bytes"] < 65 * MB
    assert "kept_free" in kinds(statistics)


def test_allocated_memory_that_was_never_touched_is_not_resident(
    recorded: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    statistics = recorded("import mmap\nkept = mmap.mmap(-1, 200_000_000)\n")
    ledger = ledger_of(statistics)
    assert 150 * MB < ledger["not_resident_bytes"] <= 200 * MB
    assert "are not resident: never touched" in heaptide("stats", tmp_path / "job.tide").stdout


@pytest.mark.parametrize("options", [[], ["--aggregate"], ["--sample=1k"]], ids=["exact", "aggregate", "sampled"])
def test_large_python_objects_count_once_although_libc_counts_them_also(
    recorded: Callable[..., dict[str, Any]], options: list[str]
) -> None:
    ledger = ledger_of(recorded(LARGE_OBJECTS, "--objects", *options))
    assert 29 * MB < ledger["python_bytes"] < 32 * MB
    assert ledger["earlier_bytes"] < 5 * MB
    assert ledger["not_resident_bytes"] == 0


def test_python_objects_count_once_if_python_uses_no_allocator_of_its_own(
    recorded: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONMALLOC", "malloc")
    ledger = ledger_of(recorded("kept = [bytes([1]) * 300 for _ in range(200_000)]\n", "--objects"))
    assert ledger["python_bytes"] > 60 * MB
    assert ledger["earlier_bytes"] < 20 * MB
    assert ledger["not_resident_bytes"] == 0


def test_own_memory_in_the_ledger_excludes_memory_that_a_heap_snapshot_freed(
    recorded: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    statistics = recorded(SNAPSHOT)
    [process] = statistics["heaptide"]["processes"]
    assert process["own_memory_bytes"] > 10 * MB
    assert ledger_of(statistics)["own_bytes"] < 6 * MB
    # The snapshot caused the peak of the resident size, and the text reports this.
    assert process["own_at_resident_peak_bytes"] > 5 * MB
    assert "of it were the profiler's own" in heaptide("stats", tmp_path / "job.tide").stdout
