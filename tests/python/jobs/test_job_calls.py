"""Tests of calls of decorated functions: what reaches the body, and the `Job` that is made only when it is needed."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

HEAD = """
import asyncio, gc, json, sys
import heaptide
from heaptide import jobs
begun, shown = [], []
def show(*values):
    shown.append(list(values))
def name():
    return jobs.current() and jobs.current().name
"""


def run(tmp_path: Path, program: str) -> list[Any]:
    """Run a program in another process and return the values that it passed to `show`."""
    script = tmp_path / "program.py"
    script.write_text(HEAD + textwrap.dedent(program) + "\nprint(json.dumps(shown))\n")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    result: list[Any] = json.loads(done.stdout)
    return result


def test_values_and_exceptions_reach_the_body_of_an_async_generator(tmp_path: Path) -> None:
    shown = run(
        tmp_path,
        """
        @heaptide.job("steps")
        async def steps(first):
            begun.append(jobs.current())
            show("first", first, name())
            await asyncio.sleep(0)
            show("sent", (yield 1), name())
            show("sent", (yield (2, 3)), name())
            try:
                yield 4
            except KeyError as error:
                await asyncio.sleep(0)
                show("caught", repr(error), name())
            yield 5
        async def consume():
            made = steps("a")
            show(await made.asend(None), name())
            show(await made.asend("b"), name())
            show(await made.asend(None), name())
            show(await made.athrow(KeyError("c")), name())
            show([value async for value in made], begun[0].outcome)
        asyncio.run(consume())
        """,
    )
    assert shown == [
        ["first", "a", "steps"],
        [1, None],
        ["sent", "b", "steps"],
        [[2, 3], None],
        ["sent", None, "steps"],
        [4, None],
        ["caught", "KeyError('c')", "steps"],
        [5, None],
        [[], "ok"],
    ]


def test_async_generator_that_is_closed_or_fails_ends_its_job(tmp_path: Path) -> None:
    shown = run(
        tmp_path,
        """
        @heaptide.job("steps")
        async def steps(*, n=2):
            begun.append(jobs.current())
            try:
                for value in range(n):
                    yield value
                    await asyncio.sleep(0)
            except KeyError:
                raise ValueError("body")
            except GeneratorExit:
                await asyncio.sleep(0)
                show("closed", name())
                raise
            except asyncio.CancelledError:
                show("cancelled", name())
                raise
            finally:
                show("ended", name())
        async def consume():
            made = steps(); await made.__anext__(); await made.aclose()
            made = steps(); await made.__anext__()
            try:
                await made.athrow(KeyError)
            except ValueError as error:
                show(str(error), name())
            try:
                async for _ in steps(): raise LookupError
            except LookupError:
                pass
            gc.collect()
            await asyncio.sleep(0); await asyncio.sleep(0); await asyncio.sleep(0)
            async def wait():
                async for _ in steps(n=10**9): pass
            task = asyncio.create_task(wait())
            await asyncio.sleep(0); await asyncio.sleep(0)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                pass
            try:
                async for _ in steps(1): pass
            except TypeError as error:
                show("takes 0 positional arguments" in str(error), name())
            show([(job.outcome, job.error) for job in begun], name())
        asyncio.run(consume())
        """,
    )
    assert shown == [
        ["closed", "steps"],
        ["ended", "steps"],
        ["ended", "steps"],
        ["body", None],
        ["closed", "steps"],
        ["ended", "steps"],
        ["cancelled", "steps"],
        ["ended", "steps"],
        [True, None],
        [[["ok", None], ["failed", "ValueError"], ["ok", None], ["failed", "CancelledError"]], None],
    ]


def test_async_generator_that_its_own_body_refers_to_is_collected(tmp_path: Path) -> None:
    shown = run(
        tmp_path,
        """
        @heaptide.job("steps")
        async def steps(owner):
            begun.append(jobs.current())
            yield owner
        class Owner:
            pass
        owner = Owner()
        owner.steps = steps(owner)
        try:
            owner.steps.asend(None).send(None)
        except StopIteration:
            pass
        del owner
        gc.collect()
        show([job.outcome for job in begun])
        """,
    )
    assert shown == [[["ok"]]]


PROTOCOL = """
import contextlib, inspect, weakref
async def plain(n):
    try:
        for value in range(n):
            await asyncio.sleep(0)
            show("sent", (yield value), name())
    finally:
        show("finally", name())
