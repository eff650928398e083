"""Tests the recording of anonymous and file mappings that are unmapped in parts, resized, moved or replaced."""

from __future__ import annotations

import json

import pytest
from support.commands import heaptide
from support.hooked_recording import PAGE, Recording, recording

__all__ = ["recording"]


def released(recording: Recording) -> set[tuple[int, int]]:
    """Return address and size of all recorded releases of ranges."""
    return {(event.address, event.size) for event in recording.events if event.type == "FREE_RANGE"}


@pytest.mark.parametrize(("function", "n_pages"), [("mmap", 3), ("mmap64", 5)])
def test_anonymous_mapping_is_recorded_as_memory(recording: Recording, function: str, n_pages: int) -> None:
    address = recording.printed["anonymous_mappings"][function]
    assert recording.allocator(address, n_pages * PAGE) == "mmap"
    assert recording.leaks["anonymous_mappings"] == (3 + 5) * PAGE


@pytest.mark.parametrize(("function", "n_pages"), [("mmap", 7), ("mmap64", 9)])
def test_file_mapping_has_its_own_allocator_and_is_not_part_of_the_heap(
    recording: Recording, function: str, n_pages: int
) -> None:
    address = recording.printed["file_mappings"][function]
    assert recording.allocator(address, n_pages * PAGE) == "mmap_file"
    assert "file_mappings" not in recording.leaks


def test_file_mappings_are_counted_separately_from_the_heap(recording: Recording) -> None:
    found = json.loads(heaptide("stats", "--json", recording.capture).stdout)
    # Two files, and a third that was resized from 23 pages to 24.
    # The interpreter itself may have mapped one page of a file.
    assert found["heaptide"]["mapped_files_peak_bytes"] - (7 + 9 + 24) * PAGE in (0, PAGE)


def test_mapping_of_an_odd_length_is_recorded_with_that_length_and_released(recording: Recording) -> None:
    mapping = recording.printed["odd_length"]["mapping"]
    assert recording.allocator(mapping, 12_345) == "mmap"
    assert "odd_length" not in recording.leaks


def test_munmap_that_ends_within_a_page_releases_the_whole_page(recording: Recording) -> None:
    recording.allocation(recording.printed["munmap_of_a_part_of_a_page"]["mapping"], 2 * PAGE)
    assert "munmap_of_a_part_of_a_page" not in recording.leaks


@pytest.mark.parametrize(
    ("scenario", "n_pages", "first", "n_left"),
    [("munmap_front", 11, 0, 7), ("munmap_middle", 12, 3, 8), ("munmap_end", 13, 9, 9)],
)
def test_partial_munmap_leaves_the_rest_live(
    recording: Recording, scenario: str, n_pages: int, first: int, n_left: int
) -> None:
    mapping = recording.printed[scenario]["mapping"]
    assert recording.allocator(mapping, n_pages * PAGE) == "mmap"
    assert (mapping + first * PAGE, 4 * PAGE) in released(recording)
    assert recording.leaks[scenario] == n_left * PAGE


def test_one_munmap_releases_parts_of_several_mappings(recording: Recording) -> None:
    printed = recording.printed["munmap_of_several"]
    assert printed["third"] - printed["first"] == 20 * PAGE
    assert (printed["first"] + 8 * PAGE, 17 * PAGE) in released(recording)
    assert recording.leaks["munmap_of_several"] == (8 + 0 + 5) * PAGE


def test_failed_munmap_releases_nothing(recording: Recording) -> None:
    printed = recording.printed["munmap_that_fails"]
    assert (printed["result"], printed["error"]) == (2**64 - 1, recording.printed["errors"]["EINVAL"])
    assert recording.leaks["munmap_that_fails"] == 14 * PAGE


def test_mapping_over_another_replaces_the_covered_part(recording: Recording) -> None:
    printed = recording.printed["mapping_over_a_mapping"]
    assert recording.allocator(printed["above"], 6 * PAGE) == "mmap"
    # 6 of 20 pages were replaced, then the 7 pages before them were released.
    assert recording.leaks["mapping_over_a_mapping"] == (20 - 6 - 7 + 6) * PAGE


def test_failed_mapping_over_another_leaves_it_live(recording: Recording) -> None:
    printed, errors = recording.printed["mapping_over_a_mapping_that_fails"], recording.printed["errors"]
    assert printed == {"results": [2**64 - 1] * 2, "errors": [errors["EBADF"], errors["EEXIST"]]}
    assert recording.leaks["mapping_over_a_mapping_that_fails"] == 15 * PAGE


def test_failed_mmap_is_not_recorded(recording: Recording) -> None:
    printed, errors = recording.printed["mmap_that_fails"], recording.printed["errors"]
    assert printed == {"results": [2**64 - 1] * 2, "errors": [errors["EINVAL"], errors["ENOMEM"]]}
    assert all(event.address != 2**64 - 1 for event in recording.events)
    assert max(recording.sizes()) < 2**32
    assert "mmap_that_fails" not in recording.leaks


@pytest.mark.parametrize(
    ("scenario", "n_pages_before", "n_pages_after"), [("mremap_grows", 16, 40), ("mremap_shrinks", 41, 17)]
)
def test_mremap_releases_the_old_mapping_and_records_the_new_length(
    recording: Recording, scenario: str, n_pages_before: int, n_pages_after: int
) -> None:
    printed = recording.printed[scenario]
    assert recording.allocator(printed["old"], n_pages_before * PAGE) == "mmap"
    assert (printed["old"], n_pages_before * PAGE) in released(recording)
    assert recording.allocator(printed["new"], n_pages_after * PAGE) == "mremap"
    assert recording.leaks[scenario] == n_pages_after * PAGE


def test_mremap_onto_a_mapping_replaces_the_covered_part(recording: Recording) -> None:
    printed = recording.printed["mremap_onto_a_mapping"]
    assert printed["new"] == printed["target"] + 20 * PAGE
    assert recording.allocator(printed["new"], 18 * PAGE) == "mremap"
    assert recording.leaks["mremap_onto_a_mapping"] == 60 * PAGE


def test_partial_mremap_leaves_the_rest_live(recording: Recording) -> None:
    printed = recording.printed["mremap_of_a_part"]
    assert recording.allocator(printed["new"], 50 * PAGE) == "mremap"
    assert recording.leaks["mremap_of_a_part"] == (12 + 50) * PAGE


def test_mremap_with_dontunmap_leaves_the_old_mapping_live(recording: Recording) -> None:
    printed = recording.printed["mremap_that_keeps_the_old_mapping"]
    assert printed["old"] != printed["new"] != 2**64 - 1
    assert recording.allocator(printed["new"], 21 * PAGE) == "mremap"
    assert recording.leaks["mremap_that_keeps_the_old_mapping"] == 2 * 21 * PAGE


def test_failed_mremap_leaves_the_old_mapping_live(recording: Recording) -> None:
    printed = recording.printed["mremap_that_fails"]
    assert (printed["result"], printed["error"]) == (2**64 - 1, recording.printed["errors"]["ENOMEM"])
    assert recording.leaks["mremap_that_fails"] == 45 * PAGE


def test_resized_file_mapping_stays_outside_the_heap(recording: Recording) -> None:
    printed = recording.printed["mremap_of_a_file"]
    assert recording.allocator(printed["old"], 23 * PAGE) == "mmap_file"
    recording.allocation(printed["new"], 24 * PAGE)
    assert "mremap_of_a_file" not in recording.leaks
