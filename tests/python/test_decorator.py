"""The decorator: every kind of function keeps its behaviour and its looks, and each call leaves a capture and a report.

The rows are those of Flyte's checklist.
"""

from __future__ import annotations

import base64
import concurrent.futures
import inspect
import re
import sys
import textwrap
import zlib
from pathlib import Path

import heaptide as package
import pytest
from conftest import heaptide, python
from resident_curve import GROW_AND_SHRINK, shortest_time_of_three_readings
from waiting import wait_until

SIZE = 3_000_000 + sys.getsizeof(b"")


def run(folder: Path, program: str, check: bool = True, **env: str) -> tuple[list[Path], list[Path], str]:
    """Run a program that decorates. Returns the captures, the pages and what was said."""
    (folder / "program.py").write_text(textwrap.dedent(program))
    done = python("program.py", cwd=folder, check=check, **env)
    place = folder / "memray_bin"
    return sorted(place.glob("*.bin")), sorted(place.glob("*.html")), done.stderr


def data(page: Path) -> str:
    """What a page shows, as JSON."""
    found = re.search(r'id="data">([^<]*)<', page.read_text())
    assert found is not None
    return zlib.decompress(base64.b64decode(found[1]), -zlib.MAX_WBITS).decode()


def n_blocks(capture: Path) -> int:
    return heaptide("parse", capture).stdout.count(f" size={SIZE} ")


@pytest.mark.once
def test_F1_seven_parameters_and_their_defaults() -> None:
    parameters = inspect.signature(package.memray_profiling).parameters.values()
    assert [(parameter.name, parameter.default) for parameter in parameters] == [
        ("task_function", None),
        ("native_traces", False),
        ("trace_python_allocators", False),
        ("follow_fork", False),
        ("memory_interval_ms", 10),
        ("memray_html_reporter", "flamegraph"),
        ("memray_reporter_args", None),
    ]


@pytest.mark.once
@pytest.mark.parametrize(
    "decorate", [package.memray_profiling, package.memray_profiling(), package.profile_memory(sample=True)]
)
def test_F1_a_decorated_function_looks_as_before(decorate: object) -> None:
    def load(path: str, *, deep: bool = False) -> list[int]:
        """Load it."""
        return []

    load.team = "data"  # type: ignore[attr-defined]
    decorated = decorate(load)  # type: ignore[operator]
    assert inspect.signature(decorated) == inspect.signature(load)
    assert (decorated.__name__, decorated.__doc__, decorated.__module__) == ("load", "Load it.", __name__)
    assert decorated.__annotations__ == load.__annotations__ and decorated.team == "data"
    assert decorated.__wrapped__ is load


@pytest.mark.once
def test_F2_wrong_reporters_and_options_are_refused_when_decorating() -> None:
    for reporter in ("flame", "tree", "Table", ""):
        with pytest.raises(ValueError, match="no reporter"):
            package.memray_profiling(memray_html_reporter=reporter)
    for options in (
        ["--leeks"],
        ["x--y"],
        ["leaks"],
        [5],
        "--leaks",
        ["-o", "elsewhere"],
        ["--help"],
        ["--leaks", "5"],
    ):
        with pytest.raises(ValueError):
            package.memray_profiling(memray_reporter_args=options)
    for options in (None, [], ["--leaks"], ["-f", "--leaks"], ["--no-source"]):
        for reporter in ("flamegraph", "table"):
            package.memray_profiling(memray_html_reporter=reporter, memray_reporter_args=options)
    for interval in (0, -5):
        with pytest.raises(ValueError, match="interval_ms"):
            package.memray_profiling(memory_interval_ms=interval)


@pytest.mark.once
def test_F3_capture_and_page_have_their_documented_names(tmp_path: Path) -> None:
    captures, pages, said = run(
        tmp_path,
        """
        from heaptide import memray_profiling

        @memray_profiling(memray_html_reporter="table", memray_reporter_args=["--leaks"])
        def my_task(n):
            return bytes(n)

        assert len(my_task(n=3_000_000)) == 3_000_000
        """,
    )
    (capture,), (page,) = captures, pages
    stamp = re.fullmatch(r"my_task\.(\d{14})\.bin", capture.name)
    assert stamp and page.name == f"table.my_task.{stamp[1]}.html" and said == ""
    assert n_blocks(capture) == 1
    assert page.read_text().startswith("<!") and "my_task" in data(page)


@pytest.mark.once
def test_F3_report_goes_to_the_sink_that_was_set(tmp_path: Path) -> None:
    _, pages, _ = run(
        tmp_path,
        """
        import heaptide
        from heaptide import reports

        decks = []
        assert reports.set_sink(decks.append) is reports.to_file

        @heaptide.memray_profiling
        def task(): pass

        @heaptide.profile_memory(reporter="table", sink=lambda report: own.append(report))
        def other(): pass

        own = []
        task(), other()
        (deck,), (table,) = decks, own
        assert (deck.title, deck.function, deck.error) == ("Memray Flamegraph", "task", None)
        assert (table.title, table.function) == ("Memory Table", "other")
        assert deck.html().startswith("<!") and deck.html() == open(deck.path).read()
        """,
    )
    assert len(pages) == 2


