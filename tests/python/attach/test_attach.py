"""Tests that `heaptide attach` and `heaptide detach` record a running process without disturbing it.

Where the kernel's settings forbid attaching, these tests are skipped with the message of the command.
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
    n_asked,
    output,
    refused,
    remaining_folders,
    running,
)
from support.commands import PROGRAMS, heaptide

once = pytest.mark.once


def test_busy_program_with_eight_threads_can_be_attached_repeatedly(tmp_path: Path) -> None:
    with running(sys.executable, PROGRAMS / "attach/busy_with_eight_threads.py") as process:
        lines = [output(process).readline()]
        for number in range(2):
            capture = tmp_path / f"{number}.tide"
            attach(process, "-o", capture)
            # A thread prints a line in every fiftieth round.
            lines += [output(process).readline() for _ in range(20)]
            detach(process)
            # Each round allocates a block of about 3,000 bytes.
            assert "one_round:" in heaptide("stats", "--json", "-n", "1000", capture).stdout
        assert process.stdin is not None
        process.stdin.close()
        lines += output(process).readlines()
        assert process.wait() == 0
    expected = [f"{number}\n" for number in range(len(lines) - 1)]
    assert lines == [*expected, f"right {len(expected)} True\n"]
    assert remaining_folders(process) == []


def test_attach_to_a_blocked_program_does_not_interrupt_its_system_call(
    tmp_path: Path, stats: Callable[..., dict[str, Any]]
) -> None:
    with blocked() as process:
        ask(process, 1)
        for number in range(3):
            capture = tmp_path / f"{number}.tide"
            message = attach(process, "-o", capture, *(["--objects"] if number == 1 else []))
            assert re.search(r"attaching took [\d.]+ m?s and paused the process for [\d.]+ (µs|ms)", message)
            for n_letters in (5, 0, 77):
                ask(process, n_letters)
            assert "recorded into" in detach(process)
            ask(process, 3)  # no longer recorded
            assert n_asked(capture) == 3
            sizes = {found["location"]: found["size"] for found in stats(capture)["top_allocations_by_size"]}
            location = f"<module>:{PROGRAMS / 'attach/blocked_in_a_read.py'}:"
            assert max(size for name, size in sizes.items() if name.startswith(location)) >= 300_003
        end(process)
    assert remaining_folders(process) == []


def test_capture_is_completed_if_the_program_ends_while_attached(
    tmp_path: Path, stats: Callable[..., dict[str, Any]]
) -> None:
    capture = tmp_path / "x.tide"
    with blocked() as process:
        attach(process, "-o", capture, "--aggregate", "--sample=1k")
        ask(process, 1)
        end(process)
    [found] = stats(capture)["heaptide"]["processes"]
    assert found["ended_in_order"] and found["joined_late"]


@once
def test_reports_state_that_earlier_allocations_are_missing(
    tmp_path: Path, stats: Callable[..., dict[str, Any]]
) -> None:
    capture = tmp_path / "x.tide"
    with blocked() as process:
        message = attach(process, "-o", capture)
        detach(process)
        end(process)
    assert "earlier allocations are not in the capture" in message
    [found] = stats(capture)["heaptide"]["processes"]
    assert found["attached_at_bytes"] > 1_000_000
    [resident] = re.findall(r"earlier allocations are not in the capture: (.*) resident", message)
    for command in ("stats", "summary", "tree"):
        report = " ".join(heaptide(command, capture).stdout.split())
        assert re.search(rf"attached to process {process.pid}( \(.*?\))? at a resident size of {resident};", report)
        assert "earlier allocations are not in the capture" in report


@once
def test_recording_ends_after_its_duration(tmp_path: Path, stats: Callable[..., dict[str, Any]]) -> None:
    capture = tmp_path / "x.tide"
    with blocked() as process:
        assert f"recorded into {capture}" in attach(process, "-o", capture, "--duration", "0.2")
        assert refused(process.pid, command="detach") == "the process is not attached: there is nothing to stop"
        end(process)
    [found] = stats(capture)["heaptide"]["processes"]
    assert found["ended_in_order"]


@once
@pytest.mark.parametrize("stopped_by", ["Ctrl-C", "heaptide detach"])
def test_recording_with_a_duration_can_be_stopped_earlier(tmp_path: Path, stopped_by: str) -> None:
    capture = tmp_path / "x.tide"
    with blocked() as process:
        attach(process, "-o", tmp_path / "first.tide")  # skips the test where attaching is forbidden
        detach(process)
        words = ["attach", str(process.pid), "-o", str(capture), "--duration", "86400"]
        with subprocess.Popen([sys.executable, "-m", "heaptide", *words], stderr=subprocess.PIPE, text=True) as command:
            assert command.stderr is not None
            assert "recording process" in command.stderr.readline()
            if stopped_by == "Ctrl-C":
                command.send_signal(signal.SIGINT)
            else:
                detach(process)
            message = command.stderr.read()
        assert command.returncode == 0
        assert f"recorded into {capture}" in message and "Traceback" not in message
        assert ("another command stopped the recording" in message) == (stopped_by != "Ctrl-C")
        end(process)


@once
def test_default_capture_name_has_program_and_pid_and_is_not_overwritten(tmp_path: Path) -> None:
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
        assert already.startswith(f"process {process.pid} is already being recorded into {tmp_path / name}")
        detach(process)
        exists = refused(process.pid, "-o", tmp_path / name)
        assert exists.startswith(f"{tmp_path / name} exists already: ")
        attach(process, "-f", "-o", tmp_path / name)
        detach(process)
        end(process)


USES_HEAPTIDE = """
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
def test_program_can_record_itself_after_it_was_attached(tmp_path: Path, stats: Callable[..., dict[str, Any]]) -> None:
    own = tmp_path / "own.tide"
    with running(sys.executable, "-c", USES_HEAPTIDE, own) as process:
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
    # Native functions that create a bytearray come first, then the line of the program that calls them.
    assert row["frame_kinds"].startswith("n") and "p" in row["frame_kinds"]
    innermost = row["stack_trace"].split("|")[row["frame_kinds"].index("p")]
    assert innermost.startswith(f"<module>;{PROGRAMS / 'attach/blocked_in_a_read.py'};")