async def tried(what):
    try:
        show("result", repr(await what))
    except BaseException as error:
        show(type(error).__name__, str(error))
async def use(function):
    show(inspect.isasyncgenfunction(function), inspect.isasyncgen(function(1)), function(1).ag_frame is not None)
    show(function(1).__name__, function.__name__)
    for first in ("asend", "athrow", "aclose"):
        made = function(2)
        await tried(getattr(made, first)(*{"asend": (5,), "athrow": (KeyError("a"),), "aclose": ()}[first]))
        await tried(made.__anext__())
        await made.aclose()
    made = function(2)
    one = asyncio.ensure_future(tried(made.__anext__())); other = asyncio.ensure_future(tried(made.__anext__()))
    await one; await other
    step = made.__anext__()
    await tried(step); await tried(step)
    await tried(made.asend(None)); await tried(made.__anext__()); await tried(made.athrow(KeyError("b")))
    await tried(made.aclose()); await tried(made.asend(1))
    made = function(3)
    await tried(made.__anext__())
    with contextlib.suppress(RuntimeError, StopAsyncIteration):
        waiting = made.__anext__(); waiting.send(None); waiting.close()
    async with contextlib.aclosing(function(2)) as made:
        await tried(made.__anext__())
    dropped = function(2)
    await tried(dropped.__anext__())
    gone = weakref.ref(dropped)
    del dropped; gc.collect()
    show(gone() is None)
    for _ in range(5): await asyncio.sleep(0)
    async for value in function(2): show("loop", value)
"""


def test_decorated_async_generator_answers_like_an_undecorated_one(tmp_path: Path) -> None:
    plain = run(tmp_path, PROTOCOL + "asyncio.run(use(plain))")
    marked = run(tmp_path, PROTOCOL + "asyncio.run(use(heaptide.job('steps')(plain)))")
    # The body knows its job; apart from that, all results, exceptions and their order are the same.
    without_job = [[None if value == "steps" else value for value in values] for values in marked]
    assert without_job == plain
    assert ["sent", None, "steps"] in marked and ["finally", "steps"] in marked
    assert ["finally", None] not in marked[: marked.index(["loop", 0])]


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="in 3.10 asyncio closes the decorated generator and its body at the same time"
)
def test_async_generator_that_never_ends_is_closed_with_its_loop(tmp_path: Path) -> None:
    shown = run(
        tmp_path,
        """
        @heaptide.job("steps")
        async def steps():
            begun.append(jobs.current())
            try:
                yield 1
            finally:
                await asyncio.sleep(0)
                show("finally")
        async def use():
            made.append(steps())
            await made[0].__anext__()
        made = []
        asyncio.run(use())
        made.clear()
        show(begun[0].outcome)
        """,
    )
    assert shown == [["finally"], ["ok"]]


CALLS = """
@heaptide.job("call", key="a", queue="mail")
def function():
    body()
@heaptide.job("call", key="a", queue="mail")
async def async_function():
    body()
@heaptide.job("call", key="a", queue="mail")
def generator():
    body()
    yield
@heaptide.job("call", key="a", queue="mail")
async def async_generator():
    body()
    yield
async def consume():
    async for _ in async_generator(): pass
def call():
    form = sys.argv[1] if sys.argv[1:] else FORM
    if form == "function": function()
    elif form == "async function": asyncio.run(async_function())
    elif form == "generator": list(generator())
    else: asyncio.run(consume())
