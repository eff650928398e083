"""Tests decks of flytekit's tasks: all types of tasks, both decorator orders, failures, and the content of the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from platform_support.browser import run_in_browser
from platform_support.deck_pages import Page
from support.commands import heaptide

MEMRAY = "Memray Flamegraph"
PEAK = "grow (tasks.py:17) holds most at the peak: ['8.00 MB in one block"


def page(local: dict[str, Any], case: str, number: int = -1) -> Page:
    """Return one of the pages that a case wrote, by default the last."""
    return Page(local["cases"][case]["decks"][number])


def captures(local: dict[str, Any], function: str) -> list[Path]:
    """Return the captures of a function's calls."""
    return sorted((local["folder"] / "memray_bin").glob(f"{function}.2*.bin"))


@pytest.mark.behaviour("decks")
def test_page_has_six_decks_with_the_flame_graph_among_them(local: dict[str, Any]) -> None:
    assert local["cases"]["below"]["outcome"] == 1_000_000
    decks = page(local, "below")
    assert decks.titles == ["Timeline", MEMRAY, "Source Code", "Dependencies", "Input", "Output"]
    assert PEAK in decks.findings()
    (capture, *_) = captures(local, "below")
    assert re.fullmatch(r"below\.\d{14}\.bin", capture.name)
    assert capture.with_name(f"flamegraph.{capture.stem}.html").exists()


@pytest.mark.behaviour("decks")
def test_table_reporter_gives_a_table_deck(local: dict[str, Any]) -> None:
    assert page(local, "tabled").titles == ["Memray Table"]
    assert list((local["folder"] / "memray_bin").glob("table.tabled.*.html"))


@pytest.mark.behaviour("both_orders")
def test_decorator_above_task_gives_the_same_deck(local: dict[str, Any]) -> None:
    above = local["cases"]["above"]
    assert (above["outcome"], above["executed"], len(above["decks"])) == (1_000_000, [1_000_000], 1)
    assert page(local, "above").titles == [MEMRAY]
    assert PEAK in page(local, "above").findings()


@pytest.mark.behaviour("parameters")
def test_task_keeps_its_name_documentation_and_interface(local: dict[str, Any]) -> None:
    interface = "(n: <class 'int'>) -> (o0: <class 'int'>)"
    assert local["names"] == {
        "below": ["tasks.below", interface, "Return the number."],
        "above": ["tasks.above", interface, ""],
        "a": ["tasks.a", interface, ""],
        "waiting": ["tasks.waiting", interface, ""],
        "planning": ["tasks.planning", interface, ""],
    }


@pytest.mark.behaviour("workflow")
def test_task_in_a_workflow_runs_once_and_not_at_compile_time(local: dict[str, Any]) -> None:
    assert local["executed_at_import"] == []
    whole = local["cases"]["whole"]
    assert (whole["outcome"], whole["executed"], len(whole["decks"])) == (1_000_000, [1_000_000], 1)
    assert page(local, "whole").titles == [MEMRAY]


@pytest.mark.behaviour("nested_tasks")
@pytest.mark.parametrize(
    ("case", "outcome", "title"),
    [
        ("waiting", 2_000_000, MEMRAY),
        ("yielding", [0, 1, 2], MEMRAY),
        ("planning", 1_000_000, MEMRAY),
        ("orchestrating", 2_000_000, MEMRAY),
    ],
)
def test_async_generator_dynamic_and_eager_tasks_get_decks(
    local: dict[str, Any], case: str, outcome: Any, title: str
) -> None:
    assert local["cases"][case]["outcome"] == outcome
    assert title in page(local, case).titles
    assert page(local, case).report()["head"]["peak_bytes"] >= 8_000_000


@pytest.mark.behaviour("nested_tasks")
def test_async_task_is_recorded_until_it_has_finished(local: dict[str, Any]) -> None:
    assert page(local, "waiting").report()["head"]["peak_bytes"] >= 16_000_000


@pytest.mark.behaviour("nested_tasks")
@pytest.mark.parametrize(("case", "function", "count"), [("mapped", "a", 3), ("mapped_below", "below", 2)])
def test_each_item_of_a_mapped_task_gets_a_deck(local: dict[str, Any], case: str, function: str, count: int) -> None:
    assert local["cases"][case]["outcome"] == [1_000_000, 2_000_000, 3_000_000][:count]
    decks = page(local, case)
    assert decks.titles == [MEMRAY, f"{MEMRAY}: {function}", f"{MEMRAY}: {function} 2"][:count]
    assert [decks.report(n)["head"]["peak_bytes"] for n in range(count)] == [8_000_000, 16_000_000, 24_000_000][:count]


@pytest.mark.behaviour("same_second")
def test_two_calls_within_one_second_keep_separate_files(local: dict[str, Any]) -> None:
    twice = local["cases"]["twice"]
    assert twice["outcome"] == [1_000_000, 1_000_000] and len(twice["decks"]) == 2
    names = {path.name for path in captures(local, "above")}
    assert len(names) == 4  # one direct call, one in the workflow, two in a row
    # The two calls in a row have the same second in their names. An earlier call may also have happened in it.
    seconds = [re.match(r"above\.(\d{14})(-\d+)?\.bin", name)[1] for name in names]  # type: ignore[index]
    assert len(set(seconds)) < 4, names


