"""Tests the summary that `heaptide run` prints after the program, and its options `--report` and `--open`."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import heaptide, python
from support.messages import one_sentence
from support.run_twice import write
from support.waiting import wait_until

LIBRARY = "def astype(n):\n    return bytearray(n)\n"
JOB = "import frames\ndef load():\n    return frames.astype(30_000_000)\nkept = load()\n"
FORKS = """
import os
for number in range(3):
    pid = os.fork()
    if pid == 0:
        held = bytearray(20_000_000)
        raise SystemExit(0)
    os.waitpid(pid, 0)
"""
IMPORT = """
import tables
peak = bytearray(30_000_000)
del peak
"""
LEAK = """
import time
kept = []
def handle():
    kept.append(bytearray(400_000))
end = time.monotonic() + 1
while time.monotonic() < end:
    handle()
    time.sleep(0.005)
"""


def run(folder: Path, *arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `heaptide run` in a folder without checking its exit code."""
    return heaptide("run", *arguments, check=False, cwd=folder, env={**os.environ, **env})


def messages(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the lines that Heaptide printed, without the prefix `heaptide: `."""
    lines = done.stderr.splitlines()
    assert all(line.startswith("heaptide: ") for line in lines), done.stderr
    return [line.removeprefix("heaptide: ") for line in lines]


def test_memory_of_imported_modules_is_not_reported_as_alive_at_the_end(tmp_path: Path) -> None:
    write(tmp_path / "site-packages" / "tables.py", "rows = bytearray(20_000_000)\n")
    write(tmp_path / "job.py", IMPORT)
    done = run(tmp_path, "-o", "job.tide", "job.py", PYTHONPATH=str(tmp_path / "site-packages"))
    output = messages(done)
    assert any("(job.py:3) holds most at the peak: 30.0 MB" in line for line in output), done.stderr
    assert not any("at the end:" in line or "--leaks" in line for line in output), done.stderr


def test_summary_names_no_line_for_blocks_without_a_stack(tmp_path: Path) -> None:
    done = run(tmp_path, "-c", "import missing_module")
    assert done.returncode == 1 and "peak memory" in done.stderr
    assert "stack trace unavailable" not in done.stderr


def test_summary_names_the_line_of_the_script_and_the_library_line_that_allocated(tmp_path: Path) -> None:
    write(tmp_path / "site-packages" / "frames.py", LIBRARY)
    write(tmp_path / "job.py", JOB)
    done = run(tmp_path, "-o", "job.tide", "job.py", PYTHONPATH=str(tmp_path / "site-packages"))
    first, largest, *rest = messages(done)
    assert done.returncode == 0 and re.match(r"peak memory: 3\d\.\d", first), done.stderr
    assert largest.startswith("load (job.py:3) holds most at the peak, allocated by astype (frames.py:2): 30.0")
    assert "still alive at the end" in largest
    assert rest == ["recorded into job.tide", "next: heaptide flamegraph job.tide, or heaptide stats job.tide"]


def test_summary_sums_the_memory_of_a_line_over_all_library_lines_it_calls(tmp_path: Path) -> None:
    library = "def first(n):\n    return bytearray(n)\ndef second(n):\n    return bytearray(n)\n"
    write(tmp_path / "site-packages" / "frames.py", library)
    job = "import frames\nlargest = frames.first(30_000_000)\nkept = frames.first(20_000_000), frames.second(20_000_000)\n"
    write(tmp_path / "job.py", job)
    lines = messages(run(tmp_path, "-o", "job.tide", "job.py", PYTHONPATH=str(tmp_path / "site-packages")))
    assert lines[1].startswith("<module> (job.py:3) holds most at the peak, the largest part allocated by "), lines
    assert ": 40.0 MB in 2 blocks, 57% of the heap at the peak" in lines[1]


def test_summary_suggests_recording_objects_if_arenas_hold_most_memory(tmp_path: Path) -> None:
    write(tmp_path / "job.py", "import sys\nkept = [str(n) * 3 for n in range(300_000)]\n")
    *_, note, recorded, following = messages(run(tmp_path, "-o", "job.tide", "job.py", "--name", "a b"))
    assert "are Python object arenas; record with --objects" in note
    assert recorded == "recorded into job.tide"
    command = "heaptide run --objects job.py --name 'a b'"
    assert following.startswith(f"next: {command}, or heaptide flamegraph ") and following.endswith(" job.tide")
    again = subprocess.run(
        ["sh", "-c", command.replace("heaptide", f"{sys.executable} -m heaptide", 1)],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "<listcomp> (job.py:2) holds most" in again.stderr or "<module> (job.py:2) holds most" in again.stderr


def test_leak_statistics_name_no_line_with_very_little_memory(tmp_path: Path) -> None:
    write(tmp_path / "job.py", "kept = [str(n) * 3 for n in range(300_000)]\nsmall = bytearray(20_000)\n")
    run(tmp_path, "-o", "job.tide", "job.py")
    shown = heaptide("stats", "--leaks", "job.tide", cwd=tmp_path).stdout
    assert "Python objects (arena)" in shown
    assert "job.py:2) holds most at the end" not in shown


def test_summary_names_a_line_that_grows_and_the_command_that_shows_the_leak(tmp_path: Path) -> None:
    write(tmp_path / "job.py", LEAK)
    lines = messages(run(tmp_path, "-o", "job.tide", "job.py"))
    [line] = [line for line in lines if "job.py:5" in line]
    assert line.startswith("handle (job.py:5) holds most at the peak: ") and "; grows steadily from " in line
    assert lines[-1].startswith("next: heaptide flamegraph --leaks job.tide")


def test_summary_names_the_largest_line_at_the_end_if_it_is_not_the_largest_at_the_peak(tmp_path: Path) -> None:
    write(tmp_path / "job.py", "def build():\n    return bytearray(9_000_000)\nkept = build()\nbytearray(30_000_000)\n")
    lines = messages(run(tmp_path, "-o", "job.tide", "job.py"))
    assert "all of it was freed before the end" in lines[1]
    assert lines[2].startswith("build (job.py:2) holds most at the end: 9.0")


def test_summary_of_a_program_with_children_names_their_captures(tmp_path: Path) -> None:
    write(tmp_path / "job.py", FORKS)
    lines = messages(run(tmp_path, "--follow-fork", "-o", "a b.tide", "job.py"))
    captures = sorted(path.name for path in tmp_path.glob("a b.tide.*"))
    assert len(captures) == 3
    assert "of 4 processes at their common peak" in lines[0]
    [children] = [line for line in lines if line.startswith("3 children recorded into ")]
    assert all(name in children for name in captures)
    assert lines[-1] == "next: heaptide flamegraph 'a b.tide'*, or heaptide stats 'a b.tide'*"
    shown = subprocess.run(["sh", "-c", "ls 'a b.tide'*"], cwd=tmp_path, capture_output=True, text=True)
    assert shown.stdout.splitlines() == ["a b.tide", *captures]


SPAWNS = """
import multiprocessing, time
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=time.sleep, args=(0,)) for _ in range(3)]
    [process.start() for process in processes]
    [process.join() for process in processes]
