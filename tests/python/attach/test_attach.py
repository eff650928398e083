"""`heaptide attach` and `heaptide detach`: a process that runs already is recorded, and goes on as if nothing had been.

Where the kernel's settings do not let us enter another process, these tests are skipped with what the command says.
"""

from __future__ import annotations

import csv
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.attached_process import (
    SETTINGS,
    ask,
    attach,
    blocked,
    detach,
    end,
    left_behind,
    n_asked,
    output,
    refused,
    running,
)
from support.commands import PROGRAMS, heaptide

once = pytest.mark.once


def test_busy_program_with_eight_threads_is_entered_again_and_again(tmp_path: Path) -> None:
    with running(sys.executable, PROGRAMS / "busy_with_eight_threads.py") as process:
        lines = [output(process).readline()]
        for number in range(2):
            capture = tmp_path / f"{number}.tide"
            attach(process, "-o", capture)
            # Each line stands for fifty rounds of one thread.
            lines += [output(process).readline() for _ in range(20)]
            detach(process)
            # Each round makes a block of 3000 bytes and some.
            assert "one_round:" in heaptide("stats", "--json", "-n", "1000", capture).stdout
        assert process.stdin is not None
        process.stdin.close()
        lines += output(process).readlines()
        assert process.wait() == 0
    expected = [f"{number}\n" for number in range(len(lines) - 1)]
    assert lines == [*expected, f"right {len(expected)} True\n"]
    assert left_behind(process) == []


def test_program_blocked_in_a_system_call_is_entered_and_its_call_goes_on(
    tmp_path: Path, stats: Callable[..., dict[str, Any]]
) -> None:
    with blocked() as process:
        ask(process, 1)
        for number in range(3):
            capture = tmp_path / f"{number}.tide"
            said = attach(process, "-o", capture, *(["--objects"] if number == 1 else []))
            assert re.search(r"attaching took [\d.]+ ms, of which it stood still for [\d.]+ ms", said)
            for n_letters in (5, 0, 77):
                ask(process, n_letters)
            assert "recorded into" in detach(process)
            ask(process, 3)  # not recorded any more
            assert n_asked(capture) == 3
            sizes = {found["location"]: found["size"] for found in stats(capture)["top_allocations_by_size"]}
            place = f"<module>:{PROGRAMS / 'blocked_in_a_read.py'}:"
            assert max(size for name, size in sizes.items() if name.startswith(place)) >= 300_003
        end(process)
    assert left_behind(process) == []


def test_capture_is_completed_if_the_program_ends_first(tmp_path: Path, stats: Callable[..., dict[str, Any]]) -> None:
    capture = tmp_path / "x.tide"
    with blocked() as process:
        attach(process, "-o", capture, "--aggregate", "--sample=1k")
        ask(process, 1)
        end(process)
    [found] = stats(capture)["heaptide"]["processes"]
    assert found["ended_in_order"] and found["joined_late"]


@once
def test_every_report_says_what_was_there_before(tmp_path: Path, stats: Callable[..., dict[str, Any]]) -> None:
    capture = tmp_path / "x.tide"
    with blocked() as process:
        said = attach(process, "-o", capture)
        detach(process)
        end(process)
    assert "what it allocated before is not in the capture" in said
    [found] = stats(capture)["heaptide"]["processes"]
    assert found["attached_at_bytes"] > 1_000_000
    for command in ("stats", "summary", "tree"):
        said = " ".join(heaptide(command, capture).stdout.split())
        assert f"attached to process {process.pid} when " in said
        assert "what it allocated before is not in the capture" in said


@once
def test_recording_of_a_given_duration_ends_by_itself(tmp_path: Path, stats: Callable[..., dict[str, Any]]) -> None:
    capture = tmp_path / "x.tide"
    with blocked() as process:
        said = attach(process, "-o", capture, "--duration", "0.2")
        assert f"recorded into {capture}" in said
        assert refused(process.pid, command="detach") == "the process is not attached: there is nothing to end"
        end(process)
    [found] = stats(capture)["heaptide"]["processes"]
    assert found["ended_in_order"]


@once
@pytest.mark.parametrize("way", ["Ctrl-C", "heaptide detach"])
def test_a_recording_of_a_given_duration_can_be_ended_earlier(tmp_path: Path, way: str) -> None:
    capture = tmp_path / "x.tide"
    with blocked() as process:
        attach(process, "-o", tmp_path / "first.tide")  # skips where it is not permitted
        detach(process)
        words = ["attach", str(process.pid), "-o", str(capture), "--duration", "86400"]
        with subprocess.Popen([sys.executable, "-m", "heaptide", *words], stderr=subprocess.PIPE, text=True) as command:
            assert command.stderr is not None
            assert "recording process" in command.stderr.readline()
            if way == "Ctrl-C":
                command.send_signal(signal.SIGINT)
            else:
                detach(process)
            said = command.stderr.read()
        assert command.returncode == 0
        assert f"recorded into {capture}" in said and "Traceback" not in said
        assert ("somebody else ended the recording" in said) == (way != "Ctrl-C")
        end(process)


