"""Tests that the leak tracer reports exactly the memory that each job retains.

The jobs run in a separate process that prints the results. Nothing depends on time or on other threads.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.job_program import HEAD, run

# Bytes by which a result may differ from the expected value, because the interpreter allocates objects of its own.
TOLERANCE = 1_000
THREE_BUFFERS = 3 * 100_000


TWO_JOBS = """
        tracer = leaks.JobTracer()
        kept, nothing, job = [], [], None
        with tracer.job("warms up"):
            keep_three()
            keep_nothing()
        for number in range(N_RUNS):
            with tracer.job("keeps") as job:
                keep_three()
            kept.append(job.retained_bytes)
            with tracer.job("keeps nothing") as job:
                keep_nothing()
            nothing.append(job.retained_bytes)
        print(json.dumps([kept, nothing]))
        """


def check_retained_bytes(tmp_path: Path, n_runs: int) -> None:
    """Run both jobs `n_runs` times, and compare each result with the known retained bytes."""
    kept, nothing = run(tmp_path, TWO_JOBS.replace("N_RUNS", str(n_runs)))
    assert [number for number in kept if not 0 <= number - THREE_BUFFERS <= TOLERANCE] == []
    assert [number for number in nothing if abs(number) > TOLERANCE] == []


def test_retained_bytes_are_exact_for_three_buffers_and_for_nothing(tmp_path: Path) -> None:
    check_retained_bytes(tmp_path, 15)


@pytest.mark.once
def test_retained_bytes_are_exact_in_each_of_300_runs(tmp_path: Path) -> None:
    check_retained_bytes(tmp_path, 300)


def test_failed_job_is_reported_without_the_memory_of_its_exception(tmp_path: Path) -> None:
    kept, failed, reason = run(
        tmp_path,
        """
        tracer = leaks.JobTracer()
        def fails():
            keep_three()
            large = bytearray(5_000_000)
            raise ValueError("the job failed")
        for _ in range(3):
            reason = None
            try:
                with tracer.job("fails") as job:
                    fails()
            except ValueError as error:
                reason = str(error)
        print(json.dumps([job.retained_bytes, job.failed, reason]))
        """,
    )
    assert 0 <= kept - THREE_BUFFERS <= TOLERANCE
    assert failed is True
    assert reason == "the job failed"


def test_grown_types_exclude_earlier_objects_and_have_at_most_30_rows(tmp_path: Path) -> None:
    first, second, n_rows, has_leaking_line, report = run(
        tmp_path,
        """
        class Leaked:
            def __init__(self):
                self.payload = bytearray(10_000)
        objects = []
        def leak():
            objects.append(Leaked())  # leaks
        objects.append(None)
        tracer = leaks.JobTracer()
        jobs = []
        for _ in range(2):
            with tracer.job("leaks") as job:
                leak()
            jobs.append(job)
        rows = [[[row.name, row.count, row.delta] for row in job.grown_types] for job in jobs]
        def leak_many_types():
            for number in range(50):
                objects.append(type(f"Type{number}", (), {})())
        with tracer.job("many") as many:
            leak_many_types()
        lines = [line for line, text in enumerate(open(__file__), 1) if text.endswith("# leaks\\n")]
        sites = [[frame.line for frame in site.frames] for site in jobs[1].sites]
        has_leaking_line = any(lines[0] in frames for frames in sites)
        print(json.dumps([rows[0], rows[1], len(many.grown_types), has_leaking_line, jobs[1].report()]))
        """,
    )
    assert ["__main__.Leaked", 1, 1] in first
    assert len(first) < 5, "the first job shows objects that existed before it"
    assert ["__main__.Leaked", 2, 1] in second
    assert ["bytearray", 2, 1] in second
    assert n_rows == 30
    assert has_leaking_line is True
    assert "__main__.Leaked" in report and "+1" in report


def test_jobs_in_threads_have_separate_accounts(tmp_path: Path) -> None:
    seen = run(
        tmp_path,
        """
        import threading
        tracer = leaks.JobTracer(collect=False)
        n_workers = 4
        barrier = threading.Barrier(n_workers)
        results = {}
        slots = [None] * n_workers
        def work(number):
            with tracer.job(str(number)) as job:
                barrier.wait()
                mine = [bytearray(100_000) for _ in range(number + 1)]
                barrier.wait()
                slots[number] = mine
                del mine
                barrier.wait()
            results[number] = job.retained_bytes
        threads = [threading.Thread(target=work, args=(number,)) for number in range(n_workers)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(json.dumps(results))
        """,
    )
    for number in range(4):
        assert 0 <= seen[str(number)] - (number + 1) * 100_000 <= 20_000, seen


def test_jobs_in_asyncio_tasks_have_separate_accounts_that_include_their_subtasks(tmp_path: Path) -> None:
    seen = run(
        tmp_path,
        """
        import asyncio
        tracer = leaks.JobTracer()
        results = {}
        slots = [[None] * 8 for _ in range(4)]
        async def piece(number, index):
            await asyncio.sleep(0)
            slots[number][index] = bytearray(100_000)
            await asyncio.sleep(0)
        async def work(number):
            with tracer.job(str(number)) as job:
                for index in range(number):
                    await piece(number, index)
                # Tasks that a job starts belong to it.
                await asyncio.gather(*[asyncio.create_task(piece(number, number + index)) for index in range(number)])
            results[number] = job.retained_bytes
        async def main():
            await asyncio.gather(*[work(number) for number in range(4)])
        asyncio.run(main())
        slots = [[None] * 8 for _ in range(4)]
        asyncio.run(main())
        print(json.dumps(results))
        """,
    )
    for number in range(4):
        assert 0 <= seen[str(number)] - 2 * number * 100_000 <= 10_000, seen


@pytest.mark.skipif(importlib.util.find_spec("greenlet") is None, reason="greenlet has no wheel for this interpreter")
def test_jobs_in_greenlets_have_separate_accounts(tmp_path: Path) -> None:
    seen = run(
        tmp_path,
        """
        from greenlet import greenlet, getcurrent
        tracer = leaks.JobTracer()
        results = {}
        slots = [[None] * 4 for _ in range(4)]
        main = getcurrent()
        def work(number):
            with tracer.job(str(number)) as job:
                for index in range(number):
                    main.switch()
                    slots[number][index] = bytearray(100_000)
                    main.switch()
            results[number] = job.retained_bytes
        for turn in range(2):
            slots = [[None] * 4 for _ in range(4)]
            running = [greenlet(work) for _ in range(4)]
            for number, each in enumerate(running):
                each.switch(number)
            while any(not each.dead for each in running):
                for each in running:
                    if not each.dead:
                        each.switch()
        print(json.dumps(results))
        """,
    )
    for number in range(4):
        assert 0 <= seen[str(number)] - number * 100_000 <= 5_000, seen


@pytest.mark.parametrize(
    ("container", "add"),
    [
        ("list", "shared.append(None)"),
        ("dict", "shared[numbers[len(shared)]] = None"),
        ("set", "shared.add(numbers[len(shared)])"),
        ("bytearray", "shared.extend(b'12345678')"),
    ],
)
def test_concurrent_jobs_that_extend_one_container_are_charged_for_their_own_growth(
    tmp_path: Path, container: str, add: str
) -> None:
    kept, quiet, grown = run(
        tmp_path,
        f"""
        import asyncio

        tracer = leaks.JobTracer()
        numbers = list(range(150_000))
        shared = None
        kept, quiet = [], []

        async def extends(n_entries):
            for _ in range(8):
                for _ in range(n_entries):
                    {add}
                await asyncio.sleep(0)

        async def traced(n_entries):
            with tracer.job("extends" if n_entries else "extends nothing") as job:
                await extends(n_entries)
            (kept if n_entries else quiet).append(job.retained_bytes)

        async def main():
            global shared
            with tracer.job("creates it"):
                shared = {container}()
                {add}
            before = sys.getsizeof(shared)
            # Each job at least doubles the container, so each must be charged for a part of it.
            await asyncio.gather(*(traced(200 * 4**number) for number in range(4)), traced(0), traced(0))
            return sys.getsizeof(shared) - before

        asyncio.run(main())
        kept.clear()
        quiet.clear()
        grown = asyncio.run(main())
        print(json.dumps([kept, quiet, grown]))
        """,
    )
    assert len(kept) == 4 and min(kept) > 0, "a job lost bytes because another extended the container"
    assert max(kept) < grown, "a job is charged for the whole container"
    assert 0 <= sum(kept) - grown <= 4 * TOLERANCE, "the jobs together are not charged for exactly its growth"
    assert max(map(abs, quiet)) <= TOLERANCE


@pytest.mark.once
def test_replacing_an_object_of_equal_size_retains_nothing(tmp_path: Path) -> None:
    seen = run(
        tmp_path,
        """
        tracer = leaks.JobTracer()
        cache = {}
        results = []
        def replace(number):
            cache[number % 2] = bytearray(100_000)
        for number in range(8):
            with tracer.job("replaces") as job:
                replace(number)
            results.append(job.retained_bytes)
        print(json.dumps(results))
        """,
    )
    assert all(number > 99_000 for number in seen[:2])
    assert [number for number in seen[2:] if abs(number) > TOLERANCE] == []


@pytest.mark.once
def test_memory_of_c_libraries_belongs_to_the_array_that_owns_it(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    kept, rows = run(
        tmp_path,
        """
        import numpy
        tracer = leaks.JobTracer()
        arrays = [None] * 4
        def keep(index):
            arrays[index] = numpy.zeros(100_000, dtype=numpy.float64)
        for index in range(4):
            with tracer.job("numpy") as job:
                keep(index)
        print(json.dumps([job.retained_bytes, [[row.name, row.bytes] for row in job.grown_types]]))
        """,
    )
    assert 0 <= kept - 800_000 <= TOLERANCE
    assert [row for row in rows if row[0] == "numpy.ndarray" and row[1] >= 800_000]


@pytest.mark.once
def test_decorator_and_before_after_calls_agree_with_the_with_block(tmp_path: Path) -> None:
    seen = run(
        tmp_path,
        """
        import asyncio
        jobs = []
        tracer = leaks.JobTracer(report=jobs.append)
        decorated = tracer.job("decorated")(keep_three)
        named = tracer.traced(keep_three)
        @tracer.traced
        async def asynchronous():
            keep_three()
        async def awaits():
            await asynchronous()
        for _ in range(2):
            decorated()
            named()
            asyncio.run(awaits())
            job = tracer.before("two calls", key="id-7")
            keep_three()
            tracer.after("id-7")
            job = tracer.before("here")
            keep_three()
            tracer.after()
        print(json.dumps([[job.name, job.retained_bytes] for job in jobs]))
        """,
    )
    assert [name for name, _ in seen] == ["decorated", "keep_three", "asynchronous", "two calls", "here"] * 2
    assert [row for row in seen[5:] if not 0 <= row[1] - THREE_BUFFERS <= 10 * TOLERANCE] == []


@pytest.mark.once
def test_max_memory_requests_a_stop_and_writes_a_report_of_the_growth(tmp_path: Path) -> None:
    before, n_jobs, path = run(
        tmp_path,
        """
        from heaptide import _native
        limit = _native.resident_bytes() / (1 << 20) + 30
        tracer = leaks.JobTracer(output_dir="grown", max_memory=limit)
        kept = []
        def grow():
            kept.append(b"x" * 5_000_000)
        before = tracer.should_stop
        while not tracer.should_stop and tracer.n_jobs < 100:
            with tracer.job("grows"):
                grow()
        print(json.dumps([before, tracer.n_jobs, tracer.stop_report]))
        """,
    )
    assert before is False
    assert 3 <= n_jobs <= 10
    text = Path(path).read_text()
    assert "bytes" in text and "grow" in text and "program.py" in text
    assert Path(path).parent == tmp_path / "grown"


RECORDED_AND_TRACED = """
        import heaptide

        def retained_by(work):
            with tracer.job("work") as job:
                work()
            return job.retained_bytes

        def recording(name):
            return heaptide.Tracker(name, **OPTIONS)

        seen = {}
        tracer = leaks.JobTracer()
        with recording("around.tide"):
            keep_three()
            retained_by(keep_nothing), retained_by(keep_three)
            seen["traced while recorded"] = [retained_by(keep_three), retained_by(keep_nothing)]
            tracer.close()
            keep_three()
            keep_nothing()
        tracer = leaks.JobTracer()
        retained_by(keep_nothing), retained_by(keep_three)
        with recording("within.tide"):
            seen["recorded while traced"] = [retained_by(keep_three), retained_by(keep_nothing)]
        seen["traced after the recording"] = [retained_by(keep_three), retained_by(keep_nothing)]
        overlapping = recording("overlapping.tide")
        overlapping.start()
        seen["recording outlives the tracer"] = [retained_by(keep_three), retained_by(keep_nothing)]
        tracer.close()
        keep_three()
        keep_nothing()
        overlapping.stop()
        print(json.dumps(seen))
"""


@pytest.mark.parametrize("options", [{"objects": True}, {}])
def test_jobs_can_be_traced_while_the_process_is_recorded(
    tmp_path: Path, stats: Callable[..., dict[str, Any]], options: dict[str, bool]
) -> None:
    seen = run(tmp_path, RECORDED_AND_TRACED.replace("OPTIONS", repr(options)))
    for moment, (kept, nothing) in seen.items():
        assert 0 <= kept - THREE_BUFFERS <= TOLERANCE, moment
        assert 0 <= nothing <= TOLERANCE, moment
    line = next(number for number, text in enumerate(HEAD.splitlines(), 1) if "KEPT[n_kept] =" in text)
    # No block is in a capture twice, and freed blocks are not live.
    for name, n_calls in (("around", 4), ("within", 1), ("overlapping", 2)):
        found = stats(tmp_path / f"{name}.tide")
        sites = [site["size"] for site in found["top_allocations_by_size"] if site["location"].endswith(f":{line}")]
        assert 0 <= sum(sites) - n_calls * THREE_BUFFERS <= 2 * TOLERANCE, name
        live = found["heaptide"]["processes"][0]["live_bytes"]
        assert 0 <= live - n_calls * THREE_BUFFERS <= 200 * TOLERANCE, name


@pytest.mark.once
def test_jobs_can_be_traced_while_the_process_is_sampled(tmp_path: Path, stats: Callable[..., dict[str, Any]]) -> None:
    seen = run(tmp_path, RECORDED_AND_TRACED.replace("OPTIONS", "{'sample': 50_000}"))
    for moment, (kept, nothing) in seen.items():
        assert 0 <= kept - THREE_BUFFERS <= TOLERANCE, moment
        assert 0 <= nothing <= TOLERANCE, moment
    assert stats(tmp_path / "around.tide")["total_bytes_allocated"] > 0


@pytest.mark.once
def test_forked_child_continues_with_separate_accounts(tmp_path: Path) -> None:
    child, parent = run(
        tmp_path,
        """
        import os
        tracer = leaks.JobTracer()
        def one():
            with tracer.job("forked") as job:
                keep_three()
            return job.retained_bytes
        one()
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.write(write_end, str(one()).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        print(json.dumps([int(os.read(read_end, 100)), one()]))
        """,
    )
    assert 0 <= child - THREE_BUFFERS <= TOLERANCE
    assert 0 <= parent - THREE_BUFFERS <= TOLERANCE


@pytest.mark.once
def test_fork_handlers_of_libraries_may_allocate(tmp_path: Path, extension: Callable[..., Path]) -> None:
    library = extension("recording/fork_handlers")
    status, parent = run(
        tmp_path,
        f"""
        import ctypes, os
        assert ctypes.CDLL({str(library)!r}).register_handlers() == 0
        tracer = leaks.JobTracer()
        def forks():
            keep_three()
            pid = os.fork()
            if pid == 0:
                keep_three()
                os._exit(7)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with tracer.job("forks"):
            forks()
        with tracer.job("forks") as job:
            status = forks()
        print(json.dumps([status, job.retained_bytes]))
        """,
    )
    assert status == 7
    assert 0 <= parent - THREE_BUFFERS <= 5 * TOLERANCE


@pytest.mark.once
def test_block_from_realloc_of_null_belongs_to_the_job(tmp_path: Path, extension: Callable[..., Path]) -> None:
    library = extension("recording/realloc_after_free")
    kept = run(
        tmp_path,
        f"""
        import ctypes
        library = ctypes.CDLL({str(library)!r})
        library.make.restype = library.free_and_realloc.restype = ctypes.c_void_p
        library.make.argtypes = [ctypes.c_size_t]
        library.free_and_realloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        old_blocks = [library.make(300_000) for _ in range(2)]
        tracer, new_blocks = leaks.JobTracer(), [None, None]
        for index in range(2):
            with tracer.job("realloc") as job:
                new_blocks[index] = library.free_and_realloc(old_blocks[index], 500_000)
        print(json.dumps(job.retained_bytes))
        """,
    )
    assert 0 <= kept - 500_000 <= TOLERANCE