@pytest.mark.once
def test_F5_exceptions_are_unchanged_and_the_report_is_made(tmp_path: Path) -> None:
    captures, pages, said = run(
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
    assert len(captures) == len(pages) == 2 and said == ""
    assert n_blocks(captures[0]) == 1


def test_F6_every_kind_of_function_is_recorded_to_its_end(tmp_path: Path) -> None:
    captures, pages, said = run(
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
    assert len(pages) == len(names) and said == ""
    assert {name: n_blocks(capture) for name, capture in names.items()} == {
        **dict.fromkeys(names, 1),
        "generator": 3,
        "async_generator": 2,
    }


@pytest.mark.once
def test_F6_calls_that_end_early_are_reported(tmp_path: Path) -> None:
    captures, pages, said = run(
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
    assert len(captures) == len(pages) == 3 and said == ""


@pytest.mark.once
def test_calls_within_each_other_and_at_the_same_time_share_a_recording(tmp_path: Path) -> None:
    captures, pages, said = run(
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
        for _ in range(3): inner()  # within one second, more or less
        assert not heaptide.active()
        """,
    )
    assert said == ""
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
def test_a_call_within_another_recording_is_reported_from_it(tmp_path: Path) -> None:
    captures, pages, said = run(
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
    assert len(captures) == len(pages) == 1 and said == ""
    assert n_blocks(captures[0]) == 1 and "task" in data(pages[0])


@pytest.mark.once
def test_F7_forked_children_are_merged_into_the_same_report(tmp_path: Path) -> None:
    _, pages, said = run(
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
    assert said == "" and len(list((tmp_path / "memray_bin").glob("*.bin.*"))) == 1
    assert "in_child" in data(pages[0])


@pytest.mark.once
def test_F9_interval_governs_the_resident_curve_and_leaks_the_first_view(tmp_path: Path) -> None:
    program = GROW_AND_SHRINK + textwrap.dedent("""
        import heaptide

        @heaptide.memray_profiling(memory_interval_ms=5, memray_reporter_args=["--leaks"], native_traces=True)
        def often(): grow_and_shrink()

        @heaptide.memray_profiling(memory_interval_ms=200, trace_python_allocators=True)
        def seldom(): grow_and_shrink()

        often()
        os.unlink("enough")
        seldom()
    """)

    def shortest_time(function: str) -> float:
        folder = tmp_path / "memray_bin"
        return min(map(shortest_time_of_three_readings, folder.glob(f"{function}.*.bin")), default=float("inf"))

    def end_after_three_readings(function: str, enough: float) -> None:
        try:
            wait_until(lambda: running.done() or shortest_time(function) < enough, f"three readings of {function}")
        finally:
            (tmp_path / "enough").touch()

    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(run, tmp_path, program)
        end_after_three_readings("often", 0.19)
        wait_until(lambda: running.done() or not (tmp_path / "enough").exists(), "the next function")
        end_after_three_readings("seldom", 60)
        captures, pages, said = running.result()
    often, seldom = (heaptide("parse", path).stdout.splitlines() for path in captures)
    # Times in the file are exact to a millisecond.
    assert shortest_time("often") < 0.19 and shortest_time("seldom") > 0.198
    assert " objects=true " in seldom[0] and " objects=false " in often[0]
    assert said.count("\n") == 1 and "C frames are not recorded yet" in said
    assert len(pages) == 2


@pytest.mark.once
def test_F10_failing_reporter_leaves_a_page_that_says_so_and_the_result_alone(tmp_path: Path) -> None:
    captures, pages, said = run(
        tmp_path,
        """
        import heaptide
        from heaptide import reports

        @heaptide.memray_profiling
        def task():
            reports._COMMAND = "import sys; sys.exit('the <reporter> is broken')"
            return 5

        assert task() == 5
        """,
    )
    assert len(captures) == len(pages) == 1
    assert "the &lt;reporter&gt; is broken" in pages[0].read_text() and captures[0].name in pages[0].read_text()
    assert said == "heaptide: task: no flamegraph could be made: the <reporter> is broken\n"


@pytest.mark.once
def test_F10_names_of_any_kind_are_safe_and_a_broken_folder_stops_nothing(tmp_path: Path) -> None:
    captures, pages, said = run(
        tmp_path,
        """
        import functools, heaptide

        def named(name):
            def function(): return name
            function.__name__ = name
            return heaptide.memray_profiling(function)

        for name in ("a", "bin", "../../up", "x/y", "-o", "naïve name"):
            assert named(name)() == name
        assert heaptide.memray_profiling(lambda: 3)() == 3
        assert heaptide.memray_profiling(functools.partial(int, "7"))() == 7
        open("file", "w").close()

        @heaptide.profile_memory(folder="file/sub")
        def task(): return 8

        assert task() == 8
        """,
    )
    assert len(captures) == len(pages) == 8
    assert {path.name.rpartition(".")[0].rpartition(".")[0] for path in captures} == {
        *("a", "bin", "_.._up", "x_y", "-o", "naïve_name", "_lambda_", "partial")
    }
    assert said.startswith("heaptide: task: ") and said.count("\n") == 1
    assert not list(tmp_path.parent.glob("up*"))


@pytest.mark.once
def test_rendering_leaves_the_event_loop_free(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import asyncio, os, heaptide
        from heaptide import reports

        # The report is not made before something else has run.
        wait = "import os, time; n = 0\\nwhile not os.path.exists('other ran') and n < 30000: time.sleep(0.01); n += 1\\n"
        reports._COMMAND = wait + reports._COMMAND
        done = []

        async def other():
            while not done:
                await asyncio.sleep(0)
            open("other ran", "w").close()

        @heaptide.memray_profiling
        async def task(): done.append(True)

        async def main():
            beside = asyncio.ensure_future(other())
            await asyncio.sleep(0)
            await task()
            assert os.path.exists("other ran"), "nothing else ran while the report was made"
            await beside

        asyncio.run(main())
        """,
    )


@pytest.mark.once
def test_kinds_of_functions_are_still_told_apart() -> None:
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
