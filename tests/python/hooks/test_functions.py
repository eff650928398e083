"""Tests that blocks of the C library's allocation functions are recorded with size and function until freed."""

from __future__ import annotations

import itertools
import json

import pytest
from support.commands import heaptide
from support.hooked_recording import Recording, recording

__all__ = ["recording"]

SIZES = {
    "malloc": 100_003,
    "calloc": 70_049,
    "realloc": 20_011,
    "reallocarray": 90_033,
    "posix_memalign": 40_009,
    "aligned_alloc": 45_312,
    "memalign": 50_021,
    "valloc": 60_013,
    "pvalloc": 70_001,
}


@pytest.mark.parametrize("function", SIZES)
def test_allocation_is_recorded_once_with_size_and_function_until_it_is_freed(
    recording: Recording, function: str
) -> None:
    block = recording.printed["every_allocator"][function]
    assert recording.allocator(block, SIZES[function]) == function
    assert recording.state(block, SIZES[function]) == "freed"


def test_freed_blocks_are_not_reported_as_leaked(recording: Recording) -> None:
    for scenario in ("every_allocator", "empty_block", "realloc_in_place", "realloc_to_nothing", "odd_length"):
        assert scenario not in recording.leaks


def test_unfreed_blocks_are_reported_as_leaked_to_the_byte(recording: Recording) -> None:
    sizes = (91_009, 21_003, 2_011, 7_721, 4_019, 4_352, 5_021, 6_029, 7_013)
    assert recording.leaks["every_allocator_leaks"] == sum(sizes)


def test_empty_block_is_recorded_and_freed(recording: Recording) -> None:
    block = recording.printed["empty_block"]["block"]
    assert recording.allocator(block, 0) == "malloc"
    assert recording.state(block, 0) == "freed"


def test_realloc_in_place_frees_the_old_block_and_allocates_the_new_size(recording: Recording) -> None:
    printed = recording.printed["realloc_in_place"]
    assert printed["old"] == printed["new"]
    assert recording.allocator(printed["old"], 100_043) == "malloc"
    assert recording.state(printed["old"], 100_043) == "freed"
    assert recording.allocator(printed["new"], 100_019) == "realloc"
    assert recording.state(printed["new"], 100_019) == "freed"


@pytest.mark.parametrize(
    ("function", "first", "old_size", "new_size"),
    [("realloc", "malloc", 3_019, 100_003_000), ("reallocarray", "reallocarray", 13 * 307, 13 * 7_701_000)],
)
def test_moving_realloc_frees_the_old_block_and_allocates_a_new_one(
    recording: Recording, function: str, first: str, old_size: int, new_size: int
) -> None:
    printed = recording.printed[f"{function}_moved"]
    assert printed["old"] != printed["new"]
    assert recording.allocator(printed["old"], old_size) == first
    assert recording.state(printed["old"], old_size) == "freed"
    assert recording.allocator(printed["new"], new_size) == function
    assert recording.leaks[f"{function}_moved"] == new_size


def test_realloc_to_size_zero_frees_the_block(recording: Recording) -> None:
    printed = recording.printed["realloc_to_nothing"]
    assert printed["answers"] == [0, 0]
    assert recording.state(printed["first"], 9_001) == "freed"
    assert recording.state(printed["second"], 9_007) == "freed"


@pytest.mark.parametrize(
    ("scenario", "size"),
    [
        ("realloc_that_fails", 80_021),
        ("reallocarray_that_overflows", 80_051),
        ("reallocarray_that_is_too_large", 80_071),
    ],
)
def test_failed_realloc_leaves_the_old_block_live(recording: Recording, scenario: str, size: int) -> None:
    printed = recording.printed[scenario]
    assert (printed["result"], printed["error"]) == (0, recording.printed["errors"]["ENOMEM"])
    assert recording.state(printed["block"], size) == "alive"
    assert recording.leaks[scenario] == size


def test_block_can_be_freed_after_a_failed_realloc(recording: Recording) -> None:
    printed = recording.printed["realloc_that_fails_and_free"]
    assert (printed["result"], printed["error"]) == (0, recording.printed["errors"]["ENOMEM"])
    assert recording.state(printed["block"], 80_039) == "freed"
    assert "realloc_that_fails_and_free" not in recording.leaks


def test_failed_allocations_are_not_recorded(recording: Recording) -> None:
    answers = recording.printed["allocations_that_fail"]
    assert set(map(tuple, answers.values())) == {(0, recording.printed["errors"]["ENOMEM"])}
    assert "allocations_that_fail" not in recording.leaks
    assert max(recording.sizes()) < 2**32


def test_failed_posix_memalign_keeps_the_callers_pointer_and_is_not_recorded(recording: Recording) -> None:
    printed = recording.printed["posix_memalign_that_fails"]
    assert printed["results"] == [recording.printed["errors"]["ENOMEM"], recording.printed["errors"]["EINVAL"]]
    assert printed["stored"] == [0xDEAD0, 0xDEAD0]
    assert 40_031 not in recording.sizes()
    assert all(event.address != 0xDEAD0 for event in recording.events)


def test_free_of_a_null_pointer_is_not_recorded(recording: Recording) -> None:
    assert recording.printed["free_of_nothing"] == {"error": 77}
    assert all(event.address != 0 for event in recording.events if event.type == "FREE")


def test_hooks_do_not_change_errno(recording: Recording) -> None:
    assert recording.printed["error_numbers"] == {"changes": [0, 0]}


def test_no_block_is_recorded_over_a_live_block(recording: Recording) -> None:
    found = json.loads(heaptide("stats", "--json", recording.capture).stdout)
    assert found["heaptide"]["allocations_over_live_blocks"] == 0
    assert found["heaptide"]["lost"] == []


# Allocations inside functions of the C library go through the same hooks.


def test_string_copied_by_the_c_library_is_recorded(recording: Recording) -> None:
    assert recording.allocator(recording.printed["copy_of_a_string"]["copy"], 11_004) == "malloc"
    assert recording.leaks["copy_of_a_string"] == 11_004


def test_getline_buffer_is_recorded_with_its_final_size(recording: Recording) -> None:
    printed = recording.printed["line_of_a_file"]
    assert printed["size"] > 9_973
    assert recording.allocator(printed["line"], printed["size"]) == "realloc"
    assert recording.leaks["line_of_a_file"] == printed["size"]


@pytest.mark.parametrize(
    ("scenario", "structure", "least"), [("line_of_a_file", "file", 200), ("folder", "folder", 32_768)]
)
def test_open_files_and_directories_of_the_c_library_are_recorded_and_freed(
    recording: Recording, scenario: str, structure: str, least: int
) -> None:
    address = recording.printed[scenario][structure]
    events = [event for event in recording.events if event.address == address]
    # Other blocks may use the same address before and after; the size identifies the right one.
    ends = [
        (end.type, event.allocator)
        for event, end in itertools.pairwise(events)
        if event.type == "ALLOCATION" and event.size >= least
    ]
    assert ("FREE", "malloc") in ends