"""


@pytest.mark.parametrize("program", [FORKS, SPAWNS, SPAWNS.replace('"spawn"', '"fork"')], ids=["os", "spawn", "fork"])
def test_summary_counts_children_that_were_not_followed(tmp_path: Path, program: str) -> None:
    write(tmp_path / "job.py", program)
    done = run(tmp_path, "-o", "job.tide", "job.py")
    assert messages(done)[-1] == "3 child processes were not recorded: record them with --follow-fork"


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_summary_does_not_count_followed_multiprocessing_children_as_unrecorded(tmp_path: Path, method: str) -> None:
    write(tmp_path / "job.py", SPAWNS.replace('"spawn"', f'"{method}"'))
    lines = messages(run(tmp_path, "--follow-fork", "-o", "job.tide", "job.py"))
    assert any("children recorded into" in line for line in lines), lines
    assert not [line for line in lines if "not recorded" in line]


def test_summary_mentions_no_children_that_run_another_program(tmp_path: Path) -> None:
    code = "import subprocess; subprocess.run(['true'])"
    assert "child process" not in run(tmp_path, "-o", "job.tide", "-c", code).stderr


EXEC = """
import os, sys
for name in ("execv", "execvp"):
    try:
        getattr(os, name)("no-such-program", ["no-such-program"])
    except FileNotFoundError:
        pass
if os.fork() == 0:
    os.execv(sys.executable, [sys.executable, "-c", ""])
