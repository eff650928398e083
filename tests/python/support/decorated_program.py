"""Runs programs with decorated functions, and finds the captures and reports that each call wrote."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from support.commands import heaptide, python

SIZE = 3_000_000 + sys.getsizeof(b"")


def run(folder: Path, program: str, check: bool = True, **env: str) -> tuple[list[Path], list[Path], str]:
    """Run a program with decorated functions. Returns the captures, the pages and the standard error."""
    (folder / "program.py").write_text(textwrap.dedent(program))
    done = python("program.py", cwd=folder, check=check, **env)
    reports = folder / "memray_bin"
    return sorted(reports.glob("*.bin")), sorted(reports.glob("*.html")), done.stderr


def n_blocks(capture: Path) -> int:
    """Count the blocks of `bytes(3_000_000)` in a capture."""
    return heaptide("parse", capture).stdout.count(f" size={SIZE} ")
