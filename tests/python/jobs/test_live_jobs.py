"""Tests `heaptide live --by job` and `--job`: the memory of the jobs of a running program."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import heaptide

pytestmark = pytest.mark.once

# Two ended jobs, a running job and code outside of jobs keep memory. Then the program waits for a line of input.
PROGRAM = """
import sys, heaptide

kept = []

def load(size):
    kept.append(bytearray(size))

load(400_000)
for month in ("January", "February"):
    with heaptide.job("import", key=month):
        load(1_000_000)
        temporary = bytearray(9_000_000)
        del temporary
with heaptide.job("export"):
    load(3_000_000)
    print("holding", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(params=[(), ("--aggregate",)], ids=["exact", "aggregate"])
def capture(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """The capture of a running program that keeps its memory."""
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "heaptide", "run", "-q", *request.param, "-o", "program.tide", "program.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None and program.stdin is not None
        try:
            assert program.stdout.readline() == "holding\n"
            yield tmp_path / "program.tide"
            program.communicate("\n")
        finally:
            program.kill()


def live(*arguments: str | Path) -> str:
    """Return the output of the live view without a terminal."""
    return heaptide("live", "--plain", *arguments).stdout


def test_live_view_lists_jobs_with_their_running_runs_and_live_memory(capture: Path) -> None:
    seen = live("--by", "job", capture)
    assert re.search(r"export +. +1 +. +3\.0\d MB +. +\d+\.\d\d%", seen), seen
    assert re.search(r"import +. +0 +. +2\.00 MB +. +\d+\.\d\d%", seen), seen
    assert re.search(r"<no job> +. +0 ", seen), seen


def test_live_view_of_one_job_shows_only_its_memory(capture: Path) -> None:
    def bytes_of(function: str, text: str) -> str:
        found = re.search(rf"{function} at \S+ +. +(\d+\.\d+ MB)", text)
        assert found, text
        return found[1]

    assert bytes_of("load", live(capture)) == "5.40 MB"
    seen = live("--job", "imp*", capture)
    assert bytes_of("load", seen) == "2.00 MB"
    assert "chosen jobs: 2.00 MB in 2 blocks" in seen
    assert bytes_of("load", live("--job", "import", "--job", "export", capture)) == "5.00 MB"
    assert "<no job>" not in live("--by", "job", "--job", "import", capture)


def test_live_view_reports_a_job_name_that_does_not_exist(capture: Path) -> None:
    done = heaptide("live", "--plain", "--job", "imprt", capture, check=False)
    assert done.returncode != 0 and done.stdout == ""
    assert "no job matches: there are export, import" in done.stderr
