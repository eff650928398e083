"""Tests that memray itself reads what `heaptide transform memray` writes, and computes the same numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import PROGRAMS, heaptide
from support.downloaded_packages import folder_of
from support.memray_comparison import Amount, Stack, heaptide_numbers, memray, memray_numbers
from support.terminal_screen import TerminalScreen

pytestmark = pytest.mark.once

PROGRAM = PROGRAMS / "recording/deterministic_allocations.py"


def exported(folder: Path, *options: str, program: Path = PROGRAM) -> tuple[Path, Path]:
    """Record a program, and return its capture and the one for memray."""
    capture, written = folder / "job.tide", folder / "job.bin"
    heaptide("run", "-q", "-f", "-o", capture, *options, program, cwd=folder)
    heaptide("transform", "memray", "-o", written, capture)
    return capture, written


def run_memray(*words: str | Path, env: dict[str, str] | None = None) -> str:
    """Run the real memray command."""
    done = subprocess.run([sys.executable, "-m", "memray", *map(str, words)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def without_empty_sums(numbers: dict[Stack, Amount]) -> dict[Stack, Amount]:
    """Return the numbers without allocations of zero bytes, which only one of the profilers lists."""
    return {stack: amount for stack, amount in numbers.items() if amount[0]}


@pytest.mark.parametrize("options", [[], ["--objects"], ["--native"]], ids="".join)
def test_memray_finds_the_same_numbers_on_every_stack(tmp_path: Path, options: list[str]) -> None:
    capture, written = exported(tmp_path, *options)
    actual, expected = memray_numbers(written), heaptide_numbers(capture)
    for part in ("peak", "leaked", "total"):
        by_memray = without_empty_sums(dict(getattr(actual, part)))
        by_heaptide = without_empty_sums(dict(getattr(expected, part)))
        assert by_memray == by_heaptide, part


@pytest.mark.parametrize("options", [["--aggregate"], ["--sample=64k"]], ids="".join)
def test_bounded_and_sampled_captures_become_aggregated_ones(tmp_path: Path, options: list[str]) -> None:
    capture, written = exported(tmp_path, *options)
    actual, expected = memray_numbers(written), heaptide_numbers(capture)

    def sizes(sums: dict[Stack, Amount]) -> dict[Stack, int]:
        # memray counts one block for each merged record.
        return {stack: size for stack, (size, _) in sums.items() if size}

    with memray.FileReader(written) as reader:
        assert reader.metadata.file_format == memray.FileFormat.AGGREGATED_ALLOCATIONS
        assert reader.metadata.peak_memory == sum(sizes(dict(expected.peak)).values())
    assert sizes(dict(actual.peak)) == sizes(dict(expected.peak))
    assert sizes(dict(actual.leaked)) == sizes(dict(expected.leaked))


def test_memrays_commands_show_the_same_peak_totals_and_top_sites(tmp_path: Path) -> None:
    capture, written = exported(tmp_path)
    by_heaptide = json.loads(heaptide("stats", "--json", capture).stdout)
    run_memray("stats", "--json", "-o", tmp_path / "stats.json", written)
    # memray shows a file and a line for every frame, also for that of Python's arenas.
    by_memray = json.loads((tmp_path / "stats.json").read_text().replace(":<pymalloc>:0", ""))
    for key in ("total_num_allocations", "total_bytes_allocated", "allocator_type_distribution"):
        assert by_memray[key] == by_heaptide[key], key
    assert by_memray["top_allocations_by_size"] == by_heaptide["top_allocations_by_size"]
    assert by_memray["metadata"]["peak_memory"] == by_heaptide["metadata"]["peak_memory"]
    for key in ("pid", "python_allocator", "trace_python_allocators", "command_line"):
        assert by_memray["metadata"][key] == by_heaptide["metadata"][key], key
    for command in ("flamegraph", "table"):
        run_memray(command, "-o", tmp_path / f"{command}.html", written)
        assert "allocate_and_free" in (tmp_path / f"{command}.html").read_text()
    assert "allocate_and_free" in run_memray("summary", written)
    assert "worker" in run_memray("parse", written)


def test_heaptide_reads_its_own_export(tmp_path: Path) -> None:
    capture, written = exported(tmp_path)
    before, after = heaptide_numbers(capture), heaptide_numbers(written)
    assert without_empty_sums(dict(after.peak)) == without_empty_sums(dict(before.peak))
    assert without_empty_sums(dict(after.leaked)) == without_empty_sums(dict(before.leaked))


def test_two_processes_are_refused(tmp_path: Path) -> None:
    capture, _ = exported(tmp_path)
    heaptide("run", "-q", "-o", tmp_path / "other.tide", "-c", "pass")
    done = heaptide("transform", "memray", "-o", tmp_path / "x.bin", capture, tmp_path / "other.tide", check=False)
    assert done.returncode == 2 and "holds one process" in done.stderr


# Name of the export → the release of memray that reads it: None for the installed one, else one to download.
RELEASES = {"memray": None, "memray-1.19": "memray>=1.19,<1.20"}


@pytest.mark.parametrize("options", [[], ["--aggregate"]], ids=["all allocations", "aggregated"])
@pytest.mark.parametrize("export", RELEASES)
def test_every_report_of_each_release_opens_the_export(tmp_path: Path, export: str, options: list[str]) -> None:
    capture, written = tmp_path / "job.tide", tmp_path / "job.bin"
    heaptide("run", "-q", "-o", capture, *options, PROGRAM, cwd=tmp_path)
    heaptide("transform", export, "-o", written, capture)
    environment = dict(os.environ)
    requirement = RELEASES[export]
    if requirement is not None:
        environment["PYTHONPATH"] = str(folder_of(requirement, "memray", export))
    version = run_memray("--version", env=environment)
    assert version.startswith("1.20." if requirement is None else "1.19.")
    if not options:  # memray itself refuses to compute statistics of aggregated captures
        assert "allocate_and_free" in run_memray("stats", written, env=environment)
    run_memray("flamegraph", "-o", tmp_path / "page.html", written, env=environment)
    assert "allocate_and_free" in (tmp_path / "page.html").read_text()
    assert "allocate_and_free" in run_memray("summary", written, env=environment)
    # The tree shows only the largest branch opened.
    peak = json.loads(heaptide("stats", "--json", capture).stdout)["metadata"]["peak_memory"]
    assert f"{peak / 1e6:.3f}MB (100.00 %) <ROOT>" in shown_tree(written, environment.get("PYTHONPATH", ""))


def shown_tree(capture: Path, search_path: str) -> str:
    """Return what memray's interactive tree shows, and quit it with its key."""
    command = [sys.executable, "-m", "memray", "tree", str(capture)]
    terminal = TerminalScreen(command, columns=160, lines=50, env={"PYTHONPATH": search_path})
    try:
        # The line that lists the keys appears last, when the program is ready to read keys.
        text = terminal.wait_for("<ROOT>", "make_room", "Quit the app")
        terminal.type("q")
        assert terminal.finish() == 0
    finally:
        if terminal.process.poll() is None:
            terminal.process.kill()
            terminal.process.wait()
    return text
