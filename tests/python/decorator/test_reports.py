"""Tests the decorator's parameters, the names of its files, its report sinks, and how it handles failures."""

from __future__ import annotations

import concurrent.futures
import inspect
import re
import textwrap
from pathlib import Path

import heaptide as package
import pytest
from support.commands import heaptide
from support.controlled_program import page_data
from support.decorated_program import n_blocks, run
from support.messages import one_sentence
from support.resident_readings import GROW_AND_SHRINK, shortest_time_of_three_readings
from support.waiting import wait_until


@pytest.mark.once
def test_memray_profiling_has_seven_parameters_with_their_defaults() -> None:
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
def test_decorated_function_keeps_its_signature_and_attributes(decorate: object) -> None:
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
def test_wrong_reporters_and_options_are_refused_when_decorating() -> None:
    for reporter in ("flame", "tree", "Table", ""):
        with pytest.raises(ValueError, match="unknown reporter"):
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
def test_capture_and_page_have_their_documented_names(tmp_path: Path) -> None:
    captures, pages, stderr = run(
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
    assert stamp and page.name == f"table.my_task.{stamp[1]}.html" and stderr == ""
    assert n_blocks(capture) == 1
    assert page.read_text().startswith("<!") and "my_task" in page_data(page.read_text())


TWO_CALLS = """
import heaptide

@heaptide.profile_memory
def load(n):
    return bytes(n)

load(3_000_000), load(3_000_000)
"""


@pytest.mark.once
def test_first_report_of_a_process_is_announced_with_the_next_command(tmp_path: Path) -> None:
    captures, pages, stderr = run(tmp_path, TWO_CALLS)
    assert len(captures) == len(pages) == 2
    line = one_sentence(stderr)
    # The name of a second report in the same second is longer.
    capture, page = (min(files, key=lambda file: (len(file.name), file.name)) for files in (captures, pages))
    assert f"load: wrote memray_bin/{page.name}, " in line
    command = line.partition("next: heaptide ")[2].split(" (")[0]
    assert command == f"stats memray_bin/{capture.name}"
    assert "load:" in heaptide(*command.split(), cwd=tmp_path).stdout


@pytest.mark.once
def test_reports_are_not_announced_when_quiet_or_sent_to_a_sink(tmp_path: Path) -> None:
    assert run(tmp_path, TWO_CALLS, HEAPTIDE_QUIET="1")[2] == ""
    program = TWO_CALLS + "heaptide.reports.set_sink(lambda report: None)\nload(3_000_000)\n"
    program = program.replace("load(3_000_000), load(3_000_000)\n", "import heaptide.reports\n")
    captures, _, stderr = run(tmp_path, program)
    assert (len(captures), stderr) == (3, "")


@pytest.mark.once
def test_report_goes_to_the_configured_sink(tmp_path: Path) -> None:
    _, pages, _ = run(
        tmp_path,
        """
        import heaptide
        from heaptide import reports

        decks = []
        assert reports.set_sink(decks.append) is None

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
def test_previous_sink_restores_the_platforms_choice(tmp_path: Path) -> None:
    _, pages, _ = run(
        tmp_path,
        """
        import heaptide
        from heaptide import platforms, reports

        of_platform, first, second = [], [], []
        known = [*platforms.all_platforms(), platforms.Platform(report_sink=lambda: of_platform.append)]
        platforms.all_platforms = lambda: known

        @heaptide.memray_profiling
        def task(): pass

        task()
        before_first = reports.set_sink(first.append)
        before_second = reports.set_sink(second.append)
        task()
        assert reports.set_sink(before_second) == second.append
        task()
        assert reports.set_sink(before_first) == first.append
        task()
        assert (len(of_platform), len(first), len(second)) == (2, 1, 1)
        """,
    )
    assert len(pages) == 4


@pytest.mark.once
def test_async_sink_receives_reports_and_outcomes_of_plain_and_async_functions(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
        import asyncio, heaptide
        from heaptide import reports

        received = []

        async def sink(report):
            await asyncio.sleep(0)
            received.append((report.function, report.outcome, report.failure))
            frame = report.frame()
            assert frame.startswith("<iframe ") and 'sandbox="allow-scripts allow-downloads"' in frame

        reports.set_sink(sink)

        @heaptide.profile_memory
        def plain(): return 1

        @heaptide.profile_memory
        async def waiting(): raise KeyError("mine")

        @heaptide.profile_memory
        def generating():
            yield 1
            raise ValueError("also mine")

        assert plain() == 1
        try: asyncio.run(waiting())
        except KeyError as error: assert error.args == ("mine",) and error.__context__ is None
        try: list(generating())
        except ValueError: pass

        async def main():
            assert plain() == 1
            while len(received) < 4: await asyncio.sleep(0)

        asyncio.run(main())
        assert received == [
            ("plain", "ok", None),
            ("waiting", "failed", "KeyError: 'mine'"),
            ("generating", "failed", "ValueError: also mine"),
            ("plain", "ok", None),
        ], received
        """,
    )


@pytest.mark.once
def test_interval_sets_the_resident_readings_and_options_set_the_modes(tmp_path: Path) -> None:
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
        captures, pages, stderr = running.result()
    often, seldom = (heaptide("parse", path).stdout.splitlines() for path in captures)
    # Times in the file are rounded to a millisecond.
    assert shortest_time("often") < 0.19 and shortest_time("seldom") > 0.198
    assert " objects=true " in seldom[0] and " objects=false " in often[0]
    assert " native=false " in seldom[0] and " native=true " in often[0]
    assert stderr == ""
    assert len(pages) == 2


@pytest.mark.once
def test_failing_reporter_writes_an_error_page_and_keeps_the_result(tmp_path: Path) -> None:
    captures, pages, stderr = run(
        tmp_path,
        """
        import heaptide
        from heaptide import command_process

        @heaptide.memray_profiling
        def task():
            command_process._CODE = "import sys; sys.exit('the <reporter> is broken')"
            return 5

        assert task() == 5
        """,
    )
    assert len(captures) == len(pages) == 1
    assert "the &lt;reporter&gt; is broken" in pages[0].read_text() and captures[0].name in pages[0].read_text()
    assert stderr == "heaptide: task: cannot render the flamegraph: the <reporter> is broken\n"


@pytest.mark.once
def test_any_function_name_is_safe_and_an_unusable_folder_does_not_stop_the_function(tmp_path: Path) -> None:
    captures, pages, stderr = run(
        tmp_path,
        """
        import functools, heaptide

        def named(name):
            def function(): return name
            function.__name__ = name
            return heaptide.memray_profiling(function)

        for name in ("a", "bin", "../../up", "x/y", "-o", "naïve name", "é" * 200):
            assert named(name)() == name
        assert heaptide.memray_profiling(lambda: 3)() == 3
        assert heaptide.memray_profiling(functools.partial(int, "7"))() == 7
        open("file", "w").close()

        @heaptide.profile_memory(folder="file/sub")
        def task(): return 8

        assert task() == 8
        """,
    )
    assert len(captures) == len(pages) == 9
    assert {path.name.rpartition(".")[0].rpartition(".")[0] for path in captures} == {
        *("a", "bin", "_.._up", "x_y", "-o", "naïve_name", "_lambda_", "partial", "é" * 64)
    }
    assert one_sentence(stderr).startswith("task: ")
    assert not list(tmp_path.parent.glob("up*"))
