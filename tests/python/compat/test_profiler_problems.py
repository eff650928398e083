"""Tests that with HEAPTIDE_COMPAT a problem of the profiler never raises an exception in the program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

_TRACKER = """
import os, sys
{imported}
{before}
with {tracker} as tracker:
    blocks = [bytearray(100_000) for _ in range(10)]
print("done", len(blocks))
"""

_PROBLEMS = {
    "already recording": ("import heaptide; heaptide.Tracker('outer.tide').start()", "memray.Tracker('x.bin')"),
    "nested": ("outer = memray.Tracker('outer.bin'); outer.__enter__()", "memray.Tracker('x.bin')"),
    "full disk": ("", "memray.Tracker(destination=memray.FileDestination('/dev/full', overwrite=True))"),
    "missing folder": ("", "memray.Tracker('missing/x.bin')"),
    "folder instead of the file": ("os.mkdir('x.bin')", "memray.Tracker('x.bin')"),
    "existing file": ("open('x.bin', 'w')", "memray.Tracker(destination=memray.FileDestination('x.bin'))"),
    # Modules are loaded first, because the other user may be unable to read the interpreter's folder.
    "read-only home": (
        "import threading, heaptide.redaction; heaptide.redaction.patterns(); os.chmod('.', 0o555); os.setuid(65534)",
        "memray.Tracker('x.bin')",
    ),
    "deleted folder": ("os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')", "memray.Tracker('x.bin')"),
    "socket of another machine": ("", "memray.Tracker(destination=memray.SocketDestination(1, '10.0.0.1'))"),
}


def _run(folder: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True
    )


@pytest.mark.parametrize("problem", _PROBLEMS)
def test_memray_program_runs_and_prints_one_line(tmp_path: Path, problem: str) -> None:
    before, tracker = _PROBLEMS[problem]
    if "setuid" in before and os.geteuid() != 0:
        pytest.skip("needs root to change the user")
    tmp_path.chmod(0o755)
    code = _TRACKER.format(imported="import memray", before=before, tracker=tracker)
    done = _run(tmp_path, code, HEAPTIDE_COMPAT="memray")
    assert (done.returncode, done.stdout) == (0, "done 10\n"), done.stderr
    assert done.stderr.startswith("heaptide: ") and done.stderr.count("\n") == 1, done.stderr
    assert "No module named" not in done.stderr


@pytest.mark.parametrize("problem", _PROBLEMS)
def test_program_that_chose_heaptide_gets_an_exception(tmp_path: Path, problem: str) -> None:
    before, tracker = _PROBLEMS[problem]
    if "setuid" in before and os.geteuid() != 0:
        pytest.skip("needs root to change the user")
    tmp_path.chmod(0o755)
    code = _TRACKER.format(imported="from heaptide.compat import memray", before=before, tracker=tracker)
    done = _run(tmp_path, code)
    assert done.returncode == 1 and "Traceback" in done.stderr


def test_explicit_tracker_raises_even_with_compat(tmp_path: Path) -> None:
    done = _run(tmp_path, "import heaptide; heaptide.Tracker('missing/x.tide').start()", HEAPTIDE_COMPAT="memray")
    assert done.returncode == 1 and "FileNotFoundError" in done.stderr


def test_decorated_task_runs_without_its_folder(tmp_path: Path) -> None:
    code = """
from heaptide import memray_profiling
open("memray_bin", "w").close()

@memray_profiling
def task():
    return 42

print(task())
"""
    done = _run(tmp_path, code, HEAPTIDE_COMPAT="memray")
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert "File exists" in done.stderr
    assert done.stderr.count("\n") == 1 and "runs without being recorded" in done.stderr


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring has no tool IDs before 3.12")
def test_function_of_memory_profiler_runs_if_lines_cannot_be_reported(tmp_path: Path) -> None:
    code = """
import sys
from memory_profiler import profile
for number in range(6):
    if sys.monitoring.get_tool(number) is None:
        sys.monitoring.use_tool_id(number, "other")

@profile
def work():
    return 42

print(work(), work(), file=sys.stderr)
"""
    done = _run(tmp_path, code, HEAPTIDE_COMPAT="memory_profiler")
    assert done.returncode == 0 and done.stderr.endswith("42 42\n"), done.stderr
    assert done.stderr.count("all tool IDs of sys.monitoring are taken") == 1
