"""Runs programs that print one JSON document, and returns the document."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path
from typing import Any

from support.commands import PROGRAMS, python


def run_json(folder: Path, *parts: str, **env: str) -> Any:
    """Run a program, given in parts of indented text, and return the JSON document in its last line.

    The program can import the modules in tests/programs/heap.
    """
    program = folder / "program.py"
    program.write_text("".join(map(textwrap.dedent, parts)))
    env["PYTHONPATH"] = os.pathsep.join([str(PROGRAMS / "heap"), *env.get("PYTHONPATH", "").split()])
    return json.loads(python(program, cwd=folder, **env).stdout.splitlines()[-1])
