"""Tests that `--html` has the same spellings in all commands that make a page on request: `--html` and `--html=FILE`."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import heaptide
from support.messages import one_sentence

JOB = """
import heaptide
with heaptide.job("mail"):
    kept = bytearray(500_000)
print("ran")
"""
# The words before the option, the words after it, and the default file.
COMMANDS = {
    "diff": (["diff"], ["job.tide", "job.tide"], "heaptide-diff-job.html"),
    "jobs": (["jobs"], ["job.tide"], "heaptide-jobs-job.html"),
    "lines": (["lines", "--from", "job.tide"], [], "heaptide-lines-job.html"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.py").write_text(JOB)
    heaptide("run", "-q", "-o", "job.tide", "job.py", cwd=tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_page_is_written_to_the_default_file_or_the_given_one(folder: Path, name: str) -> None:
    first, last, default = COMMANDS[name]
    for option, file in (("--html", default), ("--html=given.html", "given.html")):
        done = heaptide(*first, option, *last, cwd=folder)
        assert done.stdout == f"Wrote {file}\n"
        assert "</html>" in (folder / file).read_text()


@pytest.mark.parametrize("name", ["diff", "jobs"])
def test_two_files_for_one_page_are_refused(folder: Path, name: str) -> None:
    first, last, _ = COMMANDS[name]
    done = heaptide(*first, "--html=a.html", "-o", "b.html", *last, check=False, cwd=folder)
    assert done.returncode == 2
    assert one_sentence(done.stderr) == "--html=a.html and -o b.html name two files: use one"
    assert not list(folder.glob("*.html"))


def test_lines_of_a_program_take_the_file_as_the_next_word(folder: Path) -> None:
    done = heaptide("lines", "--html", "given.html", "job.py", check=False, cwd=folder)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "ran"), done.stderr
