"""Tests how scripts/test_cpython.py compares the results of CPython's own tests; the tests themselves take hours."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from support.commands import REPOSITORY

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """Import the script, which imports another one from its folder."""
    folder = REPOSITORY / "scripts"
    sys.path.insert(0, str(folder))
    try:
        spec = importlib.util.spec_from_file_location("compare_cpython", folder / "test_cpython.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


def test_results_are_read_per_test_method(script: ModuleType, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite><testcase name="t.A.one"/><testcase name="t.A.two"><failure/></testcase>'
        '<testcase name="t.A.two"><skipped/></testcase><testcase name="t.A.three"><error/></testcase>'
        "</testsuite></testsuites>"
    )
    assert script.results(report) == {"t.A.one": ["ok"], "t.A.two": ["failure+skipped"], "t.A.three": ["error"]}
    assert script.results(tmp_path / "missing.xml") == {}


def test_test_that_only_sometimes_fails_bare_is_not_a_difference(script: ModuleType) -> None:
    bare = script.Outcome("0", 1, "w", tests={"t.stable": ["ok"], "t.flaky": ["ok"]})
    recorded = script.Outcome("2", 1, "w", tests={"t.stable": ["failure"], "t.flaky": ["failure"]})
    found = [name for name, _, _ in script.differences("t", bare, recorded)]
    assert found == ["t.flaky", "t.stable"]
    bare.add(script.Outcome("2", 1, "w", tests={"t.stable": ["ok"], "t.flaky": ["failure"]}))
    recorded.add(script.Outcome("2", 1, "w", tests={"t.stable": ["error"], "t.flaky": ["failure"]}))
    assert list(script.differences("t", bare, recorded)) == [("t.stable", "ok", "error or failure")]
    assert bare.n_runs == 2


def test_missing_tests_and_crashes_are_differences(script: ModuleType) -> None:
    bare = script.Outcome("0", 1, "w", tests={"t.one": ["ok"]})
    killed = script.Outcome("-11", 1, "w")
    assert list(script.differences("t", bare, killed)) == [("t.one", "ok", "missing")]
    same_tests = script.Outcome("-11", 1, "w", tests={"t.one": ["ok"]})
    assert list(script.differences("t", bare, same_tests)) == [("t", "ended with 0", "ended with -11")]


def test_known_differences_on_the_page_have_reasons_and_match_patterns(script: ModuleType) -> None:
    for row in script.known_differences():
        assert len(row.reason) > 20
        assert row.versions == "all" or {*row.versions.split(", ")} <= {*script.VERSIONS}
        assert row.modes == "all" or {*row.modes.split(", ")} <= {*script.MODES}
    known = script.Known("test.test_os.*", "3.11, 3.12", "env", "a reason")
    assert known.covers("3.12", "env", "test.test_os.Files.test_one")
    assert not known.covers("3.13", "env", "test.test_os.Files.test_one")
    assert not known.covers("3.12", "run", "test.test_os.Files.test_one")
    assert script.explained([known], "3.11", "env", "test.test_os.x") == "a reason"
    assert script.explained([known], "3.11", "env", "test.test_io.x") == ""


def test_row_counts_modules_and_differences_and_names_are_short(script: ModuleType) -> None:
    row = script.Row("3.12", "env")
    for module, found in (("test_os", []), ("test.test_asyncio.test_tasks", [(("t.one", "ok", "failure"), "reason")])):
        row.modules.add(module)
        row.add(10, found)
    assert row.text() == "| 3.12 | env | 2 | 20 | 19 | 1 | 0 |"
    assert script.named(["test_os", "test.test_asyncio.test_tasks"]) == "`test_os`, `test_asyncio.test_tasks`"
    assert script.named([]) == "none"
