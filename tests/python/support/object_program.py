"""Runs programs that inspect their objects with ``heaptide.objects`` and print JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.json_program import run_json

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
    return run_json(tmp_path, HEAD, body)
