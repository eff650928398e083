"""Programs with decorated functions: run, and what each call left is found."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from support.commands import heaptide, python

SIZE = 3_000_000 + sys.getsizeof(b"")


def run(folder: Path, program: str, check: bool = True, **env: str) -> tuple[list[Path], list[Path], str]:
    """Run a program that decorates. Returns the captures, the pages and what was said."""
    (folder / "program.py").write_text(textwrap.dedent(program))
    done = python("program.py", cwd=folder, check=check, **env)
    place = folder / "memray_bin"
    return sorted(place.glob("*.bin")), sorted(place.glob("*.html")), done.stderr


def n_blocks(capture: Path) -> int:
    """How many of the blocks that programs here make, `bytes(3_000_000)`, are in a capture."""
    return heaptide("parse", capture).stdout.count(f" size={SIZE} ")
