"""``@profile``: what its reports say and where they go, beside memory_profiler where that is to be had."""

from __future__ import annotations

import os

import pytest
from support.line_profiled_program import python
from support.line_tables import tables

__all__ = ["python"]

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

    # What imports have given back is used up first: a block that is put there would not show.
    filler = [bytearray(1 << 20) for _ in range(8)] + [bytes(20000) for _ in range(500)]
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
