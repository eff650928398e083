"""Tests the keys of `heaptide run --live` if standard input is not the terminal: they come from the terminal."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.terminal_screen import TerminalScreen

pytestmark = pytest.mark.once

COMMAND = (sys.executable, "-m", "heaptide", "run", "--live")


def test_view_reads_keys_from_the_terminal_if_standard_input_is_a_closed_pipe(tmp_path: Path) -> None:
    (tmp_path / "reads.py").write_text(
        "import sys\nkept = bytearray(3_000_000)\nprint('read', sys.stdin.read())\nsys.exit(5)\n"
    )
    reading, writing = os.pipe()
    os.write(writing, b"a line")
    os.close(writing)
    with open(reading) as pipe, TerminalScreen([*COMMAND, "reads.py"], cwd=tmp_path, stdin=pipe) as screen:
        screen.wait_for("ended", "3.0")
        screen.type("p")
        screen.wait_for("output of the program", "read a line")
        screen.type("q")
        assert screen.finish() == 5
        assert screen.is_restored()


def test_view_waits_for_keys_without_cpu_time_if_standard_input_is_empty(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text("import signal\nkept = bytearray(3_000_000)\nsignal.pause()\n")

    def elapsed(seen: str) -> float:
        found = re.search(r"running (\d+(?:\.\d+)?) s ", seen)
        return float(found[1]) if found else 0.0

    with TerminalScreen([*COMMAND, "waits.py"], cwd=tmp_path, stdin=subprocess.DEVNULL) as screen:

        def cpu_seconds() -> float:
            fields = Path(f"/proc/{screen.process.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        start = elapsed(screen.wait_for("running", "3.0"))
        cpu_at_start = cpu_seconds()
        seconds = elapsed(screen.wait(lambda seen: elapsed(seen) >= start + 2)) - start
        # A view that does not wait uses all the time that its core has left.
        assert cpu_seconds() - cpu_at_start < seconds / 10
        screen.type("\x03")
        screen.wait_for("ended")
        screen.type("q")
        screen.finish()
        assert screen.is_restored()
