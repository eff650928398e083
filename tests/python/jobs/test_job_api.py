"""Tests of `heaptide.job` itself: outcomes, nesting, decorators, pickling, and its cost for the program."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

HEAD = """
import asyncio, inspect, json, os, pickle, sys, threading
import heaptide
from heaptide import jobs
shown = []
def show(*values):
    shown.append(list(values))
"""


def run(tmp_path: Path, program: str, **environment: str) -> list[Any]:
    """Run a program in another process and return the values that it passed to `show`."""
    script = tmp_path / "program.py"
    script.write_text(HEAD + textwrap.dedent(program) + "\nprint(json.dumps(shown))\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    result: list[Any] = json.loads(done.stdout)
    return result


def test_outcome_duration_and_error_are_known_after_the_job(tmp_path: Path) -> None:
    shown = run(
        tmp_path,
        """
        job = heaptide.job("import", key=7, queue="mail")
        show(job.outcome, job.number, job.key, job.labels, job.seconds)
        with job as entered:
            show(entered is job, job.outcome, job.number, jobs.current() is job)
        show(job.outcome, job.error, job.seconds >= 0, jobs.current())
        try:
            with heaptide.job("fails") as failed:
                raise LookupError("no")
        except LookupError:
            pass
        show(failed.outcome, failed.error, failed.number)
        for outcome in jobs.OUTCOMES:
            job = heaptide.job("x").begin()
            job.end(outcome)
            show(job.outcome)
        try:
            job.end("lost")
        except ValueError as error:
            show(str(error).startswith("outcome must be one of ok"))
        """,
    )
    assert shown[0] == ["running", 0, "7", {"queue": "mail"}, None]
    assert shown[1] == [True, "running", 1, True]
    assert shown[2] == ["ok", None, True, None]
    assert shown[3] == ["failed", "LookupError", 2]
    assert [row[0] for row in shown[4:11]] == ["ok", "failed", "skipped", "deferred", "retried", "killed", "running"]
    assert shown[11] == [True]


def test_jobs_nest_and_the_outer_one_continues(tmp_path: Path) -> None:
    shown = run(
        tmp_path,
        """
        with heaptide.job("outer") as outer:
            with heaptide.job("inner") as inner:
                show(jobs.current().name)
            show(jobs.current().name)
            thread = threading.Thread(target=lambda: show(jobs.current().name))
            thread.start(); thread.join()
        show(jobs.current())
        late = threading.Event()
        with heaptide.job("short"):
            thread = threading.Thread(target=lambda: (late.wait(), show(jobs.current())))
            thread.start()
        late.set(); thread.join()
        """,
    )
    assert shown == [["inner"], ["outer"], ["outer"], [None], [None]]


def test_decorated_functions_keep_their_type_name_and_signature(tmp_path: Path) -> None:
    shown = run(
        tmp_path,
        """
        @heaptide.job("plain")
        def plain(a, b=2): "doc"; show(jobs.current().name, a, b)
        @heaptide.job("async")
        async def later(a):
            await asyncio.sleep(0)
            show(jobs.current().name, a)
        @heaptide.job("generator")
        def steps(n):
            show(jobs.current().name)
            received = yield 1
            show(received, jobs.current().name)
            return "end"
        @heaptide.job("async generator")
        async def async_steps():
            show(jobs.current().name)
            yield 1
            yield 2
        class Worker:
            @heaptide.job("work")
            def work(self): show(jobs.current().name)
        plain(1)
        asyncio.run(later(3))
        made = steps(1)
        show(next(made), jobs.current())
        try:
            made.send("sent")
        except StopIteration as stop:
            show(stop.value)
        async def consume():
            show([value async for value in async_steps()], jobs.current())
        asyncio.run(consume())
        Worker().work()
        show(plain.__name__, plain.__doc__, str(inspect.signature(plain)), inspect.iscoroutinefunction(later),
             inspect.isgeneratorfunction(steps), inspect.isasyncgenfunction(async_steps))
        """,
    )
    assert shown == [
        ["plain", 1, 2],
        ["async", 3],
        ["generator"],
        [1, None],
        ["sent", "generator"],
        ["end"],
        ["async generator"],
        [[1, 2], None],
        ["work"],
        ["plain", "doc", "(a, b=2)", True, True, True],
    ]


def test_decorator_without_a_name_is_refused_at_the_first_call(tmp_path: Path) -> None:
    shown = run(
        tmp_path,
        """
        @heaptide.job
        def work(n):
            return n
        try:
            work(3)
        except TypeError as error:
            show(str(error))
        """,
    )
    assert shown == [['heaptide.job needs a name: write @heaptide.job("work") above work']]


def test_generator_that_is_closed_or_fails_ends_its_job(tmp_path: Path) -> None:
    shown = run(
        tmp_path,
        """
        begun = []
        @heaptide.job("steps")
        def steps():
            begun.append(jobs.current())
            try:
                yield 1
            except KeyError:
                raise ValueError
            return "result"
        def delegate():
            return (yield from steps())
        made = steps(); next(made); made.close()
        made = steps(); next(made)
        try:
            made.throw(KeyError())
        except ValueError:
            pass
        made = steps(); next(made); del made
        made = delegate(); next(made)
        try:
            next(made)
        except StopIteration as stop:
            show(stop.value)
        show([job.outcome for job in begun])
        """,
    )
    assert shown == [["result"], [["ok", "failed", "ok", "ok"]]]


def test_generator_that_its_own_body_refers_to_is_collected(tmp_path: Path) -> None:
    shown = run(
        tmp_path,
        """
        import gc
        begun = []
        class Owner:
            pass
        @heaptide.job("steps")
        def steps(owner):
            begun.append(jobs.current())
            yield owner
        owner = Owner()
        owner.steps = steps(owner)
        next(owner.steps)
        del owner
        gc.collect()
        show([job.outcome for job in begun])
        """,
    )
    assert shown == [[["ok"]]]


def test_labels_of_a_decorated_call_are_its_own(tmp_path: Path) -> None:
    shown = run(
        tmp_path,
        """
        mark = heaptide.job("work", queue="mail")
        @mark
        def work():
            job = jobs.current()
            job.labels["size"] = "large"
            return job
        show(work().labels, mark.labels)
        """,
    )
    assert shown == [[{"queue": "mail", "size": "large"}, {"queue": "mail"}]]


def test_jobs_and_decorated_functions_can_be_pickled(tmp_path: Path) -> None:
    shown = run(
        tmp_path,
        """
        import multiprocessing
        with heaptide.job("import", key="a", queue="mail") as job:
            pass
        copy = pickle.loads(pickle.dumps(job))
        show(copy.name, copy.key, copy.labels, copy.outcome, copy.number, copy.seconds == job.seconds)
        running = heaptide.job("running").begin()
        copy = pickle.loads(pickle.dumps(running))
        show(copy.outcome, copy.is_running)
        copy.end()
        show(running.is_running, running.outcome)
        running.end()
        @heaptide.job("task")
        def task(number): return number * 2
        with multiprocessing.get_context("fork").Pool(1) as pool:
            show(pool.map(task, [1, 2]))
        """,
    )
    assert shown[0] == ["import", "a", {"queue": "mail"}, "ok", 1, True]
    assert shown[1] == ["running", False]
    assert shown[2] == [True, "running"]
    assert shown[3] == [[2, 4]]


def test_job_that_begins_twice_prints_one_line_and_the_program_continues(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import heaptide\njob = heaptide.job('twice').begin()\njob.begin()\njob.end()\njob.end()\nprint(job.outcome)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert done.stdout == "ok\n"
    assert done.stderr.count("\n") == 1
    assert "has begun already" in done.stderr


@pytest.mark.once
@pytest.mark.parametrize(
    "mark",
    [
        "with heaptide.job('work', key='a', queue='mail'): pass",
        "heaptide.job('work', key='a', queue='mail').begin().end()",
        "list(steps())",
    ],
    ids=["block", "calls", "generator"],
)
def test_job_without_a_recording_makes_no_system_call(tmp_path: Path, mark: str) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import os, heaptide\n"
        "@heaptide.job('work', key='a', queue='mail')\n"
        "def steps(): yield 1\n"
        "def some(n):\n"
        "    for _ in range(n):\n"
        f"        {mark}\n"
        "some(100)\n"
        "os.write(1, b'begin')\n"
        "some(100)\n"
        "os.write(1, b'end')\n"
    )
    done = subprocess.run(["strace", "-f", sys.executable, script], capture_output=True, text=True, check=True)
    between = done.stderr.partition('write(1, "begin"')[2].partition('write(1, "end"')[0]
    assert between.splitlines()[1:] == []


@pytest.mark.once
def test_modules_of_heaptide_are_not_memory_of_the_program(heaptide_run: Any, parse: Any, stats: Any) -> None:
    program = "import heaptide\nwith heaptide.job('first'):\n    kept = bytearray(100_000)\n"
    lines = parse(heaptide_run(program).capture)
    assert [line for line in lines if "heaptide/jobs" in line or "heaptide/leaks" in line] == []
    # The import also extends tables of the interpreter, which count as the program's. The modules take 300 kB.
    assert stats(heaptide_run(program, "--objects").capture)["total_bytes_allocated"] < 200_000


@pytest.mark.once
def test_secrets_in_keys_and_labels_are_not_recorded(heaptide_run: Any, parse: Any) -> None:
    capture = heaptide_run(
        """
        import heaptide
        with heaptide.job("login", key="user-7", password="hunter2", queue="mail"):
            pass
        with heaptide.job("login", key="password-hunter3", queue="mail"):
            pass
        """,
        env={"HEAPTIDE_REDACT": "*password*"},
    ).capture
    lines = parse(capture)
    assert [line for line in lines if "hunter" in line] == []
    labelled, keyed = [line for line in lines if line.startswith("JOB ")]
    assert "key=user-7" in labelled and "password=<redacted>" in labelled and "queue=mail" in labelled
    assert "key=<redacted>" in keyed and "queue=mail" in keyed
