"""Tasks of flytekit with the decorator in all supported forms. A separate module, as in users' projects."""

import asyncio
import multiprocessing
import sys
import time
from typing import Iterator, List

from flytekit import dynamic, eager, map_task, task, workflow

from heaptide import memray_profiling, profile_memory

executed = []


def grow(n):
    data = [None] * n
    executed.append(n)
    return len(data)


# In `below` and `above`, the profiling decorator is below or above `@task`.
@task(enable_deck=True)
@memray_profiling
def below(n: int) -> int:
    """Return the number."""
    return grow(n)


@task(enable_deck=True)
def unprofiled(n: int) -> int:
    return grow(n)


@memray_profiling(memray_html_reporter="flamegraph")
@task
def above(n: int) -> int:
    return grow(n)


@memray_profiling(memray_html_reporter="table")
@task
def tabled(n: int) -> int:
    return grow(n)


@memray_profiling
@task
def failing(n: int) -> int:
    if grow(n):
        raise KeyError("mine")
    return n


@task(enable_deck=True, deck_fields=())
@memray_profiling
def failing_below(n: int) -> int:
    if grow(n):
        raise KeyError("mine")
    return n


# `a` and `bin` test unusual names: one letter, and the file name extension of captures.
@memray_profiling
@task
def a(n: int) -> int:
    return grow(n)


@memray_profiling
@task
def bin(n: int) -> int:
    return memray_profiling(lambda: grow(n))()


@memray_profiling
@task
async def waiting(n: int) -> int:
    data = [None] * n
    await asyncio.sleep(0)
    more = [None] * n
    return len(data) + len(more)


@memray_profiling
@task
def yielding(n: int) -> Iterator[int]:
    for number in range(3):
        data = [None] * n
        yield number


@memray_profiling
@dynamic
def planning(n: int) -> int:
    return below(n=n)


@memray_profiling
@eager
async def orchestrating(n: int) -> int:
    return await waiting(n=n)


@profile_memory
def first_part(n):
    return grow(n)


@profile_memory
def second_part(n):
    return grow(2 * n)


@task(enable_deck=True, deck_fields=())
def in_parts(n: int) -> int:
    return first_part(n) + second_part(n) + first_part(n)


def child(n):
    return len([None] * n)


@memray_profiling(follow_fork=True)
@task
def pooled(n: int) -> int:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        total = sum(pool.map(child, [3 * n, 4 * n], chunksize=1))
        pool.close()
        pool.join()
    return total


def loop(n):
    # Long enough for many samples at an interval of 10 ms.
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        grow(n)
    return n


@memray_profiling(native_traces=True, memory_interval_ms=60_000, memray_reporter_args=["--leaks"])
@task
def detailed(n: int) -> int:
    return loop(n)


@memray_profiling
@task
def looping(n: int) -> int:
    return loop(n)


@memray_profiling
@task
def unrenderable(n: int) -> int:
    sys.executable = "/nonexistent/python3"
    return grow(n)


@workflow
def whole(n: int = 1_000_000) -> int:
    return above(n=n)


@workflow
def mapped(numbers: List[int] = [1_000_000, 2_000_000, 3_000_000]) -> List[int]:
    return map_task(a, concurrency=2)(n=numbers)


@workflow
def mapped_below(numbers: List[int] = [1_000_000, 2_000_000]) -> List[int]:
    return map_task(below, concurrency=2)(n=numbers)
