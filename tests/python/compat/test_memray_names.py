"""Tests that every public name and option of the installed memray exists, and is described in the documentation."""

from __future__ import annotations

import argparse
import enum
import importlib
import inspect
import re
import types
from typing import Any

import pytest
from heaptide.compat.memray import _memray as own_private
from heaptide.compat.memray.command_line import get_argument_parser
from heaptide.compat.memray.records import AllocationRecord, Interval, TemporalAllocationRecord, TrackedObjectRecord
from support.commands import REPOSITORY
from support.memray_comparison import memray

pytestmark = pytest.mark.once

PAGE = (REPOSITORY / "docs" / "coming-from" / "memray-code.md").read_text()
NAMES, _, REST = PAGE.partition("\nNot offered: ")
NOT_OFFERED, _, OPTIONS = REST.partition("## Commands and options")
# The names in the first cells of the table. In the options, the first cell is the command.
WORDS = set(re.findall(r"\w+", " ".join(re.findall(r"^\| ([^|]*`[^|]*) \|", NAMES, re.MULTILINE))))
MODULES = ["", "_memray", "_errors", "_metadata", "_stats", "_version", "_destination", "_ipython", "commands"]


def public(module: types.ModuleType) -> list[str]:
    """Return the names that a module defines, without those that it imports from other packages."""
    names = getattr(module, "__all__", None) or vars(module)
    found = []
    for name in names:
        value = getattr(module, name)
        home = getattr(value, "__module__", module.__name__) or ""
        is_imported = isinstance(value, types.ModuleType) or not home.startswith("memray")
        if name == "__version__" or not (name.startswith("_") or is_imported):
            found.append(name)
    return found


def test_star_import_gives_the_same_names() -> None:
    of_heaptide = importlib.import_module("heaptide.compat.memray")
    assert sorted(of_heaptide.__all__) == sorted(memray.__all__)


@pytest.mark.parametrize("module", MODULES)
def test_every_name_is_offered_or_documented_as_missing(module: str) -> None:
    of_memray = importlib.import_module(f"memray.{module}".rstrip("."))
    of_heaptide = importlib.import_module(f"heaptide.compat.memray.{module}".rstrip("."))
    names = ["main", "get_argument_parser"] if module == "commands" else public(of_memray)
    assert names
    for name in names:
        if not hasattr(of_heaptide, name):
            assert f"`_memray.{name}`" in NOT_OFFERED, name
        else:
            assert name in WORDS, name
            value = getattr(of_memray, name)
            if isinstance(value, type) and issubclass(value, enum.Enum):
                assert {member.name: member.value for member in value} == {
                    member.name: member.value for member in getattr(of_heaptide, name)
                }


def instances() -> dict[str, Any]:
    """Return an instance of each class whose instances have attributes that the class itself lacks."""
    trace = own_private.FileReader.__new__(own_private.FileReader)
    return {
        "AllocationRecord": AllocationRecord((1, 2, 3, 4, 5, 6, 1, 0), trace),  # type: ignore[arg-type]
        "TemporalAllocationRecord": TemporalAllocationRecord(1, 6, "", trace, []),  # type: ignore[arg-type]
        "TrackedObjectRecord": TrackedObjectRecord(1, 2, True, "", trace),  # type: ignore[arg-type]
        "Interval": Interval(0, None, 1, 1),
    }


def test_classes_have_all_attributes_and_parameters() -> None:
    private = importlib.import_module("memray._memray")
    made = instances()
    for name in (*made, "FileReader", "Tracker", "SocketReader", "MemorySnapshot"):
        of_memray, of_heaptide = getattr(private, name), made.get(name) or getattr(own_private, name)
        for attribute in dir(of_memray):
            if not attribute.startswith("_") and attribute != "stack_id":
                assert attribute in dir(of_heaptide), (name, attribute)
                assert attribute in WORDS or name in ("Interval", "MemorySnapshot"), attribute
    for method in ("get_allocation_records", "get_high_watermark_allocation_records", "get_leaked_allocation_records"):
        of_memray, of_heaptide = (getattr(module.FileReader, method) for module in (memray, own_private))
        assert list(inspect.signature(of_heaptide).parameters) == list(inspect.signature(of_memray).parameters), method


def commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the subcommands."""
    (found,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return dict(found.choices)


def options(parser: argparse.ArgumentParser) -> dict[Any, Any]:
    """Return the options of a parser."""
    return {
        (*action.option_strings, action.dest): (type(action).__name__, action.default, action.choices, action.nargs)
        for action in parser._actions
        if not isinstance(action, argparse._SubParsersAction)
    }


def test_every_command_has_the_same_options_as_memray() -> None:
    of_memray = importlib.import_module("memray.commands").get_argument_parser()
    of_heaptide = get_argument_parser()
    assert options(of_heaptide) == options(of_memray)
    assert list(commands(of_heaptide)) == list(commands(of_memray))
    for name, parser in {"memray": of_memray, **commands(of_memray)}.items():
        if name != "memray":
            assert options(commands(of_heaptide)[name]) == options(parser), name
        (row,) = (line for line in OPTIONS.splitlines() if line.startswith(f"| `{name}` |"))
        for action in parser._actions:
            for option in action.option_strings:
                assert f"`{option}`" in row, (name, option)