@pytest.mark.behaviour("failure")
@pytest.mark.parametrize("case", ["failing", "failing_below"])
def test_failing_task_keeps_its_exception_and_gets_its_deck(local: dict[str, Any], case: str) -> None:
    type_, text, cause, context = local["cases"][case]["outcome"]
    assert type_ == "KeyError" and "'mine'" in text and (cause, context) == ("NoneType", "NoneType")
    assert page(local, case).titles == [MEMRAY]
    assert PEAK in page(local, case).findings()


@pytest.mark.behaviour("two_decks")
def test_two_profiled_functions_give_two_decks(local: dict[str, Any]) -> None:
    decks = page(local, "in_parts")
    assert decks.titles == [
        "Memory Flamegraph",
        "Memory Flamegraph: second_part",
        "Memory Flamegraph: first_part",
    ]
    assert [decks.report(n)["head"]["peak_bytes"] for n in range(3)] == [8_000_000, 16_000_000, 8_000_000]


@pytest.mark.behaviour("names")
def test_short_and_unusual_names_get_decks_and_files(local: dict[str, Any]) -> None:
    assert page(local, "a").titles == [MEMRAY]
    assert sorted(page(local, "bin").titles) == [MEMRAY, f"{MEMRAY}: bin"]
    for name in ("a", "bin", "_lambda_"):
        assert captures(local, name), name


@pytest.mark.behaviour("follow_fork")
def test_forked_children_are_in_the_same_deck(local: dict[str, Any]) -> None:
    assert local["cases"]["pooled"]["outcome"] == 7_000_000
    head = page(local, "pooled").report()["head"]
    assert len(head["processes"]) == 3
    (capture,) = captures(local, "pooled")
    children = capture.parent.glob(f"{capture.name}.*")
    # One of the two children may have done all the work.
    assert any("child:" in heaptide("stats", path).stdout for path in children)


@pytest.mark.behaviour("options")
def test_interval_native_traces_and_leaks_reach_the_report(local: dict[str, Any]) -> None:
    (detailed,) = captures(local, "detailed")
    head = heaptide("parse", detailed).stdout.splitlines()[0]
    assert " native=true" in head
    libraries = {case: set(page(local, case).report()["locations"]["library"]) for case in ("detailed", "looping")}
    assert libraries["detailed"] > {-1} == libraries["looping"]  # -1: no native function
    assert page(local, "detailed").report()["head"]["first_view"]["measure"] == "leaked"
    assert page(local, "above").report()["head"]["first_view"]["measure"] == "peak"

    def samples(capture: Path) -> int:
        return sum(line.startswith("MEMORY_RECORD") for line in heaptide("parse", capture).stdout.splitlines())

    # The same loop, sampled each minute and each 10 ms; the first and the last sample are always taken.
    assert samples(detailed) < samples(captures(local, "looping")[0])


@pytest.mark.behaviour("unrendered")
def test_failing_reporter_leaves_a_message_and_the_task_succeeds(local: dict[str, Any]) -> None:
    assert local["cases"]["unrenderable"]["outcome"] == 1_000_000
    decks = page(local, "unrenderable")
    assert decks.titles == [MEMRAY]
    assert "The flamegraph of unrenderable could not be rendered: No such file" in decks.frames[0]["srcdoc"]
    assert local["stderr"].count("cannot render") == 1


@pytest.mark.behaviour("frame")
def test_page_is_in_a_sandboxed_frame_of_bounded_size(local: dict[str, Any]) -> None:
    decks = page(local, "above")
    (frame,) = decks.frames
    assert frame["sandbox"] == "allow-scripts allow-downloads"
    assert len(decks.text) <= 500_000
    assert not re.search(r'(src|href)="https?:', frame["srcdoc"])
    assert "default-src 'none'" in frame["srcdoc"]
    # Outside the frame, no ID occurs twice, and there are the IDs and styles of a task that is not profiled.
    profiled, unprofiled = page(local, "below"), page(local, "unprofiled")
    assert set(profiled.titles) - set(unprofiled.titles) == {MEMRAY} and unprofiled.frames == []
    assert (profiled.ids, profiled.styles) == (unprofiled.ids, unprofiled.styles)
    for each in (decks, profiled):
        assert len(set(each.ids)) == len(each.ids)


@pytest.mark.behaviour("frame", "flyte2")
def test_browser_draws_the_page_in_its_frame(local: dict[str, Any], flyte2: dict[str, Any]) -> None:
    pages = [local["cases"]["above"]["decks"][-1], str(flyte2["reports"]["above"][0])]
    run_in_browser(Path(__file__).with_name("decks.mjs"), PAGES=":".join(pages))
