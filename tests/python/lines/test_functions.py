"""Tests ``@profile`` on every type of function, with other decorators, and together with other tracing tools."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from pathlib import Path

import pytest
from support.line_profiled_program import Run, python
from support.line_tables import tables

__all__ = ["python"]


def test_report_names_the_users_function_above_and_below_other_decorators(python: Run) -> None:
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


def test_report_names_the_users_function_above_a_decorator_without_wraps(python: Run, tmp_path: Path) -> None:
    library = """
        def task(function):
            def wrapper(*args, **kwargs):
                return function(*args, **kwargs)
            return wrapper
    """
    (tmp_path / "library.py").write_text(textwrap.dedent(library))
    done = python("""
        from heaptide import profile
        from library import task

        @profile
        @task
        def over():
            return 1

        def helper():
            return 2

        def make():
            kept = helper
            @profile
            def own():
                return kept()
            return own

        over(), make()()
    """)
    names = [next(row.text.strip() for row in table.rows if "def " in row.text) for table in tables(done.stdout)]
    assert names == ["def over():", "def own():"]


def test_report_lists_the_users_lines_if_a_decorator_does_not_call_the_function(python: Run) -> None:
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


def test_decorator_without_parentheses_reports_calls_that_raise(python: Run) -> None:
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


def test_increments_of_nested_and_recursive_functions_are_not_counted_twice(python: Run) -> None:
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
    # The inner calls free their blocks when they return.
    assert recursive.row("recursive(depth - 1)").increment == pytest.approx(-30, abs=2)
    whole = sum(row.increment or 0 for row in recursive.rows)
    assert whole == pytest.approx(recursive.rows[0].increment + 10, abs=1), "nothing is counted twice"


def test_threads_generators_and_async_functions_are_reported(python: Run) -> None:
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
    assert whole.row("got = yield 1").increment < 5, "allocations while the generator is suspended are not counted"
    assert whole.row("block = bytearray(30").increment == pytest.approx(20, abs=11)
    assert closed.row("got = yield").visits == 1 and closed.row("return 3").visits is None
    for report in reports[5:]:
        assert report.row("bytearray(10").visits == 1
    assert reports[7].row("for number").visits == 4


def test_methods_of_every_type_are_reported(python: Run) -> None:
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


def test_coverage_still_counts_lines(python: Run, tmp_path: Path) -> None:
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


def test_trace_function_of_a_debugger_sees_every_event_and_stays_set(python: Run) -> None:
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


def test_audit_hook_can_call_a_profiled_function(python: Run) -> None:
    done = python("""
        import sys
        from heaptide import profile

        @profile
        def within_the_hook():
            return 1

        @profile
        def work():
            return 2

        is_busy = False
        def hook(event, arguments):
            global is_busy
            if event == "sys.settrace" and not is_busy:
                is_busy = True
                assert within_the_hook() == 1
                is_busy = False

        sys.addaudithook(hook)
        assert work() == 2
        within_the_hook()
        assert sys.gettrace() is None
    """)
    assert "panicked" not in done.stderr and "Traceback" not in done.stderr
    rows = [row for table in tables(done.stdout) for row in table.rows]
    assert [row.visits for row in rows if row.text.endswith("return 2")] == [1]
    # A trace function cannot be set while another one is, so 3.10 and 3.11 do not count the lines of the call in the hook.
    assert 1 in {row.visits for row in rows if row.text.endswith("return 1")}


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="from 3.12 on, lines are counted without a trace function")
def test_trace_function_stays_if_an_audit_hook_refuses_another(python: Run) -> None:
    done = python("""
        import sys
        from heaptide import profile

        @profile
        def work():
            return 2

        def tracer(frame, event, arg):
            return None

        def hook(event, arguments):
            if event == "sys.settrace" and is_forbidden:
                raise PermissionError("no trace function")

        is_forbidden = False
        sys.addaudithook(hook)
        sys.settrace(tracer)
        is_forbidden = True
        n_references = sys.getrefcount(tracer)
        for _ in range(100):
            assert work() == 2
        assert sys.gettrace() is tracer
        print("more references:", sys.getrefcount(tracer) - n_references)
        is_forbidden = False
        sys.settrace(None)
    """)
    assert "more references: 0" in done.stdout


def test_functions_without_source_on_disk_are_reported(python: Run) -> None:
    done = python(
        """
        import linecache
        from heaptide import profile

        # Like a notebook, this puts the text into linecache under a name that is not a file.
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