"""
FORMS = ["function", "async function", "generator", "async generator"]


@pytest.mark.parametrize("form", FORMS)
def test_current_job_of_a_call_is_one_object_with_its_outcome(tmp_path: Path, form: str) -> None:
    shown = run(
        tmp_path,
        f"FORM = {form!r}\n{CALLS}"
        + textwrap.dedent(
            """
            def body():
                job = jobs.current()
                begun.append(job)
                show(job is jobs.current(), job.is_running, job.number, job.key, job.labels, job.started > 0)
            with heaptide.job("outer"):
                call()
                show(name())
            show(begun[0].outcome, begun[0].is_running, begun[0].seconds >= 0)
            def body():
                begun.append(jobs.current())
                raise KeyError
            try:
                call()
            except KeyError:
                show(begun[1].outcome, begun[1].error, begun[1].number, name())
            def body():
                with heaptide.job("inner"):
                    show(name())
                jobs.current().end("skipped")
                begun.append(name())
            call()
            show(begun[2])
            """
        ),
    )
    assert shown == [
        [True, True, 2, "a", {"queue": "mail"}, True],
        ["outer"],
        ["ok", False, True],
        ["failed", "KeyError", 3, None],
        ["inner"],
        [None],
    ]


@pytest.mark.parametrize("form", FORMS)
def test_recording_that_starts_during_a_call_contains_its_job(tmp_path: Path, form: str, parse: Any) -> None:
    capture = tmp_path / "late.tide"
    run(
        tmp_path,
        f"FORM = {form!r}\n{CALLS}"
        + textwrap.dedent(
            f"""
            def body():
                with heaptide.Tracker({str(capture)!r}):
                    kept.append(bytearray(100_000))
            kept = []
            call()
            """
        ),
    )
    (line,) = [line for line in parse(capture) if line.startswith("JOB ")]
    assert "call" in line and "key=a" in line and "queue=mail" in line


@pytest.mark.skipif(sys.version_info < (3, 11), reason="3.10 makes a coroutine at any call of such a function")
def test_missing_arguments_of_an_async_function_fail_at_the_call(tmp_path: Path) -> None:
    # uvicorn calls an application without arguments: if this fails with TypeError, the application is not a factory.
    shown = run(
        tmp_path,
        """
        import inspect
        async def plain(scope, receive=None, *, send):
            return scope, send
        decorated = heaptide.job("request")(plain)
        for function in (plain, decorated):
            try:
                function()
            except TypeError as error:
                show(str(error))
            show(inspect.iscoroutinefunction(function))
            coroutine = function("http", send=3)
            show(asyncio.iscoroutine(coroutine), coroutine.__qualname__, asyncio.run(coroutine))
        """,
    )
    assert shown[:3] == shown[3:]
    assert "missing 1 required positional argument: 'scope'" in shown[0][0]
    assert shown[1:3] == [[True], [True, "plain", ["http", 3]]]


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="before 3.11 the steps run in a generator of Python, which an exception ends"
)
def test_async_generator_whose_first_step_is_interrupted_runs_its_next_steps_as_a_job(tmp_path: Path) -> None:
    shown = run(
        tmp_path,
        """
        @heaptide.job("steps")
        async def steps():
            yield name()
            yield name()
        prepare = jobs.Job._prepare
        def interrupt():
            jobs.Job._prepare = staticmethod(prepare)
            raise KeyboardInterrupt
        with heaptide.job("before"): pass
        made = steps()
        # After an import, the next job prepares the process again.
        sys.modules["imported"] = sys
        jobs.Job._prepare = staticmethod(interrupt)
        try:
            made.__anext__().send(None)
        except KeyboardInterrupt:
            show("interrupted", name())
        async def consume():
            show([value async for value in made], name())
        asyncio.run(consume())
        """,
    )
    assert shown == [["interrupted", None], [["steps", "steps"], None]]
