"""Tests reports of Flyte 2: a tab for each profiled call, also of tasks that fail."""

from __future__ import annotations

from typing import Any

import pytest
from platform_support.deck_pages import Page


@pytest.mark.behaviour("flyte2")
@pytest.mark.parametrize(
    ("task", "outcome", "count"),
    [
        ("below", 1_000_000, 1),
        ("above", 1_000_000, 1),
        ("plain", 1_000_000, 1),
        ("parallel", 6_000_000, 3),
        ("mapped", 3_000_000, 2),
    ],
)
def test_each_profiled_task_has_a_tab(flyte2: dict[str, Any], task: str, outcome: int, count: int) -> None:
    assert flyte2[task] == outcome
    pages = [Page(path) for path in flyte2["reports"][task]]
    assert len(pages) == count
    for page in pages:
        is_table = task in ("plain", "mapped")
        assert page.titles == ["Memory Table" if is_table else "Memray Flamegraph"]
        assert page.frames[0]["sandbox"] == "allow-scripts allow-downloads"
        assert page.report()["head"]["peak_bytes"] >= 8_000_000
    if task == "mapped":
        assert sorted(page.report()["head"]["peak_bytes"] for page in pages) == [8_000_000, 16_000_000]
    assert flyte2["names"] == {"above": "memory.above", "below": "memory.below"}


@pytest.mark.behaviour("flyte2_failure")
@pytest.mark.parametrize("task", ["failing", "plain_failing"])
def test_failing_task_stores_its_report(flyte2: dict[str, Any], task: str) -> None:
    assert flyte2[task] == "mine"
    (path,) = flyte2["reports"][task]
    assert Page(path).titles == ["Memray Flamegraph"]
    assert "holds most at the peak" in Page(path).findings()
