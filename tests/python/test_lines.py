"""``@profile``: a function's memory line by line, beside memory_profiler where that is to be had."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from line_tables import tables

FIRST_REPORT = "import heaptide, io; heaptide.profile(stream=io.StringIO())(lambda: None)()"


@pytest.fixture
def python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a program, given as text, with plain Python; where sizes are compared, a first report is made beforehand.

    With the first report, code is loaded and tables are made, which belongs to no line of the program.
    """

    def run(
        text: str, *arguments: str, env: dict[str, str] | None = None, code: int = 0, warm: bool = False
    ) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "program.py"
        first_line, _, rest = textwrap.dedent(text).partition("\n")
        assert first_line == ""
        script.write_text(f"{FIRST_REPORT if warm else ''}\n{rest}")
        done = subprocess.run(
            [sys.executable, script, *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            # Every large block is a mapping of its own, so that releasing one always shows.
            env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", **(env or {})},
        )
        assert done.returncode == code, done.stderr
        return done

    return run


# The seed's example, and five more whose memory changes in other ways.
SIX_FUNCTIONS = """
    import sys
    if sys.argv[1] == "heaptide":
        from heaptide import profile
    else:
        from memory_profiler import profile

    @profile(precision=3)
    def increment(value):
        a = [1] * (10 ** 6)
        b = [2] * (value * 10 ** 6)
        c = [3] * (value * 10 ** 7)
        del b
        return value + 1

    @profile(precision=3)
    def in_a_loop():
        kept = []
        for size in range(4):
            kept.append(bytearray(size << 20))
        return len(kept)

    def allocate(size):
        return bytearray(size)

    @profile(precision=3)
    def by_what_it_calls():
        first = allocate(20 << 20)
        second = allocate(10 << 20)
        del first
        return len(second)

    @profile(precision=3)
    def in_branches(flag):
        if flag:
            block = bytearray(8 << 20)
        else:
            block = bytearray(80 << 20)
        while flag:
            flag -= 1
        return len(block)

    @profile(precision=3)
    def in_a_with_block():
        import contextlib
        with contextlib.ExitStack() as stack:
            block = bytearray(16 << 20)
            try:
                raise ValueError
            except ValueError:
                other = bytearray(16 << 20)
        return len(block) + len(other)

    @profile(precision=3)
    def in_small_pieces():
        pieces = [
            bytes(20000)
            for _ in range(1000)
        ]
        return len(pieces)

    increment(1)
    in_a_loop()
    by_what_it_calls()
    in_branches(3)
    in_a_with_block()
    in_small_pieces()
"""


def test_c5_table_has_the_five_columns_and_values_within_1_mib_of_memory_profiler(python):
    pytest.importorskip("memory_profiler")
    ours = tables(python(SIX_FUNCTIONS, "heaptide", warm=True).stdout)
    theirs = tables(python(SIX_FUNCTIONS, "memory_profiler", warm=True).stdout)
    assert len(ours) == len(theirs) == 6
    for our, their in zip(ours, theirs, strict=True):
        assert our.file == their.file
        assert [(row.line, row.text) for row in our.rows] == [(row.line, row.text) for row in their.rows]
        # Lines before the first are the process: theirs has psutil in it.
        for mine, other in zip(our.rows[1:], their.rows[1:], strict=True):
            assert (mine.increment is None) == (other.increment is None), (mine, other)
            if mine.increment is not None:
                assert abs(mine.increment - other.increment) < 1, (mine, other)
                base = our.rows[0].usage - their.rows[0].usage
                assert abs(mine.usage - base - other.usage) < 1, (mine, other)
        if "in_small_pieces" not in our.rows[1].text:
            # Of comprehensions, memory_profiler counts the turns.
            assert [row.visits for row in our.rows] == [row.visits for row in their.rows]


def test_c5_increments_of_the_seeds_example(python):
    (table, *_) = tables(python(SIX_FUNCTIONS, "heaptide", warm=True).stdout)
    increments = [table.row(text).increment for text in ("a = [1]", "b = [2]", "c = [3]", "del b")]
    assert increments == pytest.approx([7.6, 7.6, 76.3, -7.6], abs=0.5)
    assert table.rows[0].increment == table.rows[0].usage
    # The kernel adds up a process's pages in portions of up to 64 for each processor.
    assert table.row("return value + 1").increment == pytest.approx(0, abs=0.5)


def test_c6_one_line_names_file_function_and_peak_in_both_known_layouts(python):
    done = python("""
        from heaptide import profile

        @profile(full_report=False)
        def increment(value):
            c = [3] * (value * 10 ** 7)
            del c
            return value + 1

        @profile(full_report=False, layout="compss")
        def other():
            return 1

        increment(1)
        other()
    """)
    first, second = done.stdout.splitlines()
    file, function, peak, unit = first.split(" ")
    assert (os.path.basename(file), function, unit) == ("program.py", "increment", "MiB")
    assert float(peak) > 76
    started, job, file, function, elapsed, initial, final, peak, unit = second.split(" ")
    assert (job, os.path.basename(file), function, unit) == ("master", "program.py", "other", "MiB")
    assert float(started) > 1e9 and float(elapsed) >= 0
    assert 1 < float(initial) <= float(peak) and 1 < float(final) <= float(peak)


def test_c7_users_function_is_named_over_and_under_other_decorators(python):
    done = python("""
        import functools
        from heaptide import profile

        class task:
            def __init__(self, **options):
                pass
            def __call__(self, user_function):
                self.user_function = user_function
                @functools.wraps(user_function)
                def task_decorator(*args, **kwargs):
                    return user_function(*args, **kwargs)
                return task_decorator

        class keeper:
            def __init__(self, function):
                self.user_function = function
            def __call__(self, *args):
                return self.user_function(*args)

        @task(returns=1)
        @profile()
        def under():
            return len(bytearray(8 << 20))

        @profile()
        @task(returns=1)
        def over():
            return len(bytearray(8 << 20))

        @profile
        @keeper
        def over_an_object():
            return 1

        def plain():
            return 1

        under(), over(), over_an_object(), profile(plain)()
        print(under.__name__, over.__name__)
    """)
    names = [next(row.text.strip() for row in table.rows if "def " in row.text) for table in tables(done.stdout)]
    assert names == ["def under():", "def over():", "def over_an_object():", "def plain():"]
    assert {os.path.basename(table.file) for table in tables(done.stdout)} == {"program.py"}
    for table in tables(done.stdout):
        assert table.row("return ").visits == 1
    assert done.stdout.splitlines()[-1] == "under over"


def test_c7_function_that_runs_elsewhere_still_names_the_users_lines(python):
    done = python("""
        import functools
        from heaptide import profile

        def task(function):
            @functools.wraps(function)
            def submit(*args):
                return "future"
            return submit

        @profile
        @task
        def work():
            return 1

        assert work() == "future"
    """)
    (table,) = tables(done.stdout)
    assert [row.text for row in table.rows][-2:] == ["def work():", "    return 1"]
    assert table.rows[0].visits == 1 and table.rows[0].usage > 1


def test_c8_file_of_reports_is_read_at_call_time_and_takes_whole_reports_of_many_processes(python, tmp_path):
    program = """
        import multiprocessing, os
        from heaptide import profile

        @profile
        def work(number):
            return number

        def worker(number):
            for turn in range(5):
                work(number)

        if __name__ == "__main__":
            os.environ["{variable}"] = "reports.txt"
            context = multiprocessing.get_context("fork")
            processes = [context.Process(target=worker, args=(number,)) for number in range(6)]
            for process in processes: process.start()
            for process in processes: process.join()
            del os.environ["{variable}"]
            work(0)
    """
    for variable in ("COMPSS_PROFILING_FILE", "HEAPTIDE_PROFILING_FILE"):
        done = python(program.replace("{variable}", variable))
        assert len(tables(done.stdout)) == 1, "the report after the variable went belongs on standard output"
        reports = tables((tmp_path / "reports.txt").read_text())
        assert len(reports) == 30
        assert all(report.row("return number").visits == 1 for report in reports)
        (tmp_path / "reports.txt").unlink()


def test_c9_works_without_brackets_and_reports_on_exceptions(python):
    done = python(
        """
        from heaptide import profile

        @profile
        def fails():
            block = bytearray(10 << 20)
            raise ValueError("mine")

        @profile
        def catches():
            try:
                fails()
            except ValueError:
                block = bytearray(5 << 20)
            return 7

        assert catches() == 7
        fails()
    """,
        code=1,
        warm=True,
    )
    inner, outer, last = tables(done.stdout)
    assert inner.row("block =").increment == pytest.approx(10, abs=1)
    assert inner.row("raise").visits == last.row("raise").visits == 1
    assert outer.row("block =").visits == outer.row("return 7").visits == 1
    assert done.stderr.splitlines()[-1] == "ValueError: mine"


def test_c9_nested_and_recursive_functions_have_sane_increments(python):
    done = python(
        """
        from heaptide import profile

        @profile
        def inner():
            return bytearray(10 << 20)

        @profile
        def outer():
            first = inner()
            second = inner()
            return len(first) + len(second)

        @profile
        def recursive(depth):
            block = bytearray(10 << 20)
            if depth:
                recursive(depth - 1)
            return len(block)

        outer()
        recursive(3)
    """,
        warm=True,
    )
    first, _, outer, recursive = tables(done.stdout)
    assert first.row("return").increment == pytest.approx(10, abs=1)
    assert outer.row("first =").increment == pytest.approx(10, abs=0.5)
    assert outer.row("second =").increment == pytest.approx(10, abs=0.5)
    assert recursive.row("block =")[2:4] == (pytest.approx(40, abs=2), 4)
    # What the inner calls gave back when they ended.
    assert recursive.row("recursive(depth - 1)").increment == pytest.approx(-30, abs=2)
    whole = sum(row.increment or 0 for row in recursive.rows)
    assert whole == pytest.approx(recursive.rows[0].increment + 10, abs=1), "nothing is counted twice"


def test_c9_threads_generators_and_asynchronous_functions(python):
    done = python(
        """
        import asyncio, inspect, threading
        from heaptide import profile

        barrier = threading.Barrier(3)

        @profile
        def in_thread():
            barrier.wait()
            for turn in range(1000):
                pass
            barrier.wait()

        @profile
        def numbers():
            block = bytearray(10 << 20)
            got = yield 1
            assert got == "sent"
            try:
                yield 2
            except KeyError:
                block = bytearray(30 << 20)
            return 3

        @profile
        async def waits():
            block = bytearray(10 << 20)
            await asyncio.sleep(0)
            return len(block)

        @profile
        async def counts():
            block = bytearray(10 << 20)
            for number in range(3):
                yield number

        threads = [threading.Thread(target=in_thread) for _ in range(3)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()

        assert inspect.isgeneratorfunction(numbers)
        def drive():
            return (yield from numbers())
        generator = drive()
        assert next(generator) == 1
        elsewhere = bytearray(50 << 20)
        assert generator.send("sent") == 2
        try:
            generator.throw(KeyError("x"))
        except StopIteration as end:
            assert end.value == 3
        abandoned = numbers()
        next(abandoned)
        abandoned.close()

        async def main():
            assert inspect.iscoroutinefunction(waits.__wrapped__) and inspect.isasyncgenfunction(counts)
            assert await asyncio.gather(waits(), waits()) == [10 << 20] * 2
            assert [number async for number in counts()] == [0, 1, 2]
        asyncio.run(main())
    """,
        warm=True,
    )
    reports = tables(done.stdout)
    assert len(reports) == 3 + 2 + 2 + 1
    for report in reports[:3]:
        assert report.row("for turn").visits == 1001
        assert report.row("pass").visits == 1000
    whole, closed = reports[3:5]
    assert whole.row("block = bytearray(10").increment == pytest.approx(10, abs=1)
    assert whole.row("got = yield 1").increment < 5, "what happened while it paused is not its own"
    assert whole.row("block = bytearray(30").increment == pytest.approx(20, abs=11)
    assert closed.row("got = yield").visits == 1 and closed.row("return 3").visits is None
    for report in reports[5:]:
        assert report.row("bytearray(10").visits == 1
    assert reports[7].row("for number").visits == 4


def test_c10_initial_and_final_memory_are_the_processs(python):
    done = python(
        """
        from heaptide import profile
        kept = []

        @profile(layout="compss")
        def work():
            kept.append(bytearray(20 << 20))

        work()
    """,
        warm=True,
    )
    said = dict(line.split(": ") for line in done.stdout.splitlines()[-5:])
    assert list(said) == ["Job name", "Start time", "Elapsed time", "Initial memory", "Final memory"]
    initial, final = (float(said[key].split(" ")[0]) for key in ("Initial memory", "Final memory"))
    assert final - initial == pytest.approx(20, abs=1)
    assert initial < 100


def test_methods_of_all_kinds_are_reported(python):
    done = python("""
        from heaptide import profile

        class Thing:
            @profile
            def method(self):
                return self
            @classmethod
            @profile
            def of_class(cls):
                return cls
            @profile
            @staticmethod
            def static(value):
                return value
            @property
            @profile
            def attribute(self):
                return 5

        thing = Thing()
        assert thing.method() is thing
        assert Thing.of_class() is Thing and thing.of_class() is Thing
        assert Thing.static(3) == 3 and thing.static(4) == 4
        assert thing.attribute == 5
    """)
    assert len(tables(done.stdout)) == 6


def test_coverage_goes_on_counting_lines(python, tmp_path):
    pytest.importorskip("coverage")
    (tmp_path / "job.py").write_text(
        textwrap.dedent("""
        from heaptide import profile

        @profile
        def work(flag):
            if flag:
                return 1
            return 2

        def after():
            return 3

        work(True)
        after()
    """)
    )
    program = """
        import coverage, json
        measured = coverage.Coverage(data_file=None, config_file=False, include=["*/job.py"])
        measured.start()
        import job
        measured.stop()
        _, lines, missing, _ = measured.analysis("job.py")
        print(json.dumps([lines, missing]))
    """
    for core in ("ctrace", "pytrace", "sysmon") if sys.version_info >= (3, 12) else ("ctrace", "pytrace"):
        done = python(program, env={"COVERAGE_CORE": core})
        lines, missing = json.loads(done.stdout.splitlines()[-1])
        assert missing == [8], (core, lines, missing, done.stderr)
        (table,) = tables(done.stdout)
        assert table.row("return 1").visits == 1
        assert "Warning" not in done.stderr, core


def test_debuggers_trace_function_sees_every_event_and_stays(python):
    done = python("""
        import sys
        from heaptide import profile

        @profile
        def work():
            first = 1
            other()
            return first

        def other():
            return 2

        events = []
        def local(frame, event, arg):
            events.append((frame.f_code.co_name, event, frame.f_lineno))
            return local
        def tracer(frame, event, arg):
            if frame.f_code.co_name in ("work", "other"):
                return local(frame, event, arg)

        sys.settrace(tracer)
        work()
        assert sys.gettrace() is tracer
        other()
        sys.settrace(None)
        seen = events[:]
        events.clear()
        sys.settrace(tracer)
        work.__wrapped__()
        other()
        sys.settrace(None)
        assert seen == events, (seen, events)
        work()
        assert sys.gettrace() is None
    """)
    for table in tables(done.stdout):
        assert table.row("first = 1").visits == table.row("return first").visits == 1


def test_functions_without_source_on_disk_are_reported(python):
    done = python(
        """
        import linecache
        from heaptide import profile

        # As a notebook does it: the text is in linecache under a name that is no file.
        text = "def cell():\\n    block = bytearray(10 << 20)\\n    return len(block)\\n"
        linecache.cache["<ipython-input-1>"] = (len(text), None, text.splitlines(True), "<ipython-input-1>")
        namespace = {}
        exec(compile(text, "<ipython-input-1>", "exec"), namespace)
        profile(namespace["cell"])()
        exec(compile("def lost():\\n    return 1\\n", "<nowhere>", "exec"), namespace)
        profile(namespace["lost"])()
    """,
        warm=True,
    )
    cell, lost = tables(done.stdout)
    assert cell.file == "<ipython-input-1>"
    assert cell.row("block =").increment == pytest.approx(10, abs=1)
    assert [row.line for row in lost.rows] == [1, 2]


def test_failures_of_the_report_are_one_sentence_and_the_program_goes_on(python):
    done = python("""
        import io, os
        from heaptide import profile

        class Broken:
            def write(self, text):
                raise OSError("no space left")

        @profile(stream=Broken())
        def work():
            return 5

        @profile
        def other():
            return 6

        assert work() == 5
        os.environ["HEAPTIDE_PROFILING_FILE"] = "/nonexistent/folder/file"
        assert other() == 6
        del os.environ["HEAPTIDE_PROFILING_FILE"]
        text = io.StringIO()
        assert profile(stream=text)(lambda: 7)() == 7
        assert "Line #" in text.getvalue()
        for wrong in (dict(backend="gpu"), dict(precision=-1), dict(layout="x"), dict(columns=["x"])):
            try:
                profile(**wrong)
            except ValueError as error:
                print(error)
        for wrong in (int, len):
            try:
                profile(wrong)
            except TypeError as error:
                print(error)
    """)
    assert len(done.stdout.splitlines()) == 6
    first, second = done.stderr.splitlines()
    assert first.startswith("heaptide: the line report of work could not be written (no space left)")
    assert second.startswith("heaptide: the line report of other could not be written")


def test_backends_measure_what_their_names_say(python):
    done = python(
        """
        from heaptide import profile
        for backend in ("psutil", "posix", "psutil_pss", "psutil_uss", "tracemalloc"):
            @profile(backend=backend)
            def work():
                block = bytearray(10 << 20)
                return len(block)
            work()
    """,
        warm=True,
    )
    reports = tables(done.stdout)
    assert len(reports) == 5
    for report in reports:
        assert report.row("block =").increment == pytest.approx(10, abs=1)
    assert reports[4].rows[0].usage < reports[3].rows[0].usage <= reports[0].rows[0].usage + 1


def test_timelines_get_brackets_of_functions_and_blocks(python, tmp_path):
    python(
        """
        from heaptide import profile

        @profile
        def inner():
            return 1

        class Job:
            @profile
            def run(self):
                with profile.timestamp("load"):
                    inner()

        Job().run()
        """,
        env={"HEAPTIDE_TIMELINE_FUNCTIONS": str(tmp_path / "functions.dat")},
    )
    lines = [line.split(" ") for line in (tmp_path / "functions.dat").read_text().splitlines()]
    assert [(line[0], line[1], line[-1]) for line in lines] == [
        ("FUNC", "__main__.inner", "2"),
        ("FUNC", ".load", "1"),
        ("FUNC", "__main__.Job.run", "0"),
    ]
    for line in lines:
        (memory, start, memory_after, end) = map(float, line[2:6])
        assert memory > 1 and memory_after > 1 and 1e9 < start <= end