@once
def test_live_view_attaches_to_a_process_and_detaches_at_exit(tmp_path: Path) -> None:
    terminal = pytest.importorskip("support.terminal_screen")
    with blocked() as process:
        attach(process, "-o", tmp_path / "x.tide")  # skips the test where attaching is forbidden
        detach(process)
        environment = {"TMPDIR": str(tmp_path)}
        command = (sys.executable, "-m", "heaptide", "attach", str(process.pid), "--live")
        with terminal.TerminalScreen(command, env=environment, columns=200) as screen:
            screen.wait_for(f"process {process.pid}")
            ask(process, 2)
            screen.wait_for("<module>", "blocked_in_a_read.py")
            screen.type("q")
            assert screen.finish() == 0
        assert refused(process.pid, command="detach") == "the process is not attached: there is nothing to stop"
        assert [path.name for path in tmp_path.iterdir()] == ["x.tide"]
        end(process)


KILLED = """
import os, signal, sys
print("ready", flush=True)
sys.stdin.readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


@once
def test_capture_of_a_killed_attached_process_can_be_read(tmp_path: Path) -> None:
    capture = tmp_path / "x.tide"
    with running(sys.executable, "-c", KILLED) as process:
        assert output(process).readline() == "ready\n"
        attach(process, "-o", capture)
        process.communicate("\n")
        assert process.returncode == -signal.SIGKILL
    assert "did not end its recording" in heaptide("stats", capture).stdout


@pytest.mark.parametrize("options", [[], ["--follow-fork"]])
def test_child_forked_from_a_recorded_process_can_be_attached(tmp_path: Path, options: list[str]) -> None:
    program = (
        "import os, sys, warnings\n"
        "warnings.simplefilter('ignore')\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    print(os.getpid(), flush=True)\n"
        "    for line in sys.stdin: held = bytes(3_000_000); print('held', flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
    )
    (tmp_path / "job.py").write_text(program)
    command = [sys.executable, "-m", "heaptide", "run", "-q", "-o", "job.tide", *options, "job.py"]
    with running(*command, cwd=tmp_path) as process:
        pid = int(output(process).readline())
        capture = tmp_path / "attached.tide"
        if options:
            # The child is recorded into its own file, and not into its parent's.
            assert f"recorded into {tmp_path}/job.tide.{pid}:" in refused(pid)
        else:
            done = heaptide("attach", str(pid), "-o", capture, check=False)
            if any(setting in done.stderr for setting in SETTINGS):
                pytest.skip(done.stderr.strip())
            assert done.returncode == 0, done.stderr
        stdin = process.stdin
        assert stdin is not None
        stdin.write("\n")
        stdin.flush()
        assert output(process).readline() == "held\n"
        if not options:
            heaptide("detach", str(pid))
            assert " size=3000033 " in heaptide("parse", capture).stdout
        stdin.close()
        assert process.wait() == 0
    assert " size=3000033 " not in heaptide("parse", tmp_path / "job.tide").stdout
