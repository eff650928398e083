"""Runs programs with `@profile` under plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

FIRST_REPORT = "import heaptide, io; heaptide.profile(stream=io.StringIO())(lambda: None)()"


@pytest.fixture
def python(tmp_path: Path) -> Run:
    """Run a program, given as text, under plain Python.

    With `warm`, a report is made before the program's first line. The first report imports code and allocates tables.
    If a test compares sizes, these must not count for a line of the program.
    """

    def run(
        text: str, *arguments: str, env: dict[str, str] | None = None, code: int = 0, warm: bool = False
    ) -> subprocess.CompletedProcess[str]:
        script = tmp_path / "program.py"
        first_line, _, rest = textwrap.dedent(text).partition("\n")
        assert first_line == ""
        script.write_text(f"{FIRST_REPORT if warm else ''}\n{rest}")
        done = subprocess.run(
            [sys.executable, script, *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            # Every large block is a separate mapping, so freeing one always lowers the resident size.
            env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", **(env or {})},
        )
        assert done.returncode == code, done.stderr
        return done

    return run
