"""Tests that Heaptide prints no traceback when a program dismantles the interpreter before it exits."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.commands import heaptide

SIZE = 3_000_000 + sys.getsizeof(b"")
START = "import atexit, builtins, io, os, sys\nheld = bytes(3_000_000)\n"
FORBID = "def forbid(*words, **options): raise ImportError('no imports any more')\nbuiltins.__import__ = forbid\n"
ENDINGS = {
    "modules cleared": "sys.modules.clear()",
    "modules cleared by an exit handler": "atexit.register(sys.modules.clear)",
    "modules replaced": "sys.modules = {}",
    "imports forbidden": FORBID,
    "imports forbidden by an exit handler": "@atexit.register\ndef last():\n" + textwrap.indent(FORBID, "    "),
    "no import function": "del builtins.__import__",
    "no finders": "sys.meta_path.clear(); sys.path_hooks.clear(); sys.path.clear()",
    "modules of heaptide removed": "[sys.modules.pop(n) for n in list(sys.modules) if n.startswith('heaptide')]",
    "standard error closed": "os.close(2)",
    "standard error replaced": "sys.stderr = sys.__stderr__ = io.StringIO()",
    "no standard error": "sys.stderr = None",
    "builtins deleted": "del builtins.open, builtins.isinstance, builtins.print, builtins.len, builtins.getattr",
    "daemon thread": "import threading\nthreading.Thread(target=lambda: [bytes(9) for _ in iter(int, 1)], daemon=True).start()",
}


def outcome(folder: Path, script: Path, *words: str, **variables: str) -> tuple[int, str, str]:
    """Run the script and return its exit code and output."""
    command = [sys.executable, *words, str(script)]
    done = subprocess.run(command, cwd=folder, env={**os.environ, **variables}, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("ending", ENDINGS)
def test_program_that_dismantles_the_interpreter_ends_without_a_traceback_of_heaptide(
    tmp_path: Path, ending: str
) -> None:
    script = tmp_path / "job.py"
    script.write_text(START + ENDINGS[ending] + "\n")
    bare = outcome(tmp_path, script)
    capture = tmp_path / "job.tide"
    quiet = {"HEAPTIDE_QUIET": "1", "HEAPTIDE_OUT": str(capture)}
    ways: list[tuple[list[str], dict[str, str]]] = [
        (["-m", "heaptide", "run", "-q", "-f", "-o", str(capture)], {}),
        ([], {"HEAPTIDE": "run", "HEAPTIDE_KEEP": "0", **quiet}),
        ([], {"HEAPTIDE": "run", "HEAPTIDE_KEEP": "0", "HEAPTIDE_MAX_SIZE": "1G", **quiet}),
        ([], {"HEAPTIDE_CONTROL": f"unix:{tmp_path}/control.sock", **quiet}),
        ([], {"HEAPTIDE_SIGNAL": "USR2", "HEAPTIDE_CONTROL_FILE": str(tmp_path / "control"), **quiet}),
    ]
    for words, variables in ways:
        assert outcome(tmp_path, script, *words, **variables) == bare, (words, variables)
        if words or "HEAPTIDE" in variables:
            assert f" size={SIZE} " in heaptide("parse", capture).stdout
            assert "did not end" not in heaptide("stats", capture).stdout


@pytest.mark.parametrize("ending", ["modules cleared", "imports forbidden"])
def test_summary_at_exit_is_printed_though_the_program_forbids_imports(tmp_path: Path, ending: str) -> None:
    script = tmp_path / "job.py"
    script.write_text(START + ENDINGS[ending] + "\n")
    for words, variables in (
        (["-m", "heaptide", "run", "-f", "-o", str(tmp_path / "job.tide")], {}),
        ([], {"HEAPTIDE": "run", "HEAPTIDE_OUT": str(tmp_path / "other.tide")}),
    ):
        _, _, stderr = outcome(tmp_path, script, *words, **variables)
        lines = stderr.splitlines()
        assert lines and all(line.startswith("heaptide: ") for line in lines), stderr
        assert "heaptide stats" in stderr and "continues" not in stderr


@pytest.mark.once
@pytest.mark.parametrize("ending", ["modules cleared", "imports forbidden"])
def test_recordings_that_the_program_left_running_are_completed_without_a_traceback(
    tmp_path: Path, ending: str
) -> None:
    script = tmp_path / "job.py"
    start = "import heaptide, heaptide.control\nheaptide.Tracker('job.tide').start()\nheaptide.control.start()\n"
    script.write_text(start + START + ENDINGS[ending] + "\n")
    code, stdout, stderr = outcome(tmp_path, script)
    assert (code, stdout, stderr) == (0, "", "")
    assert f" size={SIZE} " in heaptide("parse", tmp_path / "job.tide").stdout
    assert "did not end" not in heaptide("stats", tmp_path / "job.tide").stdout