os.wait()
os.execv(sys.executable, [sys.executable, "-c", "print('replaced')"])
"""


@pytest.mark.parametrize("options", [[], ["--follow-fork"], ["-q"]])
def test_program_that_replaces_itself_is_reported_once(tmp_path: Path, options: list[str]) -> None:
    write(tmp_path / "job.py", EXEC)
    done = run(tmp_path, "-o", "job.tide", *options, "job.py")
    assert (done.returncode, done.stdout) == (0, "replaced\n")
    reported = [line for line in messages(done) if "replaced itself" in line]
    line = f"recorded into job.tide, until the program replaced itself with {sys.executable}"
    rest = "" if options else ", which is not recorded: record it with --follow-fork"
    assert reported == ([] if "-q" in options else [line + rest])


def test_paths_are_relative_to_the_users_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    lines = messages(run(tmp_path, "-o", "out/job.tide", "-c", "import os; os.chdir('/')"))
    assert "recorded into out/job.tide" in lines


@pytest.mark.parametrize(
    "damage", ["sys.executable = '/missing/python'", "sys.executable = '/bin/false'", "os.environ.clear()"]
)
def test_program_ends_as_usual_if_the_summary_cannot_be_computed(tmp_path: Path, damage: str) -> None:
    done = run(tmp_path, "-o", "job.tide", "-c", f"import os, sys; {damage}; sys.exit(3)")
    assert done.returncode == 3
    assert any(line.startswith("recorded into ") and line.endswith("job.tide") for line in messages(done))


def test_summary_is_printed_without_imports_and_sigchld_and_with_few_descriptors(tmp_path: Path) -> None:
    code = """
import builtins, resource, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
builtins.__import__ = None
sys.exit(4)
"""
    done = run(tmp_path, "-o", "job.tide", "-c", code)
    assert done.returncode == 4 and messages(done)[0].startswith("peak memory: "), done.stderr


def test_report_option_writes_the_page_in_the_same_call(tmp_path: Path) -> None:
    for options in (["--report", "page.html"], ["--report", "quiet.html", "-q"]):
        done = run(tmp_path, "-f", "-o", "job.tide", *options, "-c", "import os; os.chdir('/'); print('ran')")
        assert (done.returncode, done.stdout) == (0, "ran\n")
        assert (tmp_path / options[1]).read_text().startswith("<!doctype html>")
        assert ("page.html" in done.stderr) is ("-q" not in options)


def browser(folder: Path) -> Path:
    """Create a fake browser that writes the address it opens to a file."""
    script = write(
        folder / "browser", f'#!/bin/sh\necho "$1" >{folder}/opened.part\nmv {folder}/opened.part {folder}/opened\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def test_open_option_opens_the_page_in_the_browser(tmp_path: Path) -> None:
    done = run(tmp_path, "-o", "job.tide", "--open", "-c", "pass", BROWSER=str(browser(tmp_path)))
    assert done.returncode == 0, done.stderr
    wait_until(lambda: (tmp_path / "opened").exists(), "the browser")
    assert (tmp_path / "opened").read_text().strip() == (tmp_path / "job.html").as_uri()
    assert (tmp_path / "job.html").read_text().startswith("<!doctype html>")


def test_open_option_prints_the_path_of_the_page_without_a_browser(tmp_path: Path) -> None:
    done = run(tmp_path, "--open", "-c", "pass", DISPLAY="", WAYLAND_DISPLAY="", BROWSER="")
    [page] = tmp_path.glob("*.html")
    assert done.returncode == 0 and f"open {page} in one" in done.stderr


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["-o", "missing/job.tide"], "No such file or directory"),
        (["-o", "existing.tide"], "exists already"),
        (["--report", "existing.html"], "exists already"),
        (["--report", "missing/page.html"], "No such file or directory"),
        (["-o", "existing.part", "--open"], "existing.html exists already"),
    ],
)
def test_program_is_not_started_if_a_file_cannot_be_written(tmp_path: Path, options: list[str], reason: str) -> None:
    write(tmp_path / "existing.tide", "somebody's work")
    write(tmp_path / "existing.html", "somebody's page")
    done = run(tmp_path, *options, "-c", "print('ran')")
    assert (done.returncode, done.stdout) == (125, "")
    assert reason in one_sentence(done.stderr)
    assert (tmp_path / "existing.html").read_text() == "somebody's page"


def test_program_recorded_through_the_environment_runs_if_the_capture_cannot_be_written(tmp_path: Path) -> None:
    done = python("-c", "print('ran')", cwd=tmp_path, HEAPTIDE="run", HEAPTIDE_OUT="/proc/missing/job.tide")
    assert done.stdout == "ran\n" and "runs without being recorded" in one_sentence(done.stderr)


def test_summary_is_printed_if_the_program_removes_all_exit_handlers(tmp_path: Path) -> None:
    write(tmp_path / "job.py", "import atexit\natexit._clear()\nkept = bytearray(30_000_000)\n")
    done = heaptide("run", "-o", "job.tide", "job.py", cwd=tmp_path)
    assert "peak memory: 30.0 MB" in done.stderr and "recorded into job.tide" in done.stderr
    assert '"ended_in_order": true' in heaptide("stats", "--json", "job.tide", cwd=tmp_path).stdout
