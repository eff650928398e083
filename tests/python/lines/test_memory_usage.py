"""Tests ``memory_usage``, the notebook magics, and code written for memory_profiler running on Heaptide."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.line_tables import tables

pytestmark = pytest.mark.once


def python(text: str, folder: Path, *, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a program under plain Python, with a separate mapping for each large block."""
    script = folder / "program.py"
    script.write_text(textwrap.dedent(text))
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "IPYTHONDIR": str(folder / "ipython")}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == code, done.stdout + done.stderr
    return done


# `resident` reads the size from the kernel; `about` tolerates the memory that the measurement itself allocates.
USAGE_HEAD = """
import io, os, subprocess, sys, time
from heaptide import memory_usage

calls = []

def work(size, *, more=0):
    calls.append(size)
    block = bytearray((size + more) << 20)
    return len(block)

def resident(pid="self"):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / (1 << 20)

def about(figure, expected, tolerance=1):
    assert type(figure) is float, figure
    return abs(figure - expected) < tolerance

def start_child():
    code = "import sys; block = bytearray(40 << 20); print('ready', flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    return child
"""


def check_usage(text: str, folder: Path) -> None:
    """Run the assertions of a program that calls `memory_usage`."""
    python(USAGE_HEAD + textwrap.dedent(text), folder)


def test_memory_usage_calls_a_function_once_and_returns_its_readings(tmp_path: Path) -> None:
    check_usage(
        """
        usage = memory_usage((work, (50,), {"more": 10}), interval=0.001)
        assert calls == [50]
        assert type(usage) is list and len(usage) >= 2
        assert all(type(figure) is float for figure in usage), usage
        assert min(usage) > resident() - 5 and max(usage) < resident() + 65, (usage, resident())
        """,
        tmp_path,
    )


def test_memory_usage_returns_the_peak_and_the_value_of_the_function(tmp_path: Path) -> None:
    check_usage(
        """
        peak, returned = memory_usage((work, (10,)), max_usage=True, retval=True, max_iterations=1)
        assert calls == [10] and returned == 10 << 20
        assert type(peak) is float
        assert resident() - 1 < peak < resident() + 11, (peak, resident())
        """,
        tmp_path,
    )


def test_memory_usage_returns_timestamps_of_its_readings(tmp_path: Path) -> None:
    check_usage(
        """
        start = time.time()
        samples = memory_usage(lambda: None, timestamps=True)
        end = time.time()
        assert samples
        for figure, moment in samples:
            assert about(figure, resident()), (figure, resident())
            assert type(moment) is float and start - 0.01 <= moment <= end + 0.01, (start, moment, end)
        """,
        tmp_path,
    )


def test_memory_usage_of_a_process_is_one_reading_unless_it_has_a_timeout(tmp_path: Path) -> None:
    check_usage(
        """
        (now,) = memory_usage()
        assert about(now, resident()), (now, resident())
        peak = memory_usage(os.getpid(), max_usage=True)
        assert about(peak, resident()), (peak, resident())
        readings = memory_usage(-1, interval=0.01, timeout=0.03)
        assert len(readings) == 3 and all(about(figure, resident()) for figure in readings), readings
        """,
        tmp_path,
    )


def test_memory_usage_includes_children_in_the_sum_or_separately(tmp_path: Path) -> None:
    check_usage(
        """
        child = start_child()
        (alone,) = memory_usage()
        (of_child,) = memory_usage(child.pid)
        assert of_child > 40 and about(of_child, resident(child.pid)), of_child
        (together,) = memory_usage(include_children=True)
        assert about(together, alone + of_child), (together, alone, of_child)
        ((parent, in_child),) = memory_usage(multiprocess=True)
        assert about(parent, alone) and about(in_child, of_child), (parent, in_child)
        child.communicate()
        """,
        tmp_path,
    )


