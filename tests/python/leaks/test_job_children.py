"""Tests that memory retained by threads, pools and greenlets belongs to the job that started them.

The buffers are large, so that the memory of the threads themselves does not matter.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from support.job_program import run

BUFFER = 1_000_000
TOLERANCE = 100_000

HEAD = """
        import threading
        from concurrent.futures import ThreadPoolExecutor
        tracer = leaks.JobTracer()
        kept = []
        def keep(n): kept.extend(bytearray(1_000_000) for _ in range(n))
"""


def is_about(left: int, n_buffers: int) -> bool:
    """Return whether a job retained about this many buffers."""
    return abs(left - n_buffers * BUFFER) < TOLERANCE


def test_memory_retained_by_a_jobs_threads_belongs_to_the_job(tmp_path: Path) -> None:
    thread, own_class, pool, restored, outside = run(
        tmp_path,
        HEAD
        + """
        original = threading.Thread.start
        class Worker(threading.Thread):
            def run(self): keep(3)
        def in_a_thread(thread): thread.start(); thread.join()
        def in_a_pool():
            with ThreadPoolExecutor(2) as pool: list(pool.map(keep, [1, 1, 2]))
        left = []
        for work in (lambda: in_a_thread(threading.Thread(target=keep, args=(2,))), lambda: in_a_thread(Worker()), in_a_pool):
            with tracer.job("starts") as job: work()
            left.append(job.retained_bytes)
        in_a_thread(threading.Thread(target=keep, args=(5,)))
        with tracer.job("nothing") as job: pass
        left.append(job.retained_bytes)
        tracer.close()
        print(json.dumps([*left[:3], threading.Thread.start is original, left[3]]))
        """,
    )
    assert is_about(thread, 2)
    assert is_about(own_class, 3)
    assert is_about(pool, 4)
    assert is_about(outside, 0)
    assert restored


def test_work_in_a_shared_pool_belongs_to_the_job_that_submitted_it(tmp_path: Path) -> None:
    first, second, later = run(
        tmp_path,
        HEAD
        + """
        left = {}
        pool = ThreadPoolExecutor(1)
        begun, handed_over = threading.Event(), threading.Event()
        def first():
            with tracer.job("first") as job:
                pool.submit(keep, 1).result()
                begun.set()
                handed_over.wait()
            left["first"] = job.retained_bytes
        def second():
            begun.wait()
            with tracer.job("second") as job: pool.submit(keep, 3).result()
            left["second"] = job.retained_bytes
            handed_over.set()
        threads = [threading.Thread(target=first), threading.Thread(target=second)]
        for each in threads: each.start()
        for each in threads: each.join()
        with tracer.job("later") as job: pool.submit(keep, 2).result()
        print(json.dumps([left["first"], left["second"], job.retained_bytes]))
        """,
    )
    assert is_about(first, 1)
    assert is_about(second, 3)
    assert is_about(later, 2)


@pytest.mark.once
@pytest.mark.skipif(importlib.util.find_spec("gevent") is None, reason="gevent is not installed")
def test_memory_retained_by_a_jobs_greenlets_belongs_to_the_job(tmp_path: Path) -> None:
    spawned, pooled, outside = run(
        tmp_path,
        """
        from gevent import monkey
        monkey.patch_all()
        import gevent, gevent.pool, threading
        """
        + HEAD
        + """
        def spawn(): gevent.joinall([gevent.spawn(keep, n) for n in (1, 2)])
        def pooled(): gevent.pool.Pool(2).map(keep, [1, 1, 3])
        left = []
        for work in (spawn, pooled):
            with tracer.job("starts") as job: work()
            left.append(job.retained_bytes)
        gevent.spawn(keep, 4).join()
        with tracer.job("nothing") as job: pass
        print(json.dumps([*left, job.retained_bytes]))
        """,
    )
    assert is_about(spawned, 3)
    assert is_about(pooled, 5)
    assert is_about(outside, 0)
