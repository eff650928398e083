"""Tests `heaptide tree`, `heaptide summary` and `heaptide stats` on a terminal."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.commands import heaptide
from support.terminal_screen import TerminalScreen

pytestmark = pytest.mark.once

PROGRAM = """
def large():
    return [bytearray(100_000) for _ in range(40)]

def small():
    return bytearray(300_000)

def a_function_whose_name_is_longer_than_a_column_of_a_table_can_be():
    return bytearray(200_000)

def main():
    return large(), small(), a_function_whose_name_is_longer_than_a_column_of_a_table_can_be()

kept = main()
"""


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record a program in which three functions allocate, one of them far more than the others."""
    folder = tmp_path_factory.mktemp("a-folder-with-a-long-name") / "and-another-one" / "jobs"
    folder.mkdir(parents=True)
    (folder / "program.py").write_text(PROGRAM)
    heaptide("run", "-q", "-o", folder / "program.tide", folder / "program.py")
    return folder / "program.tide"


@pytest.fixture
def terminal() -> Iterator[Callable[..., TerminalScreen]]:
    """Open `heaptide` on a terminal, and close it after the test."""
    opened: list[TerminalScreen] = []

    def show(*arguments: str | Path, columns: int = 80, lines: int = 24) -> TerminalScreen:
        command = [sys.executable, "-m", "heaptide", *arguments]
        opened.append(TerminalScreen(command, columns=columns, lines=lines))
        return opened[-1]

    yield show
    for screen in opened:
        screen.close()


def test_tree_opens_at_the_largest_call_with_the_numbers_of_the_printed_tree(
    capture: Path, terminal: Callable[..., TerminalScreen]
) -> None:
    printed = heaptide("tree", capture).stdout
    expected = re.search(r"(\S+ \S+) \((\S+%)\) large", printed)
    assert expected is not None
    screen = terminal("tree", capture)
    seen = screen.wait_for("<ROOT>", "large", "q quit")
    assert re.search(rf"{expected[1]} +{expected[2]}.*large", seen), seen
    screen.type("q")
    assert screen.finish() == 0
    assert screen.is_restored()


def test_calls_can_be_opened_closed_searched_and_sorted(capture: Path, terminal: Callable[..., TerminalScreen]) -> None:
    screen = terminal("tree", capture)
    screen.wait_for("<ROOT>", "large")
    screen.type("\x1b[D")  # left: closes the root
    screen.wait(lambda seen: "large" not in seen and "▸ <ROOT>" in seen)
    screen.type("e")
    screen.wait_for("large", "small")
    screen.type("c/SMALL")
    screen.wait_for("/SMALL", "small at", "300 kB")
    screen.type("\r")
    screen.wait_for("n next")
    screen.type("s")
    screen.wait_for("by allocations")
    screen.type("s")
    screen.wait_for("by name")
    screen.type("\x1b")  # closes the search first
    screen.wait_for("↑↓ move")
    screen.type("q")
    assert screen.finish() == 0


def test_plain_text_is_printed_to_pipes_and_on_request(capture: Path, terminal: Callable[..., TerminalScreen]) -> None:
    printed = heaptide("tree", capture).stdout
    assert "\x1b" not in printed and "large" in printed
    screen = terminal("tree", "--plain", capture, columns=200, lines=60)
    assert screen.finish() == 0
    assert b"\x1b[?1049h" not in screen.written
    assert "large" in screen.text()
    help_text = heaptide("tree", "--help").stdout
    assert "--plain" in help_text and "terminal" in help_text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_restores_the_terminal_and_ends_the_command(
    number: signal.Signals, capture: Path, terminal: Callable[..., TerminalScreen]
) -> None:
    screen = terminal("tree", capture)
    screen.wait_for("<ROOT>")
    screen.process.send_signal(number)
    assert screen.finish() == -number
    assert screen.is_restored()


def test_closed_terminal_ends_the_command(capture: Path, terminal: Callable[..., TerminalScreen]) -> None:
    screen = terminal("tree", capture)
    screen.wait_for("<ROOT>")
    screen.hang_up()
    assert screen.process.wait() == -signal.SIGHUP


def test_tree_survives_small_terminals_and_resizing(capture: Path, terminal: Callable[..., TerminalScreen]) -> None:
    screen = terminal("tree", capture, columns=1, lines=1)
    screen.wait_for_full_screen()
    screen.resize(3, 2)
    screen.type("jjek/x\r")
    screen.resize(70, 30)
    screen.wait_for("<ROOT>", "q quit")
    screen.type("q")
    assert screen.finish() == 0
    assert screen.is_restored()


def test_summary_fits_80_columns_with_one_line_per_function(
    capture: Path, terminal: Callable[..., TerminalScreen]
) -> None:
    screen = terminal("summary", "-r", "100", capture, lines=300)
    assert screen.finish() == 0
    printed = screen.written.decode().replace("\r", "")
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in printed.splitlines()]
    assert all(len(line) <= 80 for line in lines), printed
    rows = [line for line in lines if line.startswith("│")]
    assert all(re.search(r"\d+\.\d\d%│ *\d+│$", row) for row in rows), printed
    assert any(re.match(r"│large at …?\S*/program\.py ", row) for row in rows), printed
    assert any(re.match(r"│a_function_\S*… at …/program\.py", row) for row in rows), printed


def test_summary_in_a_pipe_has_full_names(capture: Path) -> None:
    printed = heaptide("summary", capture).stdout
    assert f"large at {capture.parent}/program.py" in printed
    assert "a_function_whose_name_is_longer_than_a_column_of_a_table_can_be at" in printed


def test_stats_wrap_their_sentences_in_a_narrow_terminal(capture: Path) -> None:
    wide = heaptide("stats", capture).stdout
    narrow = heaptide("stats", capture, env={**os.environ, "COLUMNS": "60"}).stdout
    assert narrow != wide and narrow.split() == wide.split()
    lines = [line.expandtabs() for line in narrow.splitlines() if line.startswith("\t")]
    # A path is not broken.
    assert [line for line in lines if len(line) > 60 and " " in line.strip().lstrip("- ")] == []
