"""Tests that a program under `heaptide run` has the same stack frames as under plain Python, without Heaptide's."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.call_stacks import Recording, read_allocations
from support.commands import heaptide

PRINT_FRAMES = """
import inspect
import sys
import threading
import traceback


def chain(frame):
    while frame is not None:
        print("chain", frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back


def inspect_frames():
    traceback.print_stack(file=sys.stdout)
    chain(sys._getframe())
    for entry in inspect.stack():
        print("inspect", entry.filename, entry.lineno, entry.function, entry.code_context)
    chain(sys._current_frames()[threading.get_ident()])
    try:
        sys._getframe(50)
    except ValueError as error:
        print(error)
    bytes(1_000_001)


def fail():
    raise RuntimeError("on purpose")


class Final:
    def __del__(self):
        inspect_frames()


def generate():
    yield inspect_frames()


inspect_frames()
next(generate())
Final()
(lambda: inspect_frames())()
eval("inspect_frames()")
thread = threading.Thread(target=inspect_frames)
thread.start()
thread.join()
try:
    fail()
except RuntimeError as error:
    traceback.print_exc(file=sys.stdout)
    print([(frame.f_code.co_name, line) for frame, line in traceback.walk_tb(error.__traceback__)])
if hasattr(sys, "_getframemodulename"):
    print(sys._getframemodulename(0), sys._getframemodulename(1))
print(sys._getframe().f_back is None)
import atexit

atexit.register(inspect_frames)
sys.stdout.flush()
"""


def run(prefix: list[str], folder: Path) -> tuple[int, str, str]:
    """Run Python with these arguments, and return exit code, output and errors."""
    done = subprocess.run([sys.executable, *prefix], cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the program as script, module and package."""
    (tmp_path / "inspect_frames.py").write_text(PRINT_FRAMES)
    (tmp_path / "fails.py").write_text(PRINT_FRAMES + "\n\ndef outer():\n    fail()\n\n\nouter()\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "__main__.py").write_text(PRINT_FRAMES)
    return tmp_path


PROGRAMS = {
    "script": ["inspect_frames.py"],
    "module": ["-m", "inspect_frames"],
    "package": ["-m", "package"],
    "folder": ["package"],
    "code": ["-c", PRINT_FRAMES],
    "failing script": ["fails.py"],
    "failing module": ["-m", "fails"],
    "failing code": ["-c", PRINT_FRAMES + "\nfail()"],
    "exit": ["-c", "import sys, traceback\ntry:\n    sys.exit(3)\nfinally:\n    traceback.print_exc()"],
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_program_prints_the_same_frames_as_without_recording(folder: Path, program: list[str]) -> None:
    plain = run(program, folder)
    recorded = run(["-m", "heaptide", "run", "-q", "-f", "-o", "x.tide", *program], folder)
    assert recorded == plain


@pytest.mark.parametrize("program", list(PROGRAMS.values())[:5], ids=list(PROGRAMS)[:5])
def test_recorded_stacks_start_with_the_program(folder: Path, program: list[str]) -> None:
    run(["-m", "heaptide", "run", "-q", "-f", "-o", "x.tide", *program], folder)
    lines = heaptide("parse", folder / "x.tide").stdout.splitlines()
    found = Recording(folder / "inspect_frames.py", "", lines, list(read_allocations(lines))).of(1_000_001)
    own = str(Path(heaptide_file()).parent)
    assert len(found) == 7
    assert [call for one in found for call in one.stack if call.file.startswith(own)] == []
    names = [call.name for call in found[0].stack]
    is_module = program[0] == "-m" or program == ["package"]
    assert names == (["_run_module_as_main", "_run_code"] if is_module else []) + ["<module>", "inspect_frames"]


def test_command_and_module_record_the_same_stacks(
    folder: Path, heaptide_run: Callable[..., Any], parse: Callable[[Path], list[str]]
) -> None:
    command = Path(sysconfig.get_path("scripts")) / "heaptide"
    options = ["run", "-q", "-o", "one.tide", "inspect_frames.py"]
    subprocess.run([str(command), *options], cwd=folder, check=True, capture_output=True)
    heaptide("run", "-q", "-o", "other.tide", "inspect_frames.py", cwd=folder)
    stacks = [
        [one.stack for one in read_allocations(parse(folder / name)) if one.allocator == "calloc"]
        for name in ("one.tide", "other.tide")
    ]
    assert len(stacks[0]) >= 6
    assert stacks[0] == stacks[1]


@pytest.mark.parametrize("options", [[], ["--objects"]], ids=["exact", "objects"])
def test_reports_name_no_file_of_heaptide(folder: Path, heaptide_run: Callable[..., Any], options: list[str]) -> None:
    done = heaptide_run(folder / "inspect_frames.py", *options)
    own = str(Path(heaptide_file()).parent)
    for command in (["tree"], ["tree", "--leaks"], ["stats", "-n", "10000"], ["summary"]):
        report = heaptide(*command, done.capture).stdout
        assert [line for line in report.splitlines() if own in line] == []


def heaptide_file() -> str:
    """Return the path of the heaptide package's __init__.py."""
    command = [sys.executable, "-c", "import heaptide; print(heaptide.__file__)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_tree_shows_the_calls_and_lines_of_the_program(
    heaptide_run: Callable[..., Any], stats: Callable[..., Any], tmp_path: Path
) -> None:
    script = tmp_path / "shown.py"
    script.write_text("def leaf(n):\n    return bytes(n)\n\ndef work():\n    return leaf(5_000_000)\n\nkept = work()\n")
    done = heaptide_run(script)
    tree = heaptide("tree", done.capture).stdout
    positions = [tree.index(f"{name} {script}:{line}") for name, line in (("<module>", 7), ("work", 5), ("leaf", 2))]
    assert positions == sorted(positions)
    assert stats(done.capture)["top_allocations_by_size"][0]["location"] == f"leaf:{script}:2"


def test_recording_can_be_replayed_into_stacks_without_gaps(tmp_path: Path, heaptide_run: Callable[..., Any]) -> None:
    done = heaptide_run("import threading\nkept = [bytes(n) for n in range(1_000_000, 1_000_050)]\n")
    lines = heaptide("parse", done.capture).stdout.splitlines()
    recorded = Recording(tmp_path, "", lines, list(read_allocations(lines)))
    for n in range(1_000_000, 1_000_050):
        [allocation] = recorded.of(n)
        assert [call.line for call in allocation.stack] == [2] * len(allocation.stack)
