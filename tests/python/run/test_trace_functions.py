"""Tests that Heaptide neither sets nor disturbs profile functions, trace functions and monitoring tools."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.call_stacks import read_allocations
from support.commands import heaptide


@pytest.fixture
def run_both(tmp_path: Path) -> Callable[..., tuple[str, str]]:
    """Run a program alone and under `heaptide run`, in separate folders, and return both outputs."""

    def run(program: str, *options: str) -> tuple[str, str]:
        outputs = []
        under_heaptide = ("-m", "heaptide", "run", "-q", "-o", "x.tide", *options)
        for folder, prefix in (("plain", ()), ("recorded", under_heaptide)):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / "program.py").write_text(textwrap.dedent(program))
            done = subprocess.run(
                [sys.executable, *prefix, "program.py"], cwd=tmp_path / folder, capture_output=True, text=True
            )
            assert (done.returncode, done.stderr) == (0, ""), folder
            outputs.append(done.stdout.replace(str(tmp_path / folder), "."))
        assert outputs[0]
        return outputs[0], outputs[1]

    return run


@pytest.mark.parametrize("options", [(), ("--objects",), ("--sample",), ("--follow-fork",)], ids=" ".join)
def test_heaptide_run_sets_no_profile_or_trace_function(run_both: Callable[..., tuple[str, str]], options: Any) -> None:
    plain, recorded = run_both(
        """
        import sys
        import threading

        def print_state(where):
            print(where, sys.getprofile(), sys.gettrace())
            for name in ("getprofile", "gettrace"):
                print(getattr(threading, name, lambda: None)())
            if sys.version_info >= (3, 12):
                print([sys.monitoring.get_tool(i) for i in range(6)], [sys.monitoring.get_events(i) for i in range(6)
                       if sys.monitoring.get_tool(i)])
            if hasattr(sys, "_getframe"):
                print(sys._getframe().f_trace, sys._getframe().f_back.f_trace)

        print_state("main")
        thread = threading.Thread(target=print_state, args=("thread",))
        thread.start()
        thread.join()
        """,
        *options,
    )
    assert plain.startswith("main None None\nNone\nNone\n")
    assert recorded == plain


def test_tracker_keeps_the_programs_profile_and_trace_functions(tmp_path: Path) -> None:
    program = """
        import sys
        import threading
        import heaptide

        def profile(*_): pass
        def trace(*_): pass

        def state():
            return sys.getprofile(), sys.gettrace(), threading._profile_hook, threading._trace_hook

        assert state() == (None,) * 4
        for number in range(3):
            with heaptide.Tracker(f"{number}.tide", objects=True):
                assert state() == (None,) * 4
                if sys.version_info >= (3, 12):
                    assert [sys.monitoring.get_tool(i) for i in range(6)] == [None] * 6
            assert state() == (None,) * 4
        sys.setprofile(profile); sys.settrace(trace); threading.setprofile(profile); threading.settrace(trace)
        with heaptide.Tracker("set.tide"):
            assert state() == (profile, trace) * 2
        assert state() == (profile, trace) * 2
        sys.setprofile(None); sys.settrace(None)
        print("kept")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "kept\n", "")


def test_trace_functions_see_the_same_events_while_recorded(run_both: Callable[..., tuple[str, str]]) -> None:
    plain, recorded = run_both("""
        import sys

        events = []

        def trace(frame, event, argument):
            events.append((frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno, event))
            return trace

        def profile(frame, event, argument):
            events.append((frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno, event))

        def generate():
            yield bytes(100_000)
            yield bytes(200_000)

        def work(depth):
            if depth:
                return work(depth - 1)
            try:
                list(generate())
                raise ValueError
            except ValueError:
                return [bytes(n) for n in (1_000, 100_000)]

        sys.settrace(trace)
        work(3)
        sys.settrace(None)
        sys.setprofile(profile)
        work(3)
        sys.setprofile(None)
        print(len(events))
        for event in events:
            print(event)
    """)
    assert recorded == plain


def test_debugger_stops_at_the_same_lines_while_recorded(run_both: Callable[..., tuple[str, str]]) -> None:
    plain, recorded = run_both("""
        import io
        import pdb
        import sys

        def work(n):
            block = bytes(n)
            return len(block)

        out = io.StringIO()
        script = io.StringIO("where\\nbreak work\\ncontinue\\nwhere\\nnext\\np n\\nup\\nwhere\\nclear 1\\ncontinue\\n")
        debugger = pdb.Pdb(stdin=script, stdout=out, nosigint=True, readrc=False)
        debugger.use_rawinput = False
        debugger.set_trace()
        work(100_000)
        sys.settrace(None)
        print(out.getvalue())
    """)
    assert "work(100_000)" in plain
    assert recorded == plain


def test_cprofile_counts_the_same_calls_while_recorded(run_both: Callable[..., tuple[str, str]]) -> None:
    plain, recorded = run_both("""
        import cProfile
        import pstats

        def leaf(n):
            return len(bytes(n))

        def work():
            return sum(map(leaf, range(100_000, 100_050)))

        profile = cProfile.Profile()
        profile.runcall(work)
        entries = pstats.Stats(profile).stats
        for key in sorted(entries):
            print(key, entries[key][:2])
    """)
    assert "leaf') (50, 50)" in plain
    assert recorded == plain


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with 3.12")
def test_monitoring_tools_see_the_same_events_while_recorded(run_both: Callable[..., tuple[str, str]]) -> None:
    plain, recorded = run_both("""
        import sys

        monitoring, events = sys.monitoring, []
        for tool in range(6):
            monitoring.use_tool_id(tool, f"tool {tool}")
        monitoring.register_callback(3, monitoring.events.PY_START, lambda code, at: events.append((code.co_name, at)))
        monitoring.register_callback(3, monitoring.events.LINE, lambda code, line: events.append((code.co_name, line)))

        def leaf(n):
            return bytes(n)

        def work():
            for n in range(20):
                leaf(100_000 + n)

        monitoring.set_events(3, monitoring.events.PY_START | monitoring.events.LINE)
        work()
        monitoring.set_events(3, 0)
        print(events)
    """)
    assert recorded == plain


