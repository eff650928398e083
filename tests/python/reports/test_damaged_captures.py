"""Tests that readers use the intact part of a damaged capture, and refuse other files in one sentence."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.commands import PROGRAMS, heaptide
from support.messages import one_sentence

# Readers do not depend on the Python version.
pytestmark = pytest.mark.once
READERS = ("stats", "summary", "tree", "parse")
PROGRAM = PROGRAMS / "recording/varied_allocations.py"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A completed capture of several threads and chunks."""
    capture = tmp_path_factory.mktemp("whole") / "whole.tide"
    assert heaptide("run", "-q", "-o", capture, PROGRAM, "60", check=False).returncode == 5
    assert capture.stat().st_size > 100_000
    return capture


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture of a killed program, which still has its slots."""
    capture = tmp_path_factory.mktemp("unfinished") / "unfinished.tide"
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert heaptide("run", "-q", "-o", capture, PROGRAM, "60", kill, check=False).returncode == -9
    return capture


def statistics(*captures: Path) -> tuple[dict[str, Any], str]:
    """Return the statistics and the standard error of a report that must succeed."""
    done = heaptide("stats", "--json", *captures)
    result: dict[str, Any] = json.loads(done.stdout)
    return result, done.stderr


def assert_refused(done: subprocess.CompletedProcess[str], text: str) -> None:
    """Check that a command failed with one sentence that contains `text`."""
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert text in one_sentence(done.stderr)


def header_length(capture: Path) -> int:
    """Return the length of a capture's header."""
    start = capture.read_bytes()[:24]
    return 24 + int.from_bytes(start[12:16], "little")


class Block(NamedTuple):
    """A finished chunk of events in a capture: where it lies, and how many events it has."""

    start: int
    end: int
    n_events: int


def blocks(content: bytes) -> list[Block]:
    """Return the finished chunks, as docs/reference/capture-format.md describes them."""
    found = []
    start = content.find(b"tideBLK1")
    while start >= 0:
        n_bytes, n_events = struct.unpack_from("<II", content, start + 40)
        found.append(Block(start, start + 72 + n_bytes, n_events))
        start = content.find(b"tideBLK1", found[-1].end)
    return found


def events(capture: Path) -> Counter[str]:
    """Return the allocations and frees that a reader finds, without their times."""
    found = (line.split(" ", 2) for line in heaptide("parse", capture).stdout.splitlines())
    return Counter(f"{line[0]} {line[2]}" for line in found if line[0] in ("ALLOCATION", "FREE", "FREE_RANGE"))


