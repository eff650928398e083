"""Tests ``heaptide lines``: the tables of a program that it runs, and those of a capture."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import Finished, heaptide
from support.line_tables import tables
from support.messages import one_sentence
from support.pages import assert_runs_only_its_own_script, data_of

pytestmark = pytest.mark.once

PROGRAM = """
    import sys

    def helper(size):
        return bytearray(size)

    @profile
    def work(size):
        block = helper(size << 20)
        kept.append(helper(1 << 20))
        del block
        return size

    @profile()
    def other():
        return 1

    kept = []
    work(10)
    work(20)
    other()
    print("the program's own", sys.argv[1:])
    sys.exit(3)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A program with two functions decorated with the builtin ``profile``."""
    path = tmp_path / "job.py"
    path.write_text(textwrap.dedent(PROGRAM))
    return path


@pytest.fixture
def capture(heaptide_run: Callable[..., Finished]) -> Path:
    """A capture of the same program without its decorators."""
    text = textwrap.dedent(PROGRAM).replace("@profile\n", "").replace("@profile()\n", "")
    return heaptide_run(text, check=False).capture


def test_profile_is_a_builtin_and_all_calls_of_a_function_make_one_table(script: Path) -> None:
    done = heaptide(
        "lines", "-p", "2", script, "--its", "own", check=False, env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    )
    assert done.returncode == 3, "the exit code of the program is lost"
    assert done.stdout.startswith("the program's own ['--its', 'own']\n")
    work, other = tables(done.stdout)
    assert work.file == str(script)
    assert work.row("block = helper").increment == pytest.approx(30, abs=1)
    assert work.row("del block").increment == pytest.approx(-30, abs=1)
    assert work.row("return size").visits == 2
    assert work.rows[0].usage == pytest.approx(work.rows[0].increment, abs=2)
    assert other.row("return 1").visits == 1
    assert ".00 MiB" in done.stdout


def test_tables_equal_those_of_memory_profiler(script: Path, tmp_path: Path) -> None:
    pytest.importorskip("memory_profiler")
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    actual = tables(heaptide("lines", script, check=False, env=environment).stdout)
    command = [sys.executable, "-m", "memory_profiler", str(script)]
    expected = tables(subprocess.run(command, capture_output=True, text=True, env=environment).stdout)
    for table, reference in zip(actual, expected, strict=True):
        assert [row.visits for row in table.rows] == [row.visits for row in reference.rows]
        assert [row.text for row in table.rows] == [row.text for row in reference.rows]


def test_output_is_appended_and_the_page_needs_no_network(script: Path, tmp_path: Path) -> None:
    for _ in range(2):
        done = heaptide("lines", "-o", "report.txt", "-f", "--html", "report.html", script, check=False, cwd=tmp_path)
        assert done.stdout == f"the program's own []\nWrote {tmp_path / 'report.html'}\n"
    assert len(tables((tmp_path / "report.txt").read_text())) == 4
    assert_runs_only_its_own_script(tmp_path / "report.html")
    functions = data_of(tmp_path / "report.html")["tables"]
    assert len(functions) == 2
    changes = [row["cells"][1] or 0 for function in functions for row in function["rows"][1:]]
    assert max(changes) > 0 > min(changes)
    again = heaptide("lines", "--html", "report.html", script, check=False, cwd=tmp_path)
    assert again.returncode == 1 and "exists already" in again.stderr and again.stdout == ""


def test_columns_of_recorded_allocations_follow_the_others(script: Path) -> None:
    done = heaptide("lines", "--columns", "allocated,alive,allocations", script, check=False)
    assert "Occurrences    Allocated        Alive  Allocations   Line Contents" in done.stdout
    (row,) = [line for line in done.stdout.splitlines() if "block = helper" in line]
    _, _, _, _, _, visits, allocated, _, alive, _, allocations, *_ = row.split()
    assert (int(visits), float(alive)) == (2, 0)
    assert float(allocated) == pytest.approx(30, abs=0.1) and int(allocations) >= 2
    (row,) = [line for line in done.stdout.splitlines() if "kept.append" in line]
    assert float(row.split()[8]) == pytest.approx(2, abs=0.1)


def test_decorator_takes_columns_and_a_page(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        textwrap.dedent("""
        from heaptide import profile
        kept = []

        @profile(columns=["allocated", "peak", "alive", "allocations"], html="page.html")
        def work():
            for _ in range(5):
                block = bytearray(1 << 20)
            kept.append(block)
            small = ["%d" % n for n in range(1000)]
            return len(small)

        assert work() == 1000
        import heaptide
        with heaptide.Tracker("mine.tide"):
            work()
        """)
    )
    done = subprocess.run([sys.executable, "job.py"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (row, blank) = [line.split() for line in done.stdout.splitlines() if "block = bytearray" in line]
    assert float(row[6]) == pytest.approx(5, abs=0.1), "allocated"
    assert float(row[8]) == pytest.approx(2, abs=0.1), "the old block is freed after the new one is allocated"
    assert float(row[10]) == pytest.approx(1, abs=0.1), "alive"
    (small, _) = [line.split() for line in done.stdout.splitlines() if "small = [" in line]
    assert int(small[12]) >= 1000, "every object is counted"
    assert blank[6:] == ["block", "=", "bytearray(1", "<<", "20)"], "the program's own recording has no columns"
    assert done.stderr.count("\n") == 1 and "being recorded already" in done.stderr
    assert len(data_of(tmp_path / "page.html")["tables"]) == 2
    assert sorted(os.listdir(tmp_path)) == ["job.py", "mine.tide", "page.html"]


def test_capture_gives_tables_of_functions_without_decorators(capture: Path) -> None:
    done = heaptide("lines", "--from", capture)
    report = done.stdout
    assert "Line #    Allocated      At peak        Alive  Allocations   Line Contents" in report
    cells = {}
    for line in report.splitlines():
        words = line.split()
        if "MiB" in words:
            cells[line[60:].strip()] = words
    allocated = {text: float(words[1]) for text, words in cells.items()}
    at_peak = {text: float(words[3]) for text, words in cells.items()}
    alive = {text: float(words[5]) for text, words in cells.items()}
    assert allocated["block = helper(size << 20)"] == pytest.approx(30, abs=0.1), (
        "a line includes the functions it calls"
    )
    assert at_peak["block = helper(size << 20)"] == pytest.approx(20, abs=0.1)
    assert alive["block = helper(size << 20)"] == pytest.approx(0, abs=0.1)
    assert alive["kept.append(helper(1 << 20))"] == pytest.approx(2, abs=0.1)
    assert allocated["return bytearray(size)"] == pytest.approx(32, abs=0.1)
    assert allocated["work(20)"] == pytest.approx(21, abs=0.1), "lines of the module are also shown"


def test_capture_gives_one_function_as_json_and_as_a_page(capture: Path, tmp_path: Path) -> None:
    answer = json.loads(heaptide("lines", "--json", "--function", "work", "--from", capture).stdout)
    (function,) = answer["functions"]
    assert function["function"] == "work"
    texts = [line["text"] for line in function["lines"]]
    assert texts[0] == "def work(size):" and texts[-1] == "    return size"
    (row,) = [line for line in function["lines"] if "kept.append" in line["text"]]
    assert row["alive_bytes"] >= 2 << 20 and row["allocations"] >= 2
    done = heaptide("lines", "--from", capture, "--function", "work", "--html", tmp_path / "x.html")
    assert done.stdout == f"Wrote {tmp_path / 'x.html'}\n"
    assert len(data_of(tmp_path / "x.html")["tables"]) == 1


def test_bad_input_is_one_sentence_and_an_exit_code(script: Path, capture: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.tide").write_bytes(b"")
    cases = [
        (["--from", "missing.tide"], 1),
        (["--from", "empty.tide"], 1),
        (["--from", script], 1),
        (["--from", capture, "--function", "nothing"], 1),
        ([], 2),
    ]
    for arguments, code in cases:
        done = heaptide("lines", *arguments, check=False, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (code, ""), arguments
        one_sentence(done.stderr)
    for arguments in (["-p", "99", script], ["--backend", "gpu", script], ["--columns", "x", script]):
        assert heaptide("lines", *arguments, check=False).returncode == 2
    (tmp_path / "plain.py").write_text("print('ran')\n")
    done = heaptide("lines", tmp_path / "plain.py")
    assert done.stdout == "ran\n" and "no function with @profile was called" in done.stderr
    done = heaptide("lines", "-o", "/nonexistent/x", script, check=False)
    assert done.returncode == 3 and done.stderr.startswith(
        "heaptide: the tables could not be written to /nonexistent/x"
    )


def test_columns_without_a_readable_recording_are_reported_once(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        textwrap.dedent("""
        import os, sys, tempfile

        @profile
        def nothing():
            pass

        @profile
        def work():
            return bytearray(1 << 20)

        @profile
        def other():
            return bytearray(1 << 20)

        nothing(), work(), other()
        if sys.argv[1:]:
            [folder] = [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("heaptide-lines-")]
            os.unlink(os.path.join(tempfile.gettempdir(), folder, "call.tide"))
        """)
    )
    command = ("lines", "--columns", "allocated", "job.py")
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    complete = heaptide(*command, cwd=tmp_path, env=environment)
    assert complete.stderr == "", "a function that allocates nothing is no failure"
    damaged = heaptide(*command, "damage", cwd=tmp_path, env=environment)
    assert damaged.stdout.count("Filename: ") == 3
    expected = "columns of allocations stay empty because the recording could not be read: "
    assert one_sentence(damaged.stderr).startswith(expected), damaged.stderr


@pytest.mark.parametrize("option", ["--html", "-o"])
def test_functions_with_the_imported_decorator_are_part_of_the_page(tmp_path: Path, script: Path, option: str) -> None:
    program = (
        script.read_text().replace("import sys\n", "import sys, heaptide\n").replace("@profile", "@heaptide.profile")
    )
    script.write_text(program)
    page = tmp_path / "report.html"
    done = heaptide("lines", option, page, script, check=False)
    assert done.returncode == 3 and done.stderr == "", done.stderr
    work, other = tables(done.stdout)
    assert (work.row("return size").visits, other.row("return 1").visits) == (2, 1)
    assert [table["function"] for table in data_of(page)["tables"]] == ["work", "other"]
