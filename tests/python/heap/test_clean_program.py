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


def examples(snapshot: Path, kind: str, *options: str) -> list[str]:
    """Return the lines of the objects from which a graph starts."""
    drawn = heaptide("heap", "graph", "--type", kind, *options, snapshot).stdout
    return [line for line in drawn.splitlines() if "#fde8e8" in line]


@pytest.mark.parametrize("kind", ["list", "dict", "dict of module", "function"])
def test_graph_has_three_examples_of_a_type_also_if_it_holds_no_data(snapshot: Path, kind: str) -> None:
    assert len(examples(snapshot, kind)) == 3


# Prints the addresses of the only rows that are data of the program.
ROWS = """
import importlib, sys, heaptide

class Row(list):
    pass

described = []

def make_other_rows(first, end):
    for n in range(first, end):
        setattr(heaptide, f"row_{n}", Row())
        setattr(importlib, f"row_{n}", Row())
        sys.path_importer_cache[f"/folder/{n}"] = Row()
        described.append({"__all__": Row()})

make_other_rows(0, 30)
rows = [Row() for _ in range(3)]
make_other_rows(30, 60)
print(*[hex(id(row)) for row in rows])
heaptide.heap_snapshot("rows.heap", values=True)
"""


def test_examples_in_a_graph_are_data_before_variables_of_heaptide_and_the_import_system(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(ROWS)
    rows = python("job.py", cwd=tmp_path).stdout.split()
    for n_examples in (3, 4, 200):
        drawn = examples(tmp_path / "rows.heap", "Row", "--examples", str(n_examples))
        assert len(drawn) == n_examples
        assert [row for row in rows if not any(row in line for line in drawn)] == []


def test_small_share_of_waste_is_not_rounded_to_nothing(snapshot: Path) -> None:
    first, *rows = heaptide("heap", "waste", snapshot).stdout.splitlines()
    assert first.endswith("%.") and not first.endswith(" 0%."), first
    assert not any("(no owner)" in row for row in rows)


def test_class_of_the_script_is_found_by_its_bare_name_and_by_its_script(snapshot: Path) -> None:
    full = heaptide("heap", "paths", "--kind", "__main__.Order", snapshot).stdout
    assert full
    assert heaptide("heap", "paths", "--kind", "Order", snapshot).stdout == full
    assert heaptide("heap", "paths", "--kind", "job.Order", snapshot).stdout == full
