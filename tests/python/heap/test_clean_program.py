"""Tests that suspects and waste of a program without leaks leave out the interpreter, which users cannot change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import heaptide, python

PROGRAM = """
import collections, json, re, heaptide

class Order:
    def __init__(self, number):
        self.number = number

orders = [Order(number) for number in range(50)]
heaptide.heap_snapshot("job.heap", values=True)
"""


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clean")
    (folder / "job.py").write_text(PROGRAM)
    python("job.py", cwd=folder)
    return folder / "job.heap"


def test_program_without_leaks_has_no_suspects(snapshot: Path) -> None:
    assert json.loads(heaptide("heap", "suspects", "--json", snapshot).stdout)["suspects"] == []


def test_waste_leaves_out_the_import_system_and_interned_strings(snapshot: Path) -> None:
    rows = json.loads(heaptide("heap", "waste", "--json", "-n", "0", snapshot).stdout)["rows"]
    # `_module_locks` and `_RELOADING` are variables of importlib's modules, `_printed` and `_tokens` of Heaptide's.
    names = ("_frozen_importlib", "_module_locks", "_RELOADING", "_printed", "_tokens")
    assert not [row["what"] for row in rows if any(name in row["what"] for name in names)]
    assert sum(row["bytes"] for row in rows) < 60_000
    assert max(row["bytes"] for row in rows) < 8_000


def test_arguments_of_the_snapshot_itself_are_not_waste(snapshot: Path) -> None:
    rows = json.loads(heaptide("heap", "waste", "--json", "-n", "0", snapshot).stdout)["rows"]
    assert not [row["what"] for row in rows if "redact" in row["what"]]


@pytest.mark.parametrize("kind", ["list", "dict", "dict of module", "function"])
def test_examples_in_a_graph_are_objects_of_the_program_if_it_has_some(snapshot: Path, kind: str) -> None:
    drawn = heaptide("heap", "graph", "--type", kind, snapshot).stdout
    selected = [line for line in drawn.splitlines() if "#fde8e8" in line]
    assert len(selected) == 3
    if kind in ("list", "dict"):
        assert not [line for line in selected if "heap_snapshot" in line or "of module" in line], drawn


def test_small_share_of_waste_is_not_rounded_to_nothing(snapshot: Path) -> None:
    first, *rows = heaptide("heap", "waste", snapshot).stdout.splitlines()
    assert first.endswith("%.") and not first.endswith(" 0%."), first
    assert not any("(no owner)" in row for row in rows)


def test_class_of_the_script_is_found_by_its_bare_name_and_by_its_script(snapshot: Path) -> None:
    full = heaptide("heap", "paths", "--kind", "__main__.Order", snapshot).stdout
    assert full
    assert heaptide("heap", "paths", "--kind", "Order", snapshot).stdout == full
    assert heaptide("heap", "paths", "--kind", "job.Order", snapshot).stdout == full