def test_memory_usage_writes_readings_to_a_stream(tmp_path: Path) -> None:
    check_usage(
        """
        child, stream = start_child(), io.StringIO()
        start = time.time()
        assert memory_usage(-1, multiprocess=True, stream=stream) is None
        own, of_child = [line.split() for line in stream.getvalue().splitlines()]
        assert own[0] == "MEM" and about(float(own[1]), resident())
        assert of_child[:2] == ["CHLD", str(child.pid)] and about(float(of_child[2]), resident(child.pid))
        for line in (own, of_child):
            assert start - 0.01 <= float(line[-1]) <= time.time() + 0.01
        child.communicate()
        """,
        tmp_path,
    )


def test_memory_usage_of_a_popen_object_ends_with_the_process(tmp_path: Path) -> None:
    check_usage(
        """
        child = start_child()
        size = resident(child.pid)
        child.stdin.close()
        usage = memory_usage(child, interval=0.01)
        assert child.wait() == 0
        assert type(usage) is list and all(type(figure) is float and figure < size + 1 for figure in usage), usage
        """,
        tmp_path,
    )


def test_memory_usage_backends_measure_resident_proportional_unique_and_traced_memory(tmp_path: Path) -> None:
    check_usage(
        """
        rss, pss, uss = (
            memory_usage(lambda: None, backend=backend, max_usage=True)
            for backend in ("posix", "psutil_pss", "psutil_uss")
        )
        # The resident size may be out of date by some pages per processor; the other two are exact.
        assert about(rss, resident(), 2), (rss, resident())
        assert 1 < uss <= pss < rss + 2, (uss, pss, rss)
        traced = memory_usage((work, (30,)), backend="tracemalloc", max_usage=True)
        assert type(traced) is float and 30 < traced < 31, traced
        """,
        tmp_path,
    )


def test_peak_is_found_in_a_call_that_holds_the_interpreter(tmp_path: Path) -> None:
    python(
        """
        from heaptide import memory_usage
        before = memory_usage(max_usage=True)
        # One call into C, during which no other Python thread runs.
        peak = memory_usage((sorted, (range(3_000_000),), {"key": float}), interval=0.005, max_usage=True)
        assert peak - before > 20, (before, peak)
        """,
        tmp_path,
    )


