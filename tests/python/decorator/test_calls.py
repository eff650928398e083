"""Tests that the decorator records each call of every type of function until the call ends, even if calls overlap."""

from __future__ import annotations

import inspect
from pathlib import Path

import heaptide as package
import pytest
from support.controlled_program import page_data
from support.decorated_program import n_blocks, run
from support.messages import one_sentence


@pytest.mark.once
def test_exceptions_are_unchanged_and_the_report_is_written(tmp_path: Path) -> None:
    captures, pages, stderr = run(
        tmp_path,
        """
        import asyncio, inspect, heaptide

        class Mine(Exception): pass

        mine = Mine("broken")

        @heaptide.memray_profiling
        def fails():
            held = bytes(3_000_000)
            raise mine

        @heaptide.memray_profiling
        async def fails_later():
            await asyncio.sleep(0)
            raise mine

        for call in (fails, lambda: asyncio.run(fails_later())):
            try:
                call()
            except Mine as error:
                assert error is mine and error.__context__ is None and error.__cause__ is None
            else:
                raise AssertionError("it did not raise")
        assert not heaptide.active()
        """,
    )
    assert len(captures) == len(pages) == 2 and stderr == ""
    assert n_blocks(captures[0]) == 1


def test_every_type_of_function_is_recorded_until_it_ends(tmp_path: Path) -> None:
    captures, pages, stderr = run(
        tmp_path,
        """
        import asyncio, inspect, heaptide

        @heaptide.memray_profiling
        async def coroutine(x):
            await asyncio.sleep(0)
            held = bytes(3_000_000)
            return x

        @heaptide.memray_profiling
        def generator(n):
            for i in range(n):
                try:
                    got = yield i
                except KeyError:
                    got = "thrown"
                held = bytes(3_000_000)
            return got

        @heaptide.memray_profiling
        async def async_generator(n):
            for i in range(n):
                yield i
                held = bytes(3_000_000)

        class Job:
            @heaptide.memray_profiling
            def method(self, x): held = bytes(3_000_000); return self, x
            @heaptide.memray_profiling
            @classmethod
            def of_class(cls): held = bytes(3_000_000); return cls
            @staticmethod
            @heaptide.memray_profiling
            def of_none(): held = bytes(3_000_000); return 4

        async def main():
            assert await coroutine(5) == 5
            assert [item async for item in async_generator(2)] == [0, 1]

        asyncio.run(main())
        assert inspect.iscoroutinefunction(coroutine)
        steps = generator(3)
        assert not heaptide.active() and next(steps) == 0 and heaptide.active()
        assert steps.send("x") == 1 and steps.throw(KeyError()) == 2
        try:
            steps.send("last")
        except StopIteration as stop:
            assert stop.value == "last"
        assert not heaptide.active()
        job = Job()
        assert job.method(3) == (job, 3) and Job.of_class() is Job and job.of_none() == 4
        """,
    )
    names = {capture.name.partition(".")[0]: capture for capture in captures}
    assert set(names) == {"coroutine", "generator", "async_generator", "method", "of_class", "of_none"}
    assert len(pages) == len(names) and stderr == ""
    assert {name: n_blocks(capture) for name, capture in names.items()} == {
        **dict.fromkeys(names, 1),
        "generator": 3,
        "async_generator": 2,
    }


@pytest.mark.once
def test_calls_that_end_early_are_reported(tmp_path: Path) -> None:
    captures, pages, stderr = run(
        tmp_path,
        """
        import asyncio, inspect, heaptide

        @heaptide.memray_profiling
        def closed():
            yield 1
            yield 2

        @heaptide.memray_profiling
        async def cancelled(begun):
            begun.set()
            await asyncio.Event().wait()

        @heaptide.memray_profiling
        async def closed_async():
            yield 1

        async def main():
            begun = asyncio.Event()
            task = asyncio.ensure_future(cancelled(begun))
            await begun.wait()
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                pass
            assert not heaptide.active()
            items = closed_async()
            await items.__anext__()
            await items.aclose()
            assert not heaptide.active()

        for _ in closed(): break
        assert not heaptide.active()
        asyncio.run(main())
        """,
    )
    assert len(captures) == len(pages) == 3 and stderr == ""


