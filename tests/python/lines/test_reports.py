"""Tests the reports of ``@profile`` and where they are written, compared with memory_profiler if it is installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.line_profiled_program import Run, python
from support.line_tables import tables

__all__ = ["python"]

# The example of COMPSs' documentation, and five functions whose memory changes in other ways.
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
    def in_called_functions():
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

    # Uses up the memory that imports have freed: a block in that memory would not raise the resident size.
    filler = [bytearray(1 << 20) for _ in range(8)] + [bytes(20000) for _ in range(500)]
    increment(1)
    in_a_loop()
    in_called_functions()
    in_branches(3)
    in_a_with_block()
    in_small_pieces()
"""


def test_table_has_the_columns_and_values_of_memory_profiler_within_1_mib(python: Run) -> None:
    pytest.importorskip("memory_profiler")
    actual = tables(python(SIX_FUNCTIONS, "heaptide", warm=True).stdout)
    expected = tables(python(SIX_FUNCTIONS, "memory_profiler", warm=True).stdout)
    assert len(actual) == len(expected) == 6
    for table, reference in zip(actual, expected, strict=True):
        assert table.file == reference.file
        assert [(row.line, row.text) for row in table.rows] == [(row.line, row.text) for row in reference.rows]
        # The first row shows the whole process, which contains psutil under memory_profiler.
        base = table.rows[0].usage - reference.rows[0].usage
        for row, other in zip(table.rows[1:], reference.rows[1:], strict=True):
            assert (row.increment is None) == (other.increment is None), (row, other)
            if row.increment is not None:
                assert abs(row.increment - other.increment) < 1, (row, other)
                assert abs(row.usage - base - other.usage) < 1, (row, other)
        if "in_small_pieces" not in table.rows[1].text:
            # memory_profiler counts the iterations of comprehensions as visits.
            assert [row.visits for row in table.rows] == [row.visits for row in reference.rows]


def test_increments_of_the_documented_example(python: Run) -> None:
    (table, *_) = tables(python(SIX_FUNCTIONS, "heaptide", warm=True).stdout)
    increments = [table.row(text).increment for text in ("a = [1]", "b = [2]", "c = [3]", "del b")]
    assert increments == pytest.approx([7.6, 7.6, 76.3, -7.6], abs=0.5)
    assert table.rows[0].increment == table.rows[0].usage
    # The kernel updates a process's page count in batches of up to 64 pages per processor.
    assert table.row("return value + 1").increment == pytest.approx(0, abs=0.5)


def test_short_report_has_file_function_and_peak_in_both_layouts(python: Run) -> None:
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


def test_report_file_is_chosen_at_call_time_and_holds_whole_reports_of_many_processes(
    python: Run, tmp_path: Path
) -> None:
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
        assert len(tables(done.stdout)) == 1, "without the variable a report goes to standard output"
        reports = tables((tmp_path / "reports.txt").read_text())
        assert len(reports) == 30
        assert all(report.row("return number").visits == 1 for report in reports)
        (tmp_path / "reports.txt").unlink()


def test_initial_and_final_memory_are_those_of_the_process(python: Run) -> None:
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
    fields = dict(line.split(": ") for line in done.stdout.splitlines()[-5:])
    assert list(fields) == ["Job name", "Task start time", "Elapsed time", "Initial memory", "Final memory"]
    initial, final = (float(fields[key].split(" ")[0]) for key in ("Initial memory", "Final memory"))
    assert final - initial == pytest.approx(20, abs=1)
    assert initial < 100


def test_failed_reports_are_one_sentence_each_and_the_program_continues(python: Run) -> None:
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
        os.environ["HEAPTIDE_PROFILING_FILE"] = "/dev/null/file"
        assert other() == other() == 6  # reported once
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


def test_each_backend_measures_the_increment(python: Run) -> None:
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


def test_functions_and_blocks_are_written_to_the_timeline(python: Run, tmp_path: Path) -> None:
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
