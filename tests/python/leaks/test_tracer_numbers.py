"""Tests the peak, times and dictionary of traced jobs, and jobs that are measured again or run in other threads."""

from __future__ import annotations

from pathlib import Path

from support.job_program import run

# From Python 3.15 on, a bytearray keeps its data in a bytes object.
HOLDS_BYTES = ("bytearray", "bytes")
KEPT = 300_000
TEMPORARY = 5_000_000
TOLERANCE = 20_000

WORK = """
def work():
    keep_three()
    temporary = bytearray(5_000_000)
    return None
"""


def test_peak_is_the_jobs_own_high_water_mark_in_threads_tasks_and_next_to_other_work(tmp_path: Path) -> None:
    numbers = run(
        tmp_path,
        WORK
        + """
import asyncio, threading
tracer = leaks.JobTracer()
jobs = []
def traced():
    with tracer.job("work") as job:
        work()
    jobs.append(job)
traced()
big = bytearray(20_000_000)
threads = [threading.Thread(target=traced) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
async def task():
    with tracer.job("task") as job:
        await asyncio.sleep(0)
        work()
    jobs.append(job)
async def tasks():
    await asyncio.gather(*[task() for _ in range(3)])
asyncio.run(tasks())
print(json.dumps([[job.peak_bytes, job.retained_bytes, job.allocated_bytes] for job in jobs]))
""",
    )
    assert len(numbers) == 7
    for peak, retained, allocated in numbers:
        assert 0 <= peak - KEPT - TEMPORARY <= 400_000
        assert retained <= peak <= allocated
        assert 0 <= retained - KEPT <= TOLERANCE


def test_job_has_times_and_a_dictionary_that_json_can_hold(tmp_path: Path) -> None:
    before, after, job = run(
        tmp_path,
        WORK
        + """
import time
tracer = leaks.JobTracer()
before = time.time()
job = tracer.before("work", key=("order", 1))
assert job.seconds is None
work()
tracer.after(("order", 1))
print(json.dumps([before, time.time(), job.as_dict()]))
""",
    )
    assert before <= job["started"] <= job["started"] + job["seconds"] <= after + 0.01
    assert [job["name"], job["key"], job["outcome"], job["failed"]] == ["work", "('order', 1)", "ok", False]
    assert job["retained_bytes"] == sum(site["bytes"] for site in job["sites"]) >= KEPT
    assert job["grown_types"][0]["name"] in HOLDS_BYTES
    assert job["sites"][0]["frames"][0]["function"] == "keep_three"


def test_settle_measures_a_job_again_after_its_engine_released_its_frames(tmp_path: Path) -> None:
    first, again, peaks, allocated = run(
        tmp_path,
        """
        tracer = leaks.JobTracer()
        def work():
            keep_three()
            temporary = bytearray(5_000_000)
            raise LookupError
        # An engine that calls its end hook while it handles the exception: the traceback holds the frame of `work`.
        job = tracer.before("work", key=1)
        try:
            work()
        except LookupError:
            tracer.after(1)
            first, peak, allocated = job.retained_bytes, job.peak_bytes, job.allocated_bytes
        again = job.settle().retained_bytes
        print(json.dumps([first, again, [peak, job.peak_bytes], [allocated, job.allocated_bytes]]))
        """,
    )
    assert first >= KEPT + TEMPORARY
    assert 0 <= again - KEPT <= TOLERANCE
    assert peaks[0] == peaks[1] and allocated[0] == allocated[1]


def test_job_started_by_a_hook_counts_the_thread_that_does_the_work(tmp_path: Path) -> None:
    of_worker, of_hook, later = run(
        tmp_path,
        WORK
        + """
import threading
tracer = leaks.JobTracer(collect=False)
go, done, again, end = (threading.Event() for _ in range(4))
def worker():
    go.wait(); work(); done.set()
    again.wait(); keep_three(); end.set()
thread = threading.Thread(target=worker)
thread.start()
job = tracer.before("work", key=1, thread=thread.ident)
own = bytearray(3_000_000)
go.set(); done.wait()
tracer.after(1)
with tracer.job("other") as other:
    again.set(); end.wait()
thread.join()
print(json.dumps([job.as_dict(), len(own), other.retained_bytes]))
""",
    )
    assert 0 <= of_worker["retained_bytes"] - KEPT <= 2 * TOLERANCE
    assert 0 <= of_worker["peak_bytes"] - KEPT - TEMPORARY <= 400_000
    assert of_hook == 3_000_000
    assert later < 100_000, "the thread's later work belongs to no job"


def test_job_that_leaks_nothing_reports_exactly_zero_with_its_times(tmp_path: Path) -> None:
    retained = run(
        tmp_path,
        """
        tracer = leaks.JobTracer()
        jobs = []
        def floats():
            return [number / 3 for number in range(1000)] and None
        for _ in range(4):
            with tracer.job("work") as job:
                floats()
            jobs.append(job)
        assert all(job.seconds >= 0 for job in jobs)
        print(json.dumps([job.retained_bytes for job in jobs]))
        """,
    )
    assert retained[1:] == [0, 0, 0]


def test_traced_jobs_write_records_with_their_exact_numbers(tmp_path: Path) -> None:
    run(
        tmp_path,
        WORK
        + f"""
import os
os.environ["HEAPTIDE_JOBS"] = {str(tmp_path / "jobs")!r}
tracer = leaks.JobTracer()
for _ in range(10):
    with tracer.job("work"):
        work()
try:
    with tracer.job("fails"):
        keep_three()
        raise ValueError
except ValueError:
    pass
tracer.close()
print("[]")
""",
    )
    from support.job_records import lines, rows

    found = rows(tmp_path / "jobs")
    work = found["work"]
    assert [work["runs"], work["ok"], work["verdict"]] == [10, 10, "leaks"]
    assert 0 <= work["retained_per_run"] - KEPT <= TOLERANCE
    assert 0 <= work["peak_p50"] - KEPT - TEMPORARY <= 400_000
    assert [work["peak_of"], work["retained_of"]] == ["job", "blocks"]
    assert work["site"].startswith("keep_three at ")
    fails = found["fails"]
    assert [fails["runs"], fails["failed"], fails["error"]] == [1, 1, "ValueError"]
    assert 0 <= fails["retained_per_run"] - KEPT <= TOLERANCE
    assert lines(tmp_path / "jobs")[-1]["types"][0]["name"] in HOLDS_BYTES