@pytest.mark.once
def test_nested_and_concurrent_calls_share_a_recording(tmp_path: Path) -> None:
    captures, pages, stderr = run(
        tmp_path,
        """
        import threading, heaptide

        @heaptide.memray_profiling
        def depth(n):
            held = bytes(3_000_000)
            return depth(n - 1) + 1 if n else 1

        @heaptide.memray_profiling
        def tree(n):
            yield n
            if n: yield from tree(n - 1)

        @heaptide.memray_profiling
        def outer(): return inner()

        @heaptide.memray_profiling
        def inner(): return bytes(3_000_000)

        barrier = threading.Barrier(3)

        @heaptide.memray_profiling
        def together():
            barrier.wait()
            held = bytes(3_000_000)
            barrier.wait()

        assert depth(3) == 4
        assert list(tree(3)) == [3, 2, 1, 0]
        outer()
        threads = [threading.Thread(target=together) for _ in range(3)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        for _ in range(3): inner()  # usually within one second, so that file names could collide
        assert not heaptide.active()
        """,
    )
    assert stderr == ""
    count = dict.fromkeys(("depth", "tree", "outer", "inner", "together"), 0)
    for capture in captures:
        count[capture.name.partition(".")[0]] += 1
    assert count == {"depth": 1, "tree": 1, "outer": 1, "inner": 4, "together": 3}
    assert len(pages) == len(captures)
    blocks = {capture: n_blocks(capture) for capture in captures}
    assert [blocks[capture] for capture in captures if capture.name.startswith("depth")] == [4]
    assert [blocks[capture] for capture in captures if capture.name.startswith("together")] == [3, 3, 3]
    assert [blocks[capture] for capture in captures if capture.name.startswith(("inner", "outer"))] == [1] * 5


@pytest.mark.once
def test_call_within_another_recording_is_reported_from_that_recording(tmp_path: Path) -> None:
    captures, pages, stderr = run(
        tmp_path,
        """
        import heaptide

        @heaptide.profile_memory
        def task(): return bytes(3_000_000)

        with heaptide.Tracker("outer.tide"):
            task()
            assert heaptide.active()
        """,
    )
    assert len(captures) == len(pages) == 1 and one_sentence(stderr).startswith("task: wrote ")
    assert n_blocks(captures[0]) == 1 and "task" in page_data(pages[0].read_text())


@pytest.mark.once
def test_forked_children_are_part_of_the_same_report(tmp_path: Path) -> None:
    _, pages, stderr = run(
        tmp_path,
        """
        import multiprocessing, heaptide

        def in_child():
            held = bytes(3_000_000)

        @heaptide.memray_profiling(follow_fork=True)
        def task():
            child = multiprocessing.get_context("fork").Process(target=in_child)
            child.start()
            child.join()

        task()
        """,
    )
    assert stderr == "" and len(list((tmp_path / "memray_bin").glob("*.bin.*"))) == 1
    assert "in_child" in page_data(pages[0].read_text())


@pytest.mark.once
def test_rendering_does_not_block_the_event_loop(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import asyncio, os, heaptide
        from heaptide import command_process

        # The report waits until another task has run.
        wait = "import os, time; n = 0\\nwhile not os.path.exists('other ran') and n < 30000: time.sleep(0.01); n += 1\\n"
        command_process._CODE = wait + command_process._CODE
        done = []

        async def other():
            while not done:
                await asyncio.sleep(0)
            open("other ran", "w").close()

        @heaptide.memray_profiling
        async def task(): done.append(True)

        async def main():
            concurrent = asyncio.ensure_future(other())
            await asyncio.sleep(0)
            await task()
            assert os.path.exists("other ran"), "no other task ran while the report was written"
            await concurrent

        asyncio.run(main())
        """,
    )


@pytest.mark.once
def test_inspect_still_recognizes_the_type_of_a_decorated_function() -> None:
    @package.profile_memory
    async def coroutine() -> None: ...

    @package.profile_memory
    def generator() -> object:
        yield 1

    @package.profile_memory
    async def async_generator() -> object:
        yield 1

    assert inspect.iscoroutinefunction(coroutine)
    assert inspect.isgeneratorfunction(generator) and inspect.isasyncgenfunction(async_generator)
    with pytest.raises(TypeError):
        package.profile_memory(5)  # type: ignore[call-overload]
