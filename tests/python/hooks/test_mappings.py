"""Mappings: released in parts, several at a time, resized, moved, replaced; of files and of nothing."""

from __future__ import annotations

import json

import pytest
from support.commands import heaptide
from support.hooked_recording import PAGE, Recording, recording

__all__ = ["recording"]


def released(recording: Recording) -> set[tuple[int, int]]:
    return {(event.address, event.size) for event in recording.events if event.kind == "FREE_RANGE"}


@pytest.mark.parametrize(("function", "n_pages"), [("mmap", 3), ("mmap64", 5)])
def test_an_anonymous_mapping_is_recorded_as_memory(recording: Recording, function: str, n_pages: int) -> None:
    address = recording.told["anonymous_mappings"][function]
    assert recording.maker(address, n_pages * PAGE) == "mmap"
    assert recording.leaks["anonymous_mappings"] == (3 + 5) * PAGE


@pytest.mark.parametrize(("function", "n_pages"), [("mmap", 7), ("mmap64", 9)])
def test_a_mapping_of_a_file_is_told_apart_and_not_on_the_heap(
    recording: Recording, function: str, n_pages: int
) -> None:
    address = recording.told["file_mappings"][function]
    assert recording.maker(address, n_pages * PAGE) == "mmap_file"
    assert "file_mappings" not in recording.leaks


def test_mappings_of_files_are_counted_beside_the_heap(recording: Recording) -> None:
    found = json.loads(heaptide("stats", "--json", recording.capture).stdout)
    # Two files, and a third that was resized from 23 pages to 24.
    # The interpreter may have mapped a page of a file of its own meanwhile.
    assert found["heaptide"]["mapped_files_peak_bytes"] - (7 + 9 + 24) * PAGE in (0, PAGE)


def test_a_mapping_of_an_odd_length_is_recorded_as_asked_for_and_released(recording: Recording) -> None:
    mapping = recording.told["odd_length"]["mapping"]
    assert recording.maker(mapping, 12_345) == "mmap"
    assert "odd_length" not in recording.leaks


def test_a_munmap_that_ends_within_a_page_releases_the_whole_page(recording: Recording) -> None:
    recording.born(recording.told["munmap_of_a_part_of_a_page"]["mapping"], 2 * PAGE)
    assert "munmap_of_a_part_of_a_page" not in recording.leaks


@pytest.mark.parametrize(
    ("scenario", "n_pages", "first", "n_left"),
    [("munmap_front", 11, 0, 7), ("munmap_middle", 12, 3, 8), ("munmap_end", 13, 9, 9)],
)
def test_a_munmap_of_a_part_leaves_the_rest_alive(
    recording: Recording, scenario: str, n_pages: int, first: int, n_left: int
) -> None:
    mapping = recording.told[scenario]["mapping"]
    assert recording.maker(mapping, n_pages * PAGE) == "mmap"
    assert (mapping + first * PAGE, 4 * PAGE) in released(recording)
    assert recording.leaks[scenario] == n_left * PAGE


def test_one_munmap_can_release_parts_of_several_mappings(recording: Recording) -> None:
    told = recording.told["munmap_of_several"]
    assert told["third"] - told["first"] == 20 * PAGE
    assert (told["first"] + 8 * PAGE, 17 * PAGE) in released(recording)
    assert recording.leaks["munmap_of_several"] == (8 + 0 + 5) * PAGE


def test_a_munmap_that_fails_releases_nothing(recording: Recording) -> None:
    told = recording.told["munmap_that_fails"]
    assert (told["result"], told["error"]) == (2**64 - 1, recording.told["errors"]["EINVAL"])
    assert recording.leaks["munmap_that_fails"] == 14 * PAGE


def test_a_mapping_over_another_replaces_that_part_of_it(recording: Recording) -> None:
    told = recording.told["mapping_over_a_mapping"]
    assert recording.maker(told["above"], 6 * PAGE) == "mmap"
    # Of 20 pages 6 were replaced; then the 7 before those were released.
    assert recording.leaks["mapping_over_a_mapping"] == (20 - 6 - 7 + 6) * PAGE


def test_a_mapping_over_another_that_fails_leaves_it_alive(recording: Recording) -> None:
    told, errors = recording.told["mapping_over_a_mapping_that_fails"], recording.told["errors"]
    assert told == {"results": [2**64 - 1] * 2, "errors": [errors["EBADF"], errors["EEXIST"]]}
    assert recording.leaks["mapping_over_a_mapping_that_fails"] == 15 * PAGE


def test_an_mmap_that_fails_is_not_recorded(recording: Recording) -> None:
    told, errors = recording.told["mmap_that_fails"], recording.told["errors"]
    assert told == {"results": [2**64 - 1] * 2, "errors": [errors["EINVAL"], errors["ENOMEM"]]}
    assert all(event.address != 2**64 - 1 for event in recording.events)
    assert max(recording.sizes()) < 2**32
    assert "mmap_that_fails" not in recording.leaks


@pytest.mark.parametrize(
    ("scenario", "n_pages_before", "n_pages_after"), [("mremap_grows", 16, 40), ("mremap_shrinks", 41, 17)]
)
def test_mremap_ends_the_old_mapping_and_begins_one_of_the_new_length(
    recording: Recording, scenario: str, n_pages_before: int, n_pages_after: int
) -> None:
    told = recording.told[scenario]
    assert recording.maker(told["old"], n_pages_before * PAGE) == "mmap"
    assert (told["old"], n_pages_before * PAGE) in released(recording)
    assert recording.maker(told["new"], n_pages_after * PAGE) == "mremap"
    assert recording.leaks[scenario] == n_pages_after * PAGE


def test_an_mremap_onto_a_mapping_replaces_that_part_of_it(recording: Recording) -> None:
    told = recording.told["mremap_onto_a_mapping"]
    assert told["new"] == told["target"] + 20 * PAGE
    assert recording.maker(told["new"], 18 * PAGE) == "mremap"
    assert recording.leaks["mremap_onto_a_mapping"] == 60 * PAGE


def test_an_mremap_of_a_part_leaves_the_rest_alive(recording: Recording) -> None:
    told = recording.told["mremap_of_a_part"]
    assert recording.maker(told["new"], 50 * PAGE) == "mremap"
    assert recording.leaks["mremap_of_a_part"] == (12 + 50) * PAGE


def test_an_mremap_that_leaves_the_old_mapping_leaves_it_alive(recording: Recording) -> None:
    told = recording.told["mremap_that_leaves_the_old"]
    assert told["old"] != told["new"] != 2**64 - 1
    assert recording.maker(told["new"], 21 * PAGE) == "mremap"
    assert recording.leaks["mremap_that_leaves_the_old"] == 2 * 21 * PAGE


def test_an_mremap_that_fails_leaves_the_old_mapping_alive(recording: Recording) -> None:
    told = recording.told["mremap_that_fails"]
    assert (told["result"], told["error"]) == (2**64 - 1, recording.told["errors"]["ENOMEM"])
    assert recording.leaks["mremap_that_fails"] == 45 * PAGE


def test_a_mapping_of_a_file_stays_one_when_it_is_resized(recording: Recording) -> None:
    told = recording.told["mremap_of_a_file"]
    assert recording.maker(told["old"], 23 * PAGE) == "mmap_file"
    recording.born(told["new"], 24 * PAGE)
    assert "mremap_of_a_file" not in recording.leaks
