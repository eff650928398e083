"""Tests the options of `heaptide run`: the path of the capture, refusals, and messages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import heaptide
from support.messages import one_sentence
from support.resident_readings import GROW_AND_SHRINK, shortest_time_of_three_readings
from support.run_twice import write
from support.waiting import wait_until

CODE = "x = bytes(1_000_000); print('ran')"


def run(folder: Path, *arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    """Run `heaptide run` in a folder without checking its exit code."""
    return heaptide("run", *arguments, check=False, cwd=folder, **options)


def captures(folder: Path) -> list[str]:
    """Return the names of the captures in a folder."""
    return sorted(path.name for path in folder.glob("*.tide"))


@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        (["sub/job.py"], "job.py"),
        (["-m", "package.job"], "package.job"),
        (["-c", "import os; print(os.getpid())"], "string"),
        (["-"], "stdin"),
        (["package"], "package"),
        (["package/"], "package"),
    ],
)
def test_default_capture_is_named_after_program_and_process_in_the_working_folder(
    tmp_path: Path, arguments: list[str], label: str
) -> None:
    code = "import os; print(os.getpid()); os.chdir('/')"
    for name in ("sub/job.py", "package/__init__.py", "package/job.py", "package/__main__.py"):
        write(tmp_path / name, code if name != "package/__init__.py" else "")
    done = run(tmp_path, "-q", *arguments, input=code)
    assert done.returncode == 0 and done.stderr == ""
    assert captures(tmp_path) == [f"heaptide-{label}.{int(done.stdout)}.tide"]


@pytest.mark.parametrize("spelling", ["-o FILE", "-oFILE", "--output FILE", "--output=FILE", "-qo FILE"])
def test_output_option_names_the_capture(tmp_path: Path, spelling: str) -> None:
    done = run(
        tmp_path, *spelling.replace("FILE", "named.tide").split(), "-c", "import os; os.mkdir('x'); os.chdir('x')"
    )
    assert done.returncode == 0
    assert captures(tmp_path) == ["named.tide"] and captures(tmp_path / "x") == []


def test_existing_file_is_refused_and_the_program_does_not_run(tmp_path: Path) -> None:
    existing = write(tmp_path / "existing.tide", "somebody's work")
    done = run(tmp_path, "-o", "existing.tide", "-c", CODE)
    assert (done.returncode, done.stdout) == (125, "")
    message = one_sentence(done.stderr)
    assert "existing.tide exists already" in message and "--force" in message
    assert existing.read_text() == "somebody's work"


def test_force_replaces_an_existing_file(tmp_path: Path) -> None:
    write(tmp_path / "existing.tide", "somebody's work" * 100_000)
    for option in ("-f", "--force"):
        done = run(tmp_path, option, "-q", "-o", "existing.tide", "-c", CODE)
        assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
        assert "ALLOCATION" in heaptide("parse", tmp_path / "existing.tide").stdout


def test_quiet_run_prints_nothing(tmp_path: Path) -> None:
    for option in ("-q", "--quiet"):
        done = run(tmp_path, option, "-c", CODE)
        assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


def test_exit_summary_has_the_peak_the_capture_and_a_report_command(tmp_path: Path) -> None:
    done = run(tmp_path, "-o", "named.tide", "-c", CODE)
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "peak" in done.stderr and "named.tide" in done.stderr
    command = re.search(r"heaptide stats \S*named\.tide", done.stderr)
    assert command, done.stderr
    assert heaptide(*command.group().split()[1:], cwd=tmp_path).stdout


def test_exit_summary_has_the_peak_resident_size_of_the_reports(tmp_path: Path) -> None:
    # The largest size is reached at the end, after the last sample.
    done = run(tmp_path, "-o", "named.tide", "-c", "kept = b'x' * (50 << 20)")
    found = re.search(r"on the heap, (.+) resident", done.stderr)
    assert found, done.stderr
    assert f"Peak resident size:\n\t{found.group(1)}\n" in heaptide("stats", "named.tide", cwd=tmp_path).stdout


def test_exit_summary_of_a_sampled_run_calls_its_peak_an_estimate(tmp_path: Path) -> None:
    done = run(tmp_path, "-o", "named.tide", "--sample=4k", "-c", CODE)
    assert re.search(r"peak memory: about .+ on the heap \(sampled\)", done.stderr), done.stderr


def test_exit_summary_follows_all_output_of_the_program(tmp_path: Path) -> None:
    code = "import atexit, os; atexit.register(os.write, 2, b'at exit\\n'); raise SystemExit('failed')"
    done = run(tmp_path, "-o", "named.tide", "-c", code)
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and lines[:2] == ["failed", "at exit"]
    assert all(line.startswith("heaptide: ") for line in lines[2:]) and len(lines) > 2


def test_exit_summary_is_omitted_when_standard_error_is_closed(tmp_path: Path) -> None:
    done = run(tmp_path, "-o", "named.tide", "-c", "import sys, os; sys.stderr.close(); print('ran')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


def test_options_after_the_program_belong_to_the_program(tmp_path: Path) -> None:
    script = write(tmp_path / "job.py", "import sys; print(sys.argv[1:])")
    words = ["--help", "-o", "x", "--version", "-f", "--", "-m", "--sample"]
    for target in ([script], ["-m", "job"], ["-c", script.read_text()], ["--", script]):
        assert run(tmp_path, "-q", *target, *words).stdout == f"{words}\n"
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "words",
    [["--nonsense", "job.py"], ["-z", "job.py"], [], ["-q"], ["-o"], ["-m"], ["-c"], ["--interval", "0", "job.py"]]
    + [
        ["--interval", "soon", "job.py"],
        ["--sample=none", "job.py"],
        ["--sample=0", "job.py"],
        ["--force=1", "job.py"],
    ],
)
def test_wrong_options_exit_with_2_and_run_nothing(tmp_path: Path, words: list[str]) -> None:
    write(tmp_path / "job.py", "print('ran')")
    done = run(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, "") and done.stderr
    assert captures(tmp_path) == []


def test_help_names_the_main_options(tmp_path: Path) -> None:
    done = run(tmp_path, "--help")
    assert done.returncode == 0 and done.stderr == ""
    for option in ("-o", "-f", "-q", "--objects", "--trace-python-allocators", "--sample", "--aggregate"):
        assert option in done.stdout
    for option in ("--follow-fork", "--interval", "-m", "-c"):
        assert option in done.stdout
    assert heaptide("--help").stdout.count("\n  run ") == 1


def test_command_and_module_behave_the_same() -> None:
    command = Path(sys.executable).with_name("heaptide")
    if not command.exists():
        pytest.skip(f"no heaptide command next to {sys.executable}")
    for words in (["--version"], ["--help"], ["run", "--help"], ["nonsense"]):
        first, second = (
            subprocess.run([*start, *words], capture_output=True)
            for start in ([command], [sys.executable, "-m", "heaptide"])
        )
        assert (first.returncode, first.stdout, first.stderr) == (second.returncode, second.stdout, second.stderr)


def test_interval_sets_how_often_the_resident_size_is_read(tmp_path: Path) -> None:
    def shortest_time(interval: str, enough: float) -> float:
        """Run a program until three readings lie close enough together, and return how long they took."""
        capture = tmp_path / f"{interval}.tide"
        command = [sys.executable, "-m", "heaptide", "run", "-q", "-o", str(capture), "--interval", interval]
        with subprocess.Popen([*command, "-c", GROW_AND_SHRINK + "grow_and_shrink()"], cwd=tmp_path) as program:
            try:
                wait_until(lambda: shortest_time_of_three_readings(capture) < enough, "three readings")
            finally:
                (tmp_path / "enough").touch()
        assert program.returncode == 0
        (tmp_path / "enough").unlink()
        return shortest_time_of_three_readings(capture)

    # Three readings take two intervals, or a little more than one if the first reading is late.
    assert shortest_time("5", enough=0.09) < 0.09
    # Times in the file are rounded to a millisecond.
    assert shortest_time("100", enough=60) > 0.098


def test_modes_are_written_into_the_capture(tmp_path: Path) -> None:
    for option, mark in [
        ("--objects", "objects=true"),
        ("--trace-python-allocators", "objects=true"),
        ("--sample", "sample_bytes=524288"),
        ("--sample=64k", "sample_bytes=65536"),
        ("--aggregate", "aggregate=true"),
        ("--follow-fork", "follow_fork=true"),
    ]:
        capture = tmp_path / f"{option}.tide"
        done = run(tmp_path, "-q", "-o", capture, option, "-c", CODE)
        assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
        assert f" {mark} " in heaptide("parse", capture).stdout.splitlines()[0]


def test_capture_holds_the_command_line_and_process(tmp_path: Path) -> None:
    script = write(tmp_path / "job.py", "import os; print(os.getpid())")
    done = run(tmp_path, "-q", "-o", "named.tide", script, "a", "b c")
    header = heaptide("parse", tmp_path / "named.tide").stdout.splitlines()[0]
    assert f" pid={int(done.stdout)} parent_pid={os.getpid()} " in header
    assert header.endswith(f"command_line={script} a 'b c'") and f" executable={sys.executable} " in header
    assert f" python_version={sys.hexversion:08x} " in header and f" working_directory={tmp_path} " in header