@pytest.mark.parametrize("fixture", ["whole", "unfinished"])
def test_truncated_capture_yields_the_part_before_the_cut(
    tmp_path: Path, request: pytest.FixtureRequest, fixture: str
) -> None:
    capture = request.getfixturevalue(fixture)
    content = capture.read_bytes()
    n_all = statistics(capture)[0]["total_num_allocations"]
    header = header_length(capture)
    counts = []
    for step in range(51):
        cut = tmp_path / f"{step}.tide"
        length = max(header, len(content) * step // 50)
        cut.write_bytes(content[:length])
        result, notes = statistics(cut)
        counts.append(result["total_num_allocations"])
        assert all(note.startswith(f"heaptide: {cut}: ") for note in notes.splitlines())
        if length < len(content) and counts[-1] < n_all:
            assert notes or not result["heaptide"]["processes"][0]["ended_in_order"], step
        cut.unlink()
    assert counts[0] == 0 and counts[-1] == n_all
    assert counts == sorted(counts)
    assert len(set(counts)) > 3, counts


def test_truncated_header_is_refused_in_one_sentence(tmp_path: Path, whole: Path) -> None:
    content = whole.read_bytes()[: header_length(whole)]
    for length in (1, 7, 8, 12, 20, 24, 25, len(content) // 2, len(content) - 1):
        cut = tmp_path / f"{length}.tide"
        cut.write_bytes(content[:length])
        assert_refused(heaptide("stats", cut, check=False), "its header is damaged")


@pytest.mark.parametrize("fixture", ["whole", "unfinished"])
def test_capture_with_a_flipped_bit_loses_only_the_chunk_of_that_bit(
    tmp_path: Path, request: pytest.FixtureRequest, fixture: str
) -> None:
    capture = request.getfixturevalue(fixture)
    content = capture.read_bytes()
    everything = events(capture)
    finished = blocks(content)
    n_finished = sum(block.n_events for block in finished)
    # An unfinished capture also has events in slots, which have no checksum.
    assert everything.total() == n_finished if fixture == "whole" else everything.total() > n_finished > 0
    chance = random.Random(47)
    damaged = tmp_path / "damaged.tide"
    # Any byte, and bytes of every chunk, because most bytes belong to a few large chunks or to empty slots.
    offsets = [chance.randrange(header_length(capture), len(content)) for _ in range(8)]
    for at in offsets + [chance.randrange(block.start, block.end) for block in finished]:
        damaged.write_bytes(content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :])
        result, notes = statistics(damaged)
        found = events(damaged)
        hit = [block for block in finished if block.start <= at < block.end]
        # Damage is noted on standard error exactly if it is in the report.
        assert bool(notes) == bool(result["heaptide"]["damage"])
        if hit:
            assert notes
            assert found.total() == everything.total() - hit[0].n_events, at
        elif fixture == "whole":
            assert found == everything, at
        else:
            assert found.total() >= n_finished, at
        if hit or fixture == "whole":
            assert found <= everything, at


def test_capture_with_an_overwritten_range_loses_only_the_chunks_in_it(tmp_path: Path, whole: Path) -> None:
    content = whole.read_bytes()
    everything = events(whole)
    damaged = tmp_path / "damaged.tide"
    first = len(content) // 2
    end = first + 20_000
    n_lost = sum(block.n_events for block in blocks(content) if block.start < end and first < block.end)
    assert 0 < n_lost < everything.total()
    for filling in (b"\0", b"\xff", b"A"):
        damaged.write_bytes(content[:first] + filling * (end - first) + content[end:])
        result, notes = statistics(damaged)
        assert notes and "damage" in notes and result["heaptide"]["damage"]
        found = events(damaged)
        assert found.total() == everything.total() - n_lost
        assert found <= everything


def test_every_report_of_a_damaged_capture_succeeds_with_a_note(tmp_path: Path, whole: Path) -> None:
    content = whole.read_bytes()
    damaged = tmp_path / "damaged.tide"
    damaged.write_bytes(content[: len(content) * 2 // 3])
    for reader in READERS:
        done = heaptide(reader, damaged)
        assert done.stdout and done.stderr.startswith(f"heaptide: {damaged}: ")
    assert "damaged in" in heaptide("stats", damaged).stdout


def test_bytes_after_the_end_are_noted_and_ignored(tmp_path: Path, whole: Path) -> None:
    longer = tmp_path / "longer.tide"
    longer.write_bytes(whole.read_bytes() + os.urandom(5000))
    result, notes = statistics(longer)
    assert result["total_num_allocations"] == statistics(whole)[0]["total_num_allocations"]
    assert notes


NO_CAPTURES: dict[str, Callable[[Path], object]] = {
    "a picture": lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(1000)),
    "a program": lambda path: path.write_text("import os\nprint(os.getcwd())\n"),
    "zeros": lambda path: path.write_bytes(bytes(100_000)),
    "random bytes": lambda path: path.write_bytes(random.Random(1).randbytes(100_000)),
    "one byte": lambda path: path.write_bytes(b"x"),
    "another executable": lambda path: shutil.copy(sys.executable, path),
    "a pipe": os.mkfifo,
}


@pytest.mark.parametrize("what", NO_CAPTURES)
@pytest.mark.parametrize("reader", READERS)
def test_file_that_is_no_capture_is_refused_in_one_sentence(tmp_path: Path, what: str, reader: str) -> None:
    path = tmp_path / "other"
    NO_CAPTURES[what](path)
    assert_refused(heaptide(reader, path, check=False), f"{path} is not a Heaptide capture")


@pytest.mark.parametrize("reader", READERS)
def test_missing_empty_and_unreadable_files_are_refused_in_one_sentence(tmp_path: Path, reader: str) -> None:
    assert_refused(heaptide(reader, tmp_path / "missing", check=False), "there is no file")
    assert_refused(heaptide(reader, tmp_path, check=False), "there is no capture in the folder")
    (tmp_path / "empty").touch()
    assert_refused(heaptide(reader, tmp_path / "empty", check=False), "is empty")
    assert_refused(heaptide(reader, "/proc/self/mem", check=False), "/proc/self/mem")
    assert_refused(heaptide(reader, "/dev/null", check=False), "/dev/null")


def test_capture_of_a_later_release_is_refused_in_one_sentence(tmp_path: Path, whole: Path) -> None:
    content = bytearray(whole.read_bytes())
    content[8:12] = (4711).to_bytes(4, "little")
    newer = tmp_path / "newer.tide"
    newer.write_bytes(content)
    assert_refused(heaptide("stats", newer, check=False), "in format 4711, which Heaptide")


def test_missing_file_among_several_is_named(tmp_path: Path, whole: Path) -> None:
    assert_refused(heaptide("stats", whole, tmp_path / "missing", check=False), "missing")


def test_same_file_given_twice_is_counted_once(tmp_path: Path, whole: Path) -> None:
    link = tmp_path / "link.tide"
    link.symlink_to(whole)
    once = statistics(whole)
    assert statistics(whole, whole) == once
    assert statistics(whole, link) == once


def test_closed_output_pipe_is_not_an_error(whole: Path) -> None:
    for reader in READERS:
        command = [sys.executable, "-m", "heaptide", reader, str(whole)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stderr is not None
            process.stdout.read(10)
            process.stdout.close()
            assert process.stderr.read() == b""
        assert process.returncode in (0, -13)


def test_unwritable_report_is_refused_in_one_sentence(tmp_path: Path, whole: Path) -> None:
    for output in (tmp_path / "missing" / "stats.json", tmp_path, "/dev/full"):
        done = heaptide("stats", "--json", "-o", output, whole, check=False)
        assert_refused(done, str(output))
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "heaptide", "stats", whole], stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1 and done.stderr.count(b"\n") == 1
