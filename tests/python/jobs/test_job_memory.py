"""Tests that a recording assigns memory to jobs: peak, retained and allocated bytes of each job, wherever it runs.

Every job keeps three buffers of 100,000 bytes and has 5,000,000 temporary bytes, whatever else runs at the same time.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import pytest

Stats = Callable[..., dict[str, Any]]
Run = Callable[..., Any]

KEPT = 3 * 100_000
PEAK = KEPT + 5_000_000

HEAD = """
import heaptide

kept = {}

def work(name):
    kept[name] = [bytearray(100_000) for _ in range(3)]
    buffers = [bytearray(50_000) for _ in range(100)]
    del buffers

def work_outside_of_jobs():
    return [bytearray(70_000) for _ in range(100)]
"""

SEQUENTIAL = """
for number in range(3):
    with heaptide.job(f"job {number}"):
        work(number)
    others = work_outside_of_jobs()
"""

THREADS = """
import threading
barrier = threading.Barrier(4)
def body(number):
    barrier.wait()
    with heaptide.job(f"job {number}"):
        work(number)
    barrier.wait()
def other():
    barrier.wait()
    work_outside_of_jobs()
    barrier.wait()
threads = [threading.Thread(target=body, args=(number,)) for number in range(3)]
threads.append(threading.Thread(target=other))
for thread in threads: thread.start()
for thread in threads: thread.join()
"""

TASKS = """
import asyncio
async def body(number):
    with heaptide.job(f"job {number}"):
        first = bytearray(100_000)
        await asyncio.sleep(0)
        temporary = [bytearray(50_000) for _ in range(50)]
        await asyncio.sleep(0)
        temporary += [bytearray(50_000) for _ in range(50)]
        kept[number] = [first, bytearray(100_000), bytearray(100_000)]
        await asyncio.sleep(0)
        del temporary
async def other():
    for _ in range(3):
        others = work_outside_of_jobs()
        await asyncio.sleep(0)
async def main():
    await asyncio.gather(*(body(number) for number in range(3)), other())
asyncio.run(main())
"""

GREENLETS = """
import greenlet
def body(number):
    with heaptide.job(f"job {number}"):
        first = bytearray(100_000)
        main.switch()
        temporary = [bytearray(50_000) for _ in range(100)]
        main.switch()
        kept[number] = [first, bytearray(100_000), bytearray(100_000)]
        del temporary
main = greenlet.getcurrent()
workers = [greenlet.greenlet(body) for _ in range(3)]
for number, worker in enumerate(workers): worker.switch(number)
for _ in range(2):
    for worker in workers: worker.switch()
    others = work_outside_of_jobs()
"""

STARTED_BY_JOBS = """
import threading
from concurrent.futures import ThreadPoolExecutor
def part(number, size):
    kept.setdefault(number, []).append(bytearray(size))
with ThreadPoolExecutor(2) as pool:
    pool.submit(int).result()
    for number in range(3):
        with heaptide.job(f"job {number}"):
            part(number, 100_000)
            pool.submit(part, number, 100_000).result()
            thread = threading.Thread(target=part, args=(number, 100_000))
            thread.start()
            thread.join()
            temporary = [bytearray(50_000) for _ in range(100)]
            del temporary
"""

OTHER_THREAD = """
import threading
begun, done = threading.Event(), threading.Event()
jobs = {}
def assigned():
    begun.wait()
    work(0)
    done.set()
thread = threading.Thread(target=assigned)
thread.start()
first = heaptide.job("job 0").begin(thread=thread.ident)
begun.set()
done.wait()
first.end()
thread.join()
second = heaptide.job("job 1").begin()
runs_second = threading.Thread(target=lambda: second.run(work, 1))
ends_second = threading.Thread(target=second.end)
runs_second.start(); runs_second.join()
ends_second.start(); ends_second.join()
work_outside_of_jobs()
third = heaptide.job("job 2")
third.run(work, 2)
"""


def check(job: dict[str, Any], slack: int = 1_000) -> None:
    assert 0 <= job["retained_bytes"] - KEPT < slack, job
    assert 0 <= job["peak_bytes"] - PEAK < slack + 100_000, job
    assert 0 <= job["allocated_bytes"] - PEAK < slack + 100_000, job


@pytest.mark.parametrize(
    "program",
    [SEQUENTIAL, THREADS, TASKS, GREENLETS, STARTED_BY_JOBS, OTHER_THREAD],
    ids=["sequential", "threads", "asyncio tasks", "greenlets", "threads of jobs", "another thread"],
)
def test_job_reports_its_own_peak_and_retained_bytes(heaptide_run: Run, stats: Stats, program: str) -> None:
    capture = heaptide_run(HEAD + textwrap.dedent(program)).capture
    jobs = {job["name"]: job for job in stats(capture, "--by", "job")["heaptide"]["jobs"]}
    assert sorted(jobs) == ["job 0", "job 1", "job 2"]
    # The interpreter keeps some memory of each thread that works for a job.
    slack = 5_000 if program in (STARTED_BY_JOBS, OTHER_THREAD) else 1_000
    for job in jobs.values():
        check(job, slack)


@pytest.mark.parametrize("mode", ["--aggregate", "--objects", "--native"])
def test_every_mode_assigns_memory_to_jobs(heaptide_run: Run, stats: Stats, mode: str) -> None:
    capture = heaptide_run(HEAD + SEQUENTIAL, mode).capture
    jobs = {job["name"]: job for job in stats(capture, "--by", "job")["heaptide"]["jobs"]}
    assert sorted(jobs) == ["job 0", "job 1", "job 2"]
    for job in jobs.values():
        check(job, slack=10_000 if mode == "--objects" else 1_000)
