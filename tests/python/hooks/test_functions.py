"""Every hooked function: its size, its allocator, what ends its block, and what it leaves alive."""

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
def test_an_allocation_is_recorded_once_with_its_size_and_function_and_ends_with_its_free(
    recording: Recording, function: str
) -> None:
    block = recording.told["every_allocator"][function]
    assert recording.maker(block, SIZES[function]) == function
    assert recording.fate(block, SIZES[function]) == "freed"


def test_what_is_freed_is_not_shown_as_leaked(recording: Recording) -> None:
    for scenario in ("every_allocator", "empty_block", "realloc_in_place", "realloc_to_nothing", "odd_length"):
        assert scenario not in recording.leaks


def test_what_is_not_freed_is_shown_as_leaked_to_the_byte(recording: Recording) -> None:
    sizes = (91_009, 21_003, 2_011, 7_721, 4_019, 4_352, 5_021, 6_029, 7_013)
    assert recording.leaks["every_allocator_leaks"] == sum(sizes)


def test_an_empty_block_is_recorded_and_freed(recording: Recording) -> None:
    block = recording.told["empty_block"]["block"]
    assert recording.maker(block, 0) == "malloc"
    assert recording.fate(block, 0) == "freed"


def test_realloc_in_place_ends_the_old_block_and_begins_one_of_the_new_size(recording: Recording) -> None:
    told = recording.told["realloc_in_place"]
    assert told["old"] == told["new"]
    assert recording.maker(told["old"], 100_043) == "malloc"
    assert recording.fate(told["old"], 100_043) == "freed"
    assert recording.maker(told["new"], 100_019) == "realloc"
    assert recording.fate(told["new"], 100_019) == "freed"


@pytest.mark.parametrize(
    ("function", "first", "old_size", "new_size"),
    [("realloc", "malloc", 3_019, 100_003_000), ("reallocarray", "reallocarray", 13 * 307, 13 * 7_701_000)],
)
def test_a_realloc_that_moves_ends_the_old_block_and_begins_one_elsewhere(
    recording: Recording, function: str, first: str, old_size: int, new_size: int
) -> None:
    told = recording.told[f"{function}_moved"]
    assert told["old"] != told["new"]
    assert recording.maker(told["old"], old_size) == first
    assert recording.fate(told["old"], old_size) == "freed"
    assert recording.maker(told["new"], new_size) == function
    assert recording.leaks[f"{function}_moved"] == new_size


def test_realloc_to_nothing_frees(recording: Recording) -> None:
    told = recording.told["realloc_to_nothing"]
    assert told["answers"] == [0, 0]
    assert recording.fate(told["first"], 9_001) == "freed"
    assert recording.fate(told["second"], 9_007) == "freed"


@pytest.mark.parametrize(
    ("scenario", "size"),
    [
        ("realloc_that_fails", 80_021),
        ("reallocarray_that_overflows", 80_051),
        ("reallocarray_that_is_too_large", 80_071),
    ],
)
def test_a_realloc_that_fails_leaves_the_old_block_alive(recording: Recording, scenario: str, size: int) -> None:
    told = recording.told[scenario]
    assert (told["result"], told["error"]) == (0, recording.told["errors"]["ENOMEM"])
    assert recording.fate(told["block"], size) == "alive"
    assert recording.leaks[scenario] == size


def test_a_block_whose_realloc_failed_can_be_freed(recording: Recording) -> None:
    told = recording.told["realloc_that_fails_and_free"]
    assert (told["result"], told["error"]) == (0, recording.told["errors"]["ENOMEM"])
    assert recording.fate(told["block"], 80_039) == "freed"
    assert "realloc_that_fails_and_free" not in recording.leaks


def test_allocations_that_fail_are_not_recorded(recording: Recording) -> None:
    answers = recording.told["allocations_that_fail"]
    assert set(map(tuple, answers.values())) == {(0, recording.told["errors"]["ENOMEM"])}
    assert "allocations_that_fail" not in recording.leaks
    assert max(recording.sizes()) < 2**32


def test_a_failing_posix_memalign_leaves_the_callers_pointer_alone_and_is_not_recorded(recording: Recording) -> None:
    told = recording.told["posix_memalign_that_fails"]
    assert told["results"] == [recording.told["errors"]["ENOMEM"], recording.told["errors"]["EINVAL"]]
    assert told["stored"] == [0xDEAD0, 0xDEAD0]
    assert 40_031 not in recording.sizes()
    assert all(event.address != 0xDEAD0 for event in recording.events)


def test_a_free_of_nothing_is_not_recorded(recording: Recording) -> None:
    assert recording.told["free_of_nothing"] == {"error": 77}
    assert all(event.address != 0 for event in recording.events if event.kind == "FREE")


def test_hooks_leave_errno_as_it_was(recording: Recording) -> None:
    assert recording.told["error_numbers"] == {"changes": [0, 0]}


def test_no_block_is_recorded_over_a_live_one(recording: Recording) -> None:
    found = json.loads(heaptide("stats", "--json", recording.capture).stdout)
    assert found["heaptide"]["allocations_over_live_blocks"] == 0
    assert found["heaptide"]["lost"] == []


# What the C library allocates for its own functions goes through the same hooks.


def test_a_copied_string_is_recorded(recording: Recording) -> None:
    assert recording.maker(recording.told["copy_of_a_string"]["copy"], 11_004) == "malloc"
    assert recording.leaks["copy_of_a_string"] == 11_004


def test_the_buffer_that_getline_grew_is_recorded_with_its_last_size(recording: Recording) -> None:
    told = recording.told["line_of_a_file"]
    assert told["size"] > 9_973
    assert recording.maker(told["line"], told["size"]) == "realloc"
    assert recording.leaks["line_of_a_file"] == told["size"]


@pytest.mark.parametrize(("scenario", "what", "least"), [("line_of_a_file", "file", 200), ("folder", "folder", 32_768)])
def test_open_files_and_folders_of_the_c_library_are_recorded_and_freed(
    recording: Recording, scenario: str, what: str, least: int
) -> None:
    address = recording.told[scenario][what]
    story = [event for event in recording.events if event.address == address]
    # The place may be somebody else's before and after, so the size tells.
    ends = [
        (end.kind, event.allocator)
        for event, end in itertools.pairwise(story)
        if event.kind == "ALLOCATION" and event.size >= least
    ]
    assert ("FREE", "malloc") in ends
