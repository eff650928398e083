"""Runs programs whose jobs are traced by ``heaptide.leaks`` and that print JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.json_program import run_json

HEAD = """
import json, sys
from heaptide import leaks

KEPT = [None] * 3000
n_kept = 0

def keep_three():
    global n_kept
    for _ in range(3):
        KEPT[n_kept] = bytearray(100_000)
        n_kept += 1

def keep_nothing():
    buffers = [bytearray(100_000) for _ in range(3)]
    table = {str(number): [number] for number in range(100)}
    table["itself"] = table
    return None
"""


def run(tmp_path: Path, body: str) -> Any:
    """Run a program that starts with `HEAD` and prints one JSON document, and return the document."""
    return run_json(tmp_path, HEAD, body)