def test_wrong_arguments_are_one_sentence_and_exceptions_of_the_function_propagate(tmp_path: Path) -> None:
    done = python(
        """
        from heaptide import memory_usage
        def fails():
            raise KeyError("mine")
        for wrong in (dict(interval=0), dict(timeout=-1), dict(backend="gpu"), dict(proc="x"), dict(proc=(1,)), dict(proc=-7)):
            try:
                memory_usage(**wrong)
            except ValueError as error:
                print(error)
        try:
            memory_usage(2 ** 22 + 1)
        except ProcessLookupError as error:
            print(error)
        try:
            memory_usage(fails)
        except KeyError as error:
            print(error)
        """,
        tmp_path,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 8 and lines[-1] == "'mine'"
    assert lines[-2].startswith("there is no process 4194305")


def test_magics_measure_statements_functions_and_cells(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    done = python(
        """
        import warnings
        from IPython.testing.globalipapp import start_ipython
        shell = start_ipython()
        run = shell.run_line_magic
        run("load_ext", "heaptide")
        result = run("memit", "-o -i 0.01 block = bytearray(50 << 20)")
        assert len(shell.user_ns["block"]) == 50 << 20
        assert 49 < max(result.mem_usage) - result.baseline < 60, result
        assert result.repeat == 1 and result.timeout is None and "MemitResult" in repr(result)
        assert run("memit", "-q pass") is None
        shell.run_cell_magic("memit", "size = 20", "other = bytearray(size << 20)")
        shell.run_cell("def cell(n):\\n    kept = bytearray(n << 20)\\n    return len(kept)\\n")
        run("mprun", "-T report.txt -f cell cell(10)")
        assert shell.user_ns["cell"].__code__.co_name == "cell"
        from unittest.mock import patch
        with patch("IPython.display.display") as display, warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            shell.run_cell_magic("heaptide", "-o page.html --objects", "stay = [bytearray(1 << 20) for _ in range(9)]")
        frame, line = display.call_args.args[0]["text/html"], display.call_args.args[0]["text/plain"]
        assert "<iframe style=" in frame and len(frame) > 10_000
        assert line.startswith("peak 9.") and " allocated in " in line and line.endswith(" allocations"), line
        assert not [each for each in warned if "IFrame" in str(each.message)]
        assert len(shell.user_ns["stay"]) == 9
        # A failing cell shows its graph, and fails.
        with patch("IPython.display.display") as display:
            try:
                shell.run_cell_magic("heaptide", "", "block = bytearray(1 << 20)\\n1 / 0")
            except ZeroDivisionError:
                assert "<iframe style=" in display.call_args.args[0]["text/html"]
            else:
                raise AssertionError("the cell's failure is lost")
        # A small cell, and any cell on request, gets a small table instead of the page.
        big = "def hold(): return bytearray(5 << 20)\\nhold()"
        for options, cell, is_short in (("", "x = 1", True), ("--page", "x = 1", False), ("--short", big, True)):
            with patch("IPython.display.display") as display:
                shell.run_cell_magic("heaptide", options, cell)
            shown = display.call_args.args[0]
            assert ("<iframe" not in shown["text/html"]) == is_short == (len(shown["text/html"]) < 5_000), options
            assert shown["text/plain"].startswith("peak ")
        assert "hold" in shown["text/html"]
        shell.run_cell(
            "import subprocess, sys\\n"
            "def starts():\\n"
            "    code = 'block = bytearray(60 << 20); print(1, flush=True); input()'\\n"
            "    pipes = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE}\\n"
            "    child = subprocess.Popen([sys.executable, '-c', code], **pipes)\\n"
            "    child.stdout.readline()\\n"
            "    child.communicate(b'x')\\n"
        )
        run("mprun", "-c -T children.txt -f starts starts()")
        # In a notebook the table is part of the cell's output; on a terminal it goes to a pager.
        shell.kernel = object()
        run("mprun", "-f cell cell(10)")
        del shell.kernel
        # IPython prints a UsageError as one line.
        from IPython.core.error import UsageError
        for magic, line in (("memit", "--what x"), ("mprun", "pass"), ("mprun", "-f nowhere pass")):
            try:
                run(magic, line)
            except UsageError as error:
                print("refused:", error)
        """,
        tmp_path,
    )
    printed = [line for line in done.stdout.splitlines() if line.startswith("peak memory: ")]
    assert len(printed) == 2 and ", increment: " in printed[0] and printed[0].endswith(" MiB")
    (printed_table,) = tables(done.stdout[done.stdout.rindex("Filename: ") :].partition("refused: ")[0])
    assert printed_table.row("kept =").increment == pytest.approx(10, abs=1)
    (with_children,) = tables((tmp_path / "children.txt").read_text())
    assert with_children.row("child.stdout.readline()").increment > 50
    (table,) = tables((tmp_path / "report.txt").read_text())
    assert table.row("kept =").increment == pytest.approx(10, abs=1)
    assert "<html" in (tmp_path / "page.html").read_text()
    assert done.stdout.count("refused: ") == 3


def test_recorded_cell_may_await_and_has_a_value(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    done = python(
        """
        import asyncio
        from unittest.mock import patch
        from IPython.testing.globalipapp import start_ipython
        shell = start_ipython()
        shell.run_line_magic("load_ext", "heaptide")

        def run_like_a_kernel(cell):
            # A kernel already runs an event loop.
            async def run():
                transformed = shell.transform_cell(cell)
                assert shell.should_run_async(cell, transformed_cell=transformed)
                return await shell.run_cell_async(cell, transformed_cell=transformed)

            return asyncio.run(run())

        awaiting = "%%heaptide -o page.html\\nawait asyncio.sleep(0)\\nblock = bytearray(5 << 20)\\nlen(block)"
        shell.run_cell("import asyncio")
        for run in (run_like_a_kernel, shell.run_cell):
            shell.user_ns.pop("block", None)
            with patch("IPython.display.display") as display:
                done = run(awaiting)
            assert done.result == len(shell.user_ns["block"]) == 5 << 20, done
            assert "<iframe style=" in display.call_args.args[0]["text/html"]
        with patch("IPython.display.display"):
            failed = run_like_a_kernel("%%heaptide\\nawait asyncio.sleep(0)\\n1 / 0")
            assert isinstance(failed.error_in_exec, ZeroDivisionError)
            assert shell.run_cell("%%heaptide\\nx = 3\\nx + 1").result == 4
            assert shell.run_cell("%%heaptide\\nx + 1;").result is None
            shell.run_cell("%%heaptide\\ndef g(x: int): pass")
        # The cell is compiled without the future imports of Heaptide's module, so annotations are no strings.
        assert shell.user_ns["g"].__annotations__ == {"x": int}
        line = shell.run_cell("%heaptide await asyncio.sleep(0)")
        print("refused:", line.error_in_exec)
        shell.run_line_magic("autoawait", "False")
        print("refused:", shell.run_cell("%%heaptide\\nawait asyncio.sleep(0)").error_in_exec)
        """,
        tmp_path,
    )
    line, cell = [text for text in done.stdout.splitlines() if text.startswith("refused: ")]
    assert "with %%heaptide in its first line" in line
    assert "outside" in cell
    assert "<html" in (tmp_path / "page.html").read_text()


FOR_MEMORY_PROFILER = """
    import io, logging, sys
    from memory_profiler import LineProfiler, LogFile, memory_usage, profile, show_results

    @profile
    def first():
        block = bytearray(10 << 20)
        return len(block)

    report = io.StringIO()

    @profile(stream=report, precision=2)
    def second():
        return 2

    def third(n):
        block = bytearray(n << 20)
        return len(block)

    assert first() == 10 << 20 and second() == 2
    prof = LineProfiler()
    watched = prof(third)
    watched(5), watched(6)
    show_results(prof, stream=report, precision=1)
    for file, lines in prof.code_map.items():
        seen = dict(lines)
        print(file.endswith("program.py"), [values and values[2] for values in seen.values()])
    usage, value = memory_usage((third, (1,)), retval=True, max_usage=True, max_iterations=1)
    assert isinstance(usage, float) and value == 1 << 20
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="LOG %(message)s")
    profile(stream=LogFile("x"))(third)(1)
    print(report.getvalue())
"""


def test_code_written_for_memory_profiler_runs_unchanged(tmp_path: Path) -> None:
    actual = python(
        "from heaptide.compat import memory_profiler\nmemory_profiler.install(force=True)\n"
        + textwrap.dedent(FOR_MEMORY_PROFILER),
        tmp_path,
    )
    assert "heaptide" not in actual.stdout
    if subprocess.run([sys.executable, "-c", "import memory_profiler"], capture_output=True).returncode == 0:
        expected = python("pass\npass\n" + textwrap.dedent(FOR_MEMORY_PROFILER), tmp_path)
        assert [[row[3:] for row in table.rows] for table in tables(actual.stdout)] == [
            [row[3:] for row in table.rows] for table in tables(expected.stdout)
        ]
    printed = [line for line in actual.stdout.splitlines() if line.startswith("True ")]
    assert printed == ["True [2, 2, 2]"]
    assert "LOG Line #    Mem usage    Increment  Occurrences   Line Contents" in actual.stderr


def test_installed_memory_profiler_is_not_replaced(tmp_path: Path) -> None:
    pytest.importorskip("memory_profiler")
    done = python(
        """
        from heaptide.compat import memory_profiler
        try:
            memory_profiler.install()
        except ImportError as error:
            print(error)
        import memory_profiler as installed
        assert installed is not memory_profiler
        """,
        tmp_path,
    )
    assert done.stdout.startswith("memory_profiler is installed: ")


def test_command_of_memory_profiler_prints_the_table(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("@profile\ndef f():\n    return 1\nf()\n")
    command = [sys.executable, "-m", "heaptide.compat.memory_profiler", "--precision", "2", "job.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    (table,) = tables(done.stdout)
    assert table.row("return 1").visits == 1


def test_stream_of_a_report_may_be_any_text_file(tmp_path: Path) -> None:
    from heaptide import profile

    text = io.StringIO()
    assert profile(stream=text)(lambda value: value)(3) == 3
    assert len(tables(text.getvalue())) == 1
