"""Tests tasks in flytekit's container entry point, which a Flyte cluster runs for each of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from platform_support.deck_pages import Page
from platform_support.environments import Environment

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.behaviour("remote")
@pytest.mark.parametrize(("task", "has_failed"), [("above", False), ("failing", True), ("waiting", False)])
def test_deck_is_stored_next_to_the_outputs(flyte: Environment, tmp_path: Path, task: str, has_failed: bool) -> None:
    flyte.run(
        *("python", PROGRAMS / "execute_remotely.py", task, tmp_path),
        cwd=tmp_path,
        PYTHONPATH=str(PROGRAMS),
        TMPDIR=str(tmp_path),
    )
    assert (tmp_path / "outputs" / "error.pb").exists() == has_failed
    page = Page(tmp_path / "outputs" / "deck.html")
    assert page.titles == ["Memray Flamegraph"]
    assert page.report()["head"]["peak_bytes"] >= 8_000_000


# Python imports this at its start. Captures get their names from `time.strftime`.
SAME_SECOND = """
import time
strftime = time.strftime
time.strftime = lambda text, moment=None: strftime(text, time.gmtime(1_700_000_000))
"""


@pytest.mark.behaviour("same_second")
def test_repeated_executions_in_one_folder_keep_separate_files(flyte: Environment, tmp_path: Path) -> None:
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(SAME_SECOND)
    for _ in range(2):
        command = ("python", PROGRAMS / "execute_remotely.py", "failing", tmp_path)
        flyte.run(*command, cwd=tmp_path, PYTHONPATH=f"{tmp_path / 'clock'}:{PROGRAMS}", TMPDIR=str(tmp_path))
    names = {path.name for path in (tmp_path / "memray_bin").glob("failing.*.bin")}
    assert names == {"failing.20231114221320.bin", "failing.20231114221320-2.bin"}
