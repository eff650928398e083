"""Runs programs that inspect their objects with ``heaptide.objects`` and print JSON."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

from support.commands import python

HEAD = """
import gc, io, json, sys
from heaptide import objects

class Node:
    def __init__(self, name):
        self.name = name
        self.next = None
"""


def run(tmp_path: Path, body: str) -> Any:
    """Run a program that starts with `HEAD` and prints a JSON document last, and return the document."""
    program = tmp_path / "program.py"
    program.write_text(HEAD + textwrap.dedent(body))
    return json.loads(python(program, cwd=tmp_path).stdout.splitlines()[-1])