@once
def test_capture_has_a_name_of_its_own_and_is_not_overwritten(tmp_path: Path) -> None:
    with blocked() as process:
        done = subprocess.run(
            [sys.executable, "-m", "heaptide", "attach", "-q", str(process.pid)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        if any(setting in done.stderr for setting in SETTINGS):
            pytest.skip(done.stderr.strip())
        assert (done.returncode, done.stderr) == (0, "")
        name = f"heaptide-blocked_in_a_read.py.{process.pid}.tide"
        assert [path.name for path in tmp_path.iterdir()] == [name]
        already = refused(process.pid, "-o", tmp_path / "other.tide")
        assert already.startswith(f"process {process.pid} is being recorded into {tmp_path / name} already")
        detach(process)
        exists = refused(process.pid, "-o", tmp_path / name)
        assert exists.startswith(f"{tmp_path / name} exists already: ")
        attach(process, "-f", "-o", tmp_path / name)
        detach(process)
        end(process)


HAS_HEAPTIDE = """
import sys
import heaptide
from heaptide.recording import tracker
print("ready", flush=True)
sys.stdin.readline()
with heaptide.Tracker(sys.argv[1]):
    kept = bytearray(1_000_000)
print(sys.modules["heaptide.recording.tracker"] is tracker, heaptide.active(), flush=True)
"""


@once
def test_program_that_uses_heaptide_itself_is_attached_and_then_records_itself(
    tmp_path: Path, stats: Callable[..., dict[str, Any]]
) -> None:
    own = tmp_path / "own.tide"
    with running(sys.executable, "-c", HAS_HEAPTIDE, own) as process:
        assert output(process).readline() == "ready\n"
        attach(process, "-o", tmp_path / "x.tide")
        detach(process)
        assert process.communicate("\n")[0] == "True False\n"
    assert stats(own)["metadata"]["peak_memory"] >= 1_000_000


def test_attached_process_shows_its_native_functions(tmp_path: Path) -> None:
    capture = tmp_path / "x.tide"
    with blocked() as process:
        attach(process, "--native", "-o", capture)
        ask(process, 1)
        detach(process)
        end(process)
    text = heaptide("transform", "csv", "--total", "-o", "-", capture).stdout
    [row] = [row for row in csv.DictReader(text.splitlines()) if 100_000 < int(row["size"]) < 100_100]
    # The functions that make a bytearray, innermost first, then the line of the program that asks for it.
    assert row["frame_kinds"].startswith("n") and "p" in row["frame_kinds"]
    innermost = row["stack_trace"].split("|")[row["frame_kinds"].index("p")]
    assert innermost.startswith(f"<module>;{PROGRAMS / 'blocked_in_a_read.py'};")


@once
def test_process_is_shown_live_and_left_alone_afterwards(tmp_path: Path) -> None:
    terminal = pytest.importorskip("terminal_screen")
    with blocked() as process:
        attach(process, "-o", tmp_path / "x.tide")  # skips where it is not permitted
        detach(process)
        environment = {"TMPDIR": str(tmp_path)}
        command = (sys.executable, "-m", "heaptide", "attach", str(process.pid), "--live")
        with terminal.TerminalScreen(command, env=environment, columns=200) as screen:
            screen.wait_for(f"process {process.pid}")
            ask(process, 2)
            screen.wait_for("<module>", "blocked_in_a_read.py")
            screen.type("q")
            assert screen.finish() == 0
        assert refused(process.pid, command="detach") == "the process is not attached: there is nothing to end"
        assert [path.name for path in tmp_path.iterdir()] == ["x.tide"]
        end(process)


KILLED = """
import os, signal, sys
print("ready", flush=True)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


@once
def test_capture_of_an_attached_process_that_is_killed_can_be_read(tmp_path: Path) -> None:
    capture = tmp_path / "x.tide"
    with running(sys.executable, "-c", KILLED) as process:
        assert output(process).readline() == "ready\n"
        attach(process, "-o", capture)
        process.communicate("\n")
        assert process.returncode == -signal.SIGKILL
    assert "did not end its recording" in heaptide("stats", capture).stdout
