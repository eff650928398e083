"""Tests that captures of memray are read as memray reads them: the same totals, peak and leaks of every call stack."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import PROGRAMS, heaptide
from support.memray_comparison import Amount, Stack, heaptide_numbers, memray, memray_numbers, memray_run, summed

PROGRAM = PROGRAMS / "recording/deterministic_allocations.py"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture of all allocations of the program, which is memray's default."""
    return memray_run(tmp_path_factory.mktemp("memray"), PROGRAM)


@pytest.fixture(scope="module")
def aggregated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture of the live blocks of the program at its peak and at its end."""
    return memray_run(tmp_path_factory.mktemp("aggregated"), PROGRAM, "--aggregate")


@pytest.mark.skipif(
    sys.version_info >= (3, 14),
    reason="the libffi of these interpreters maps a page over its own mapping, which memray counts twice",
)
def test_every_stack_has_memrays_numbers(recorded: Path) -> None:
    assert heaptide_numbers(recorded) == memray_numbers(recorded)


@pytest.mark.once
@pytest.mark.parametrize("options", [["--native"], ["--trace-python-allocators"], ["--no-compress"]], ids="".join)
def test_every_variant_of_a_full_capture_is_read(tmp_path: Path, options: list[str]) -> None:
    capture = memray_run(tmp_path, PROGRAM, *options)
    assert heaptide_numbers(capture) == memray_numbers(capture)


@pytest.mark.once
@pytest.mark.parametrize("is_native", [False, True])
def test_aggregated_capture_has_the_same_peak_and_leaks(aggregated: Path, tmp_path: Path, is_native: bool) -> None:
    capture = memray_run(tmp_path, PROGRAM, "--aggregate", "--native", "--no-compress") if is_native else aggregated
    actual, expected = heaptide_numbers(capture), memray_numbers(capture)

    def sizes(sums: dict[Stack, Amount]) -> dict[Stack, int]:
        # Compares bytes only: memray wrongly counts one block for each merged record.
        return {stack: size for stack, (size, _) in sums.items() if size}

    assert actual.total is None
    assert sizes(dict(actual.peak)) == sizes(dict(expected.peak))
    assert sizes(dict(actual.leaked)) == sizes(dict(expected.leaked))


@pytest.mark.once
def test_stats_equal_memrays_stats(recorded: Path, tmp_path: Path) -> None:
    actual = json.loads(heaptide("stats", "--json", recorded).stdout)
    written = tmp_path / "memray.json"
    subprocess.run(
        [sys.executable, "-m", "memray", "stats", "--json", "-o", written, recorded], check=True, capture_output=True
    )
    expected = json.loads(written.read_text())
    same = [
        *("total_num_allocations", "total_bytes_allocated", "allocator_type_distribution"),
        *("top_allocations_by_size", "top_allocations_by_count"),
    ]
    assert {key: actual[key] for key in same} == {key: expected[key] for key in same}
    # memray puts a size exactly between two bins into the wrong one; the number of blocks is the same.
    assert sum(bin["count"] for bin in actual["allocation_size_histogram"]) == expected["total_num_allocations"]
    same = ["start_time", "end_time", "peak_memory", "command_line", "pid", "main_thread_id", "python_allocator"]
    same += ["trace_python_allocators", "file_format"]
    assert {key: actual["metadata"][key] for key in same} == {key: expected["metadata"][key] for key in same}


@pytest.mark.once
def test_stats_of_an_aggregated_capture_state_that_it_has_no_totals(aggregated: Path) -> None:
    report = heaptide("stats", aggregated).stdout
    assert "not in this capture" in report
    assert "has no totals" in report
    statistics = json.loads(heaptide("stats", "--json", aggregated).stdout)
    assert statistics["total_bytes_allocated"] is None
    with memray.FileReader(aggregated) as reader:
        assert statistics["metadata"]["peak_memory"] == reader.metadata.peak_memory


@pytest.mark.once
def test_reports_work_on_a_memray_capture(recorded: Path, tmp_path: Path) -> None:
    for command in (["summary"], ["tree"], ["parse"], ["transform", "collapsed", "-o", "-"]):
        assert "allocate_and_free" in heaptide(*command, recorded, cwd=tmp_path).stdout, command
    for command in (["flamegraph"], ["table"]):
        heaptide(*command, "-o", "page.html", "-f", recorded, cwd=tmp_path)
        assert (tmp_path / "page.html").stat().st_size > 10_000
    assert "worker" in heaptide("parse", recorded).stdout


@pytest.mark.once
def test_captures_of_forked_children_are_read_together(tmp_path: Path) -> None:
    program = tmp_path / "forks.py"
    program.write_text(
        "import os\n"
        "def parent(): return bytearray(3 << 20)\n"
        "def child(): return bytearray(5 << 20)\n"
        "kept = parent()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    kept = child()\n"
        "    raise SystemExit\n"
        "os.waitpid(pid, 0)\n"
    )
    capture = memray_run(tmp_path, program, "--follow-fork")
    captures = sorted(tmp_path.glob("memray*.bin*"))
    assert len(captures) == 2, captures
    statistics = json.loads(heaptide("stats", "--json", "-n", "100", *captures).stdout)
    found = {entry["location"].split(":")[0]: entry["size"] for entry in statistics["top_allocations_by_size"]}
    assert found["parent"] == (3 << 20) + 1
    assert found["child"] == (5 << 20) + 1
    child = next(path for path in captures if path != capture)
    assert heaptide_numbers(child) == memray_numbers(child)


@pytest.mark.once
def test_capture_of_a_killed_program_is_read_to_its_last_whole_record(tmp_path: Path) -> None:
    program = tmp_path / "killed.py"
    program.write_text(
        "import os, signal\n"
        "kept = [bytearray(1 << 20) for _ in range(10)]\n"
        "temporary = [len(bytearray(2000)) for _ in range(20000)]\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-m", "memray", "run", "-q", "-o", "killed.bin", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True)
    assert done.returncode < 0
    capture = tmp_path / "killed.bin"
    numbers = heaptide_numbers(capture)
    assert numbers == memray_numbers(capture)
    assert sum(size for size, _ in numbers.leaked.values()) > 10 << 20
    assert "did not end its recording" in heaptide("stats", capture).stdout


@pytest.mark.once
def test_truncated_and_overwritten_captures_yield_the_good_part_and_a_note(tmp_path: Path) -> None:
    whole = memray_run(tmp_path, PROGRAM, "--no-compress").read_bytes().rstrip(b"\0")
    damaged = tmp_path / "damaged.bin"
    for bytes_left in (whole[: len(whole) // 2], whole[: len(whole) // 2] + b"\x3f" * 500):
        damaged.write_bytes(bytes_left)
        done = heaptide("stats", "--json", damaged)
        assert json.loads(done.stdout)["total_num_allocations"] > 10
        assert done.stderr.startswith("heaptide: "), done.stderr
        assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.once
def test_unsupported_format_of_memray_is_refused_with_its_number(tmp_path: Path) -> None:
    older = tmp_path / "older.bin"
    older.write_bytes(b"memray\0" + (11).to_bytes(4, "little") + b"\1" * 100)
    done = heaptide("stats", older, check=False)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "format 11" in done.stderr
    assert "1.19 and 1.20" in done.stderr


@pytest.mark.once
def test_closed_output_pipe_of_parse_is_not_an_error(recorded: Path) -> None:
    command = [sys.executable, "-m", "heaptide", "parse", str(recorded)]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.once
@pytest.mark.parametrize("threshold", [1, 20])
def test_temporary_blocks_equal_those_of_memray(recorded: Path, threshold: int) -> None:
    exported = heaptide(
        *("transform", "csv", "--temporary-allocation-threshold", str(threshold), "-o", "-", recorded)
    ).stdout
    actual: dict[Stack, Amount] = {}
    for row in csv.DictReader(io.StringIO(exported)):
        frames = [frame.rsplit(";", 2) for frame in row["stack_trace"].split("|")]
        stack = tuple((function, file, int(line)) for function, file, line in frames)
        size, count = actual.get(stack, (0, 0))
        actual[stack] = (size + int(row["size"]), count + int(row["num_allocations"]))
    with memray.FileReader(recorded) as reader:
        expected = summed(reader.get_temporary_allocation_records(merge_threads=True, threshold=threshold))
    # A block that a thread passes to a thread it starts is freed there. If that thread reuses the address, and the first
    # thread frees the new block, memray takes both blocks for one temporary block.
    for numbers in (actual, expected):
        for stack in [stack for stack in numbers if stack[0][0] == "start" and stack[0][1].endswith("threading.py")]:
            del numbers[stack]
    assert actual
    assert actual == expected


@pytest.mark.once
def test_aggregated_capture_refuses_views_it_does_not_contain(aggregated: Path, tmp_path: Path) -> None:
    heaptide("flamegraph", "-o", "page.html", aggregated, cwd=tmp_path)
    for options in (["--temporary-allocations"], ["--total"], ["--from", "1ms"]):
        done = heaptide("tree", *options, aggregated, check=False)
        assert done.returncode == 1, options
        assert done.stderr.count("\n") == 1
        assert "aggregated memray capture" in done.stderr


@pytest.mark.once
def test_diff_with_an_aggregated_capture_omits_missing_views(recorded: Path, aggregated: Path) -> None:
    report = heaptide("diff", aggregated, recorded).stdout
    assert "alive at the end" in report
    assert "allocated in total" not in report
    whole = json.loads(heaptide("diff", "--json", aggregated, recorded).stdout)["whole"]
    assert whole["peak"]["before_bytes"] > 0
    assert whole["total"] is None
    assert whole["temporary"] is None
    done = heaptide("diff", "--total", "--fail-above", "0", aggregated, recorded, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "aggregated memray capture" in done.stderr