# A program that leaves its trace function set. It prints the functions that the trace function sees after the last line:
# its own, and one of `threading` if that module is loaded. The program imports `threading`, because Heaptide does.
LEAVES_TRACE_FUNCTION = """
    import atexit
    import os
    import sys
    import threading

    def trace(frame, event, argument):
        os.write(1, f"{frame.f_code.co_name} {event}\\n".encode())
        FAILURE
        return trace

    def at_exit():
        return 1

    atexit.register(at_exit)
    LAST
    sys.settrace(trace)
"""


@pytest.mark.parametrize("options", [(), ("--follow-fork",)], ids=" ".join)
@pytest.mark.parametrize("last", ["", "at_exit(); atexit._clear(); atexit.register(at_exit)"], ids=["", "cleared"])
def test_trace_function_set_at_exit_sees_nothing_of_heaptide(
    run_both: Callable[..., tuple[str, str]], last: str, options: tuple[str, ...]
) -> None:
    program = LEAVES_TRACE_FUNCTION.replace("FAILURE", "pass").replace("LAST", last)
    plain, recorded = run_both(program, *options)
    assert "at_exit call\n" in plain
    assert recorded == plain


@pytest.mark.parametrize("start", ["run", "variable"])
def test_trace_function_that_raises_at_exit_changes_no_exit_code(tmp_path: Path, start: str) -> None:
    program = LEAVES_TRACE_FUNCTION.replace("FAILURE", "raise ZeroDivisionError(frame.f_code.co_name)")
    (tmp_path / "program.py").write_text(textwrap.dedent(program.replace("LAST", "")))
    outcomes = []
    variables = {"HEAPTIDE": "run", "HEAPTIDE_QUIET": "1"} if start == "variable" else {}
    prefix_of_run = ["-m", "heaptide", "run", "-q", "-o", "x.tide"] if start == "run" else []
    for prefix, added in (([], {}), (prefix_of_run, variables)):
        done = subprocess.run(
            [sys.executable, *prefix, "program.py"],
            cwd=tmp_path,
            env={**os.environ, **added},
            capture_output=True,
            text=True,
        )
        outcomes.append((done.returncode, done.stdout, done.stderr))
    assert "ZeroDivisionError" in outcomes[0][2]
    assert outcomes[1] == outcomes[0]
    assert list(tmp_path.glob("*.tide"))


def test_profile_function_set_at_exit_is_called_for_exit_handlers(tmp_path: Path) -> None:
    program = LEAVES_TRACE_FUNCTION.replace("settrace", "setprofile").replace("FAILURE", "pass").replace("LAST", "")
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    done = heaptide("run", "-q", "-o", tmp_path / "x.tide", tmp_path / "program.py")
    assert "at_exit call\n" in done.stdout
    assert done.stderr == ""


def test_coverage_is_the_same_while_recorded(tmp_path: Path) -> None:
    pytest.importorskip("coverage")
    (tmp_path / "covered.py").write_text(
        textwrap.dedent("""
        def used(n):
            if n > 10:
                return bytes(n)
            return None

        def unused():
            return 1

        for n in (5, 100_000):
            used(n)
        try:
            used("a")
        except TypeError:
            block = [bytes(m) for m in (1, 2)]
        """)
    )
    reports = []
    for data, prefix in ((".plain", ["-m"]), (".recorded", ["-m", "heaptide", "run", "-q", "-o", "x.tide", "-m"])):
        options = [f"--data-file={data}"]
        command = [sys.executable, *prefix, "coverage", "run", "--branch", *options, "covered.py"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        command = [sys.executable, "-m", "coverage", "json", *options, "-o", "-", "--quiet"]
        done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
        reports.append(done.stdout[done.stdout.index('"files"') :])
    assert '"missing_lines": [8' in reports[0]
    assert reports[1] == reports[0]


def test_stacks_are_exact_while_the_program_traces_itself(tmp_path: Path) -> None:
    script = tmp_path / "traced.py"
    script.write_text(
        textwrap.dedent("""
        import sys

        def trace(frame, event, argument):
            bytes(1_000_001)
            return trace

        def work():
            x = 1
            return bytes(1_000_002)

        sys.settrace(trace)
        work()
        sys.settrace(None)
        """)
    )
    heaptide("run", "-q", "-o", tmp_path / "x.tide", script)
    found = list(read_allocations(heaptide("parse", tmp_path / "x.tide").stdout.splitlines()))
    traced = [[(call.name, call.line) for call in one.stack] for one in found if one.size == 1_000_001 + 33]
    # One call event, two line events, one return event.
    in_work = [stack for stack in traced if ("work", stack[-2][1]) == stack[-2]]
    assert [stack[-2:] for stack in in_work] == [
        [("work", 8), ("trace", 5)],
        [("work", 9), ("trace", 5)],
        [("work", 10), ("trace", 5)],
        [("work", 10), ("trace", 5)],
    ]
    [allocated] = [[(call.name, call.line) for call in one.stack] for one in found if one.size == 1_000_002 + 33]
    assert allocated == [("<module>", 13), ("work", 10)]
