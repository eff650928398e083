"""Tests the live view of a running program: `heaptide live`, `heaptide run --live` and `--live-remote`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import heaptide
from support.messages import one_sentence
from support.terminal_screen import TerminalScreen
from support.waiting import wait_until

pytestmark = pytest.mark.once

# Allocates a known amount in two threads, prints "holding", and waits for a line of input.
PROGRAM = """
import sys, threading

kept = []

def from_the_worker():
    for _ in range(8):
        kept.append(bytearray(250_000))

def from_main():
    for _ in range(5):
        kept.append(bytearray(1_000_000))

def hold():
    from_main()
    worker = threading.Thread(target=from_the_worker, name="the-worker")
    worker.start()
    worker.join()

hold()
print("holding", flush=True)
sys.stdin.readline()
sys.exit(3)
"""

COMMAND = (sys.executable, "-m", "heaptide")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The program as a file."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., TerminalScreen]]:
    """Open a command on a terminal, and close it after the test."""
    opened: list[TerminalScreen] = []

    def show(*arguments: str | Path, **options: Any) -> TerminalScreen:
        opened.append(TerminalScreen([*COMMAND, *map(str, arguments)], cwd=tmp_path, **options))
        return opened[-1]

    yield show
    for screen in opened:
        screen.close()


class Recorded:
    """A program under `heaptide run` that keeps its memory until it gets a line of input."""

    def __init__(self, *arguments: str | Path, cwd: Path) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "run", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
        )
        assert self.process.stdout is not None and self.process.stderr is not None and self.process.stdin is not None

    def port(self) -> str:
        """Return the port from the line about the connection."""
        line = self.process.stderr.readline()  # type: ignore[union-attr]
        found = re.search(r"heaptide live (\d+)$", line.strip())
        assert found, line + self.process.stderr.read()  # type: ignore[union-attr]
        return found[1]

    def wait_until_allocated(self) -> None:
        """Wait until the program has allocated its memory."""
        assert self.process.stdout.readline() == "holding\n"  # type: ignore[union-attr]

    def finish(self) -> int:
        """Let the program end, and return its exit code."""
        self.process.communicate("\n")
        return self.process.returncode

    def close(self) -> None:
        """Kill the program if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Callable[..., Recorded]]:
    """Start programs under `heaptide run`, and close them after the test."""
    started: list[Recorded] = []

    def start(*arguments: str | Path) -> Recorded:
        started.append(Recorded(*arguments, cwd=tmp_path))
        return started[-1]

    yield start
    for program in started:
        program.close()


def shown_size(number: int) -> str:
    """Format a size as reports do: with three significant digits."""
    value, unit = float(number), "B"
    for larger in ("kB", "MB", "GB"):
        if value >= 999.5:
            value, unit = value / 1000, larger
    decimals = 0 if unit == "B" or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{decimals}f} {unit}"


def live_bytes(capture: Path) -> int:
    """Return the live bytes that `heaptide stats` reports."""
    [process] = json.loads(heaptide("stats", "--json", capture).stdout)["heaptide"]["processes"]
    return int(process["live_bytes"])


def test_live_view_shows_the_numbers_of_the_reports(
    script: Path, tmp_path: Path, recorded: Callable[..., Recorded], terminal: Callable[..., TerminalScreen]
) -> None:
    capture = tmp_path / "program.tide"
    program = recorded("-q", "-o", capture, script)
    program.wait_until_allocated()
    held = shown_size(live_bytes(capture))
    screen = terminal("live", capture, columns=120)
    seen = screen.wait_for(f"heap {held}", "from_main", "from_the_worker")
    assert "running" in seen and "program.py" in seen and "resident" in seen
    assert re.search(r"from_main at \S+ +5\.00 MB +\d+\.\d\d% +5\.00 MB +\d+\.\d\d% +[56]\b", seen), seen
    assert re.search(r"from_the_worker at \S+ +2\.00 MB", seen), seen
    assert program.finish() == 3
    screen.wait_for("ended")
    screen.type("q")
    assert screen.finish() == 0
    assert screen.is_restored()


def test_functions_can_be_sorted_searched_filtered_by_thread_and_paused(
    script: Path, tmp_path: Path, recorded: Callable[..., Recorded], terminal: Callable[..., TerminalScreen]
) -> None:
    capture = tmp_path / "program.tide"
    program = recorded("-q", "-o", capture, script)
    program.wait_until_allocated()
    screen = terminal("live", "--pid", str(program.process.pid), columns=120, lines=40)
    screen.wait_for("from_main", "all 2 threads, by total memory", "<Total>")
    screen.type("o")
    screen.wait_for("by own memory", "<Own>")
    screen.type("a")
    screen.wait_for("by number of blocks", "<Blocks>")
    screen.type(">>")
    screen.wait(lambda seen: "the-worker" in seen and "from_main" not in seen)
    screen.type("m/from_M")
    screen.wait(lambda seen: "from_main" in seen and "from_the_worker" not in seen)
    screen.type("\x1b")
    screen.wait_for("from_the_worker")
    screen.type(" ")
    screen.wait_for("paused")
    assert program.finish() == 3
    screen.type(" ")
    screen.wait_for("ended")
    screen.type("q")
    assert screen.finish() == 0


def test_run_live_keeps_the_programs_output_and_exit_code(
    script: Path, tmp_path: Path, terminal: Callable[..., TerminalScreen]
) -> None:
    (tmp_path / "talks.py").write_text(
        PROGRAM.replace("sys.stdin.readline()", "print('and more')").replace("sys.exit(3)", "raise SystemExit(3)")
    )
    screen = terminal("run", "--live", "talks.py", "an argument")
    seen = screen.wait_for("ended", "from_main", "an argument")
    assert "holding" not in seen
    screen.type("p")
    screen.wait_for("output of the program", "holding", "and more")
    screen.type("q")
    assert screen.finish() == 3
    assert screen.is_restored()
    assert "holding" in screen.text() and "and more" in screen.text()
    assert not list(tmp_path.glob("*.tide"))


def test_ctrl_c_interrupts_the_program_and_q_leaves_it_running(
    tmp_path: Path, terminal: Callable[..., TerminalScreen]
) -> None:
    (tmp_path / "waits.py").write_text(
        "import sys, time\nkept = bytearray(3_000_000)\ntry:\n    print('waits', flush=True)\n"
        "    while True: time.sleep(0.1)\nexcept KeyboardInterrupt:\n    print('interrupted', flush=True)\nsys.exit(5)\n"
    )
    screen = terminal("run", "--live", tmp_path / "waits.py")
    screen.wait_for("running", "3.0")
    screen.type("p")
    screen.wait_for("waits")
    screen.type("\x03")
    screen.wait_for("interrupted", "ended")
    screen.type("\x03")
    assert screen.finish() == 5

    screen = terminal("run", "--live", tmp_path / "waits.py")
    screen.wait_for("running", "3.0")
    screen.type("p")
    screen.wait_for("waits")
    screen.type("q")
    screen.wait(lambda seen: "running" not in seen and "waits" in seen)
    screen.type("\x03")
    assert screen.finish() == 5
    assert "interrupted" in screen.text()
    assert screen.is_restored()


def test_signal_to_the_view_reaches_the_program_and_restores_the_terminal(
    tmp_path: Path, terminal: Callable[..., TerminalScreen]
) -> None:
    (tmp_path / "waits.py").write_text("import signal\nkept = bytearray(3_000_000)\nsignal.pause()\n")
    screen = terminal("run", "--live", tmp_path / "waits.py")
    screen.wait_for("running", "3.0")
    screen.process.send_signal(signal.SIGTERM)
    assert screen.finish() == -signal.SIGTERM
    assert screen.is_restored()


def test_program_is_shown_in_another_terminal(
    script: Path, recorded: Callable[..., Recorded], terminal: Callable[..., TerminalScreen]
) -> None:
    program = recorded("--live-remote", script)
    port = program.port()
    program.wait_until_allocated()
    screen = terminal("live", port, columns=120)
    screen.wait_for("running", "from_main", "from_the_worker", "5.00 MB")
    printed = heaptide("live", port).stdout
    assert re.search(r"from_main at .*5\.00 MB", printed), printed
    assert program.finish() == 3
    screen.wait_for("ended")
    screen.type("q")
    assert screen.finish() == 0


def test_stopped_viewer_does_not_stop_the_program_and_misses_updates(
    tmp_path: Path, recorded: Callable[..., Recorded], terminal: Callable[..., TerminalScreen]
) -> None:
    (tmp_path / "churns.py").write_text(
        "import sys\nkept = []\nprint('begun', flush=True)\nsys.stdin.readline()\n"
        "for n in range(40_000):\n    kept.append(bytearray(600))\n    if n % 2: kept.pop()\n"
        "print('done', flush=True)\nsys.stdin.readline()\n"
    )
    program = recorded("--live-remote", tmp_path / "churns.py")
    port = program.port()
    stdin, stdout = program.process.stdin, program.process.stdout
    assert stdin is not None and stdout is not None
    assert stdout.readline() == "begun\n"
    screen = terminal("live", port)
    screen.wait_for("running")
    screen.process.send_signal(signal.SIGSTOP)
    stdin.write("\n")
    stdin.flush()
    assert stdout.readline() == "done\n", "the program waits for the stopped viewer"

    # Other viewers still get new numbers.
    def n_blocks() -> int:
        found = re.search(r"in (one|[\d,]+) blocks?", heaptide("live", port).stdout)
        assert found is not None
        return 1 if found[1] == "one" else int(found[1].replace(",", ""))

    wait_until(lambda: n_blocks() >= 20_000, "the program's last numbers")
    screen.process.send_signal(signal.SIGCONT)
    screen.wait(lambda seen: re.search(r"in 20,\d{3} blocks", seen))
    assert program.finish() == 0


def test_killed_or_foreign_viewers_do_not_disturb_the_program(
    script: Path, recorded: Callable[..., Recorded], terminal: Callable[..., TerminalScreen]
) -> None:
    program = recorded("--live-remote", script)
    port = program.port()
    program.wait_until_allocated()
    screen = terminal("live", port)
    # The first numbers of the next viewer may be as old as those of this one.
    screen.wait_for("running", "from_main")
    screen.process.kill()
    screen.finish()
    with socket.create_connection(("127.0.0.1", int(port))) as foreign:
        foreign.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert foreign.recv(100) == b""
    assert "from_main" in heaptide("live", port).stdout
    assert program.finish() == 3


def test_killed_program_is_shown_as_gone(
    script: Path, tmp_path: Path, recorded: Callable[..., Recorded], terminal: Callable[..., TerminalScreen]
) -> None:
    capture = tmp_path / "program.tide"
    program = recorded("-q", "-o", capture, script)
    program.wait_until_allocated()
    screen = terminal("live", capture)
    screen.wait_for("running", "from_main")
    program.process.kill()
    program.process.wait()
    screen.wait_for("gone", "from_main")
    screen.type("q")
    assert screen.finish() == 0


def test_signal_to_a_viewed_program_reaches_its_handler(tmp_path: Path, recorded: Callable[..., Recorded]) -> None:
    (tmp_path / "asks.py").write_text(
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('holding', flush=True)\nwhile True: time.sleep(0.1)\n"
    )
    program = recorded("--live-remote", "-q", "asks.py")
    program.wait_until_allocated()
    program.process.send_signal(signal.SIGTERM)
    assert program.process.wait() == 7


def test_unusable_ports_are_reported_in_one_sentence() -> None:
    # A port that is bound but not listening refuses connections, and no other process can bind it.
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = str(bound.getsockname()[1])
        refused = heaptide("live", port, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"heaptide: nothing listens on port {port}"), refused.stderr
    with socket.create_server(("127.0.0.1", 0)) as foreign:
        port = str(foreign.getsockname()[1])

        def answer() -> None:
            connection, _ = foreign.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        server = threading.Thread(target=answer)
        server.start()
        other = heaptide("live", port, check=False)
        server.join()
        assert other.returncode == 1
        assert other.stderr.startswith(f"heaptide: port {port} is not a"), other.stderr
        taken = heaptide("run", f"--live-remote={port}", "-c", "print('ran')", check=False)
        assert (taken.returncode, taken.stdout) == (1, "")
        assert taken.stderr == f"heaptide: port {port} is in use: choose another, or omit the port\n"
    unknown = heaptide("live", "70000", check=False)
    assert unknown.returncode == 2
    assert unknown.stderr.startswith("heaptide: 70000 is not a port"), unknown.stderr
    for failed in (refused, other, taken, unknown):
        one_sentence(failed.stderr)


def test_programs_that_cannot_be_shown_are_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no capture")
    for arguments, words in (
        (("live", tmp_path / "none.tide"), "there is no file"),
        (("live", tmp_path / "text"), "is not a Heaptide capture"),
        (("live", "--pid", str(os.getpid())), "is not being recorded"),
        (("live", "--pid", "4194305"), "there is no process 4194305"),
        (("run", "--live", "-c", "print('ran')"), "--live needs a terminal"),
    ):
        failed = heaptide(*arguments, check=False)
        assert failed.returncode == 1
        assert words in one_sentence(failed.stderr)
        assert failed.stdout == ""


def test_program_that_cannot_start_fails_with_pythons_message(
    tmp_path: Path, terminal: Callable[..., TerminalScreen]
) -> None:
    screen = terminal("run", "--live", "nowhere.py")
    screen.wait_for("recorded nothing")
    screen.type("q")
    assert screen.finish() == 2
    assert "can't open file" in screen.text()


def test_folder_that_an_earlier_process_with_the_same_id_left_is_no_failure(tmp_path: Path) -> None:
    leave = 'mkdir "$TMPDIR/heaptide-live-$$" && exec "$@"'
    done = subprocess.run(
        [
            "sh",
            "-c",
            leave,
            "sh",
            *COMMAND,
            "run",
            "--live-remote=0",
            "-c",
            "import os; print(os.listdir(os.environ['TMPDIR']))",
        ],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("heaptide-") == 2
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("heaptide-live-")] == []


def test_live_view_can_be_left_on_a_tiny_terminal(
    script: Path, tmp_path: Path, terminal: Callable[..., TerminalScreen]
) -> None:
    capture = tmp_path / "program.tide"
    heaptide("run", "-q", "-o", capture, "-c", "kept = bytearray(2_000_000)")
    screen = terminal("live", capture, columns=2, lines=1)
    screen.wait_for_full_screen()
    screen.resize(9, 3)
    screen.type("oat<>/x\rp")
    screen.resize(80, 24)
    # Wait for numbers, because a view that is paused before its first numbers shows none.
    screen.wait_for("ended")
    screen.type(" ")
    screen.wait_for("paused")
    screen.type("q")
    assert screen.finish() == 0
    assert screen.is_restored()


# Threads free each other's blocks, so that addresses are reused across threads.
BUSY = """
import queue, random, sys, threading

handed = queue.SimpleQueue()
kept = []

def work(number):
    chance = random.Random(number)
    mine = []
    for n in range(8_000):
        block = bytearray(chance.randrange(600, 5000))
        if n % 3 == 0:
            handed.put(block)
        elif n % 3 == 1:
            mine.append(block)
        if len(mine) > 500:
            del mine[:250]
        if n % 5 == 0 and not handed.empty():
            handed.get()
    kept.append(mine)

threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("holding", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("options", [(), ("--aggregate",)])
def test_sums_followed_from_the_start_equal_sums_read_at_once(
    options: tuple[str, ...], tmp_path: Path, recorded: Callable[..., Recorded]
) -> None:
    (tmp_path / "busy.py").write_text(BUSY)
    capture = tmp_path / "busy.tide"
    # The capture of an earlier run under the same name must not be mistaken for this one.
    heaptide("run", "-q", "-o", capture, "-c", "kept = bytearray(7_000_000)")
    program = recorded("--live-remote", "-q", "-f", "-o", capture, *options, "busy.py")
    port = program.port()
    program.wait_until_allocated()
    [process] = json.loads(heaptide("stats", "--json", capture).stdout)["heaptide"]["processes"]
    wanted = f"heap {shown_size(process['live_bytes'])} in "
    highest = f"at most {shown_size(process['peak_bytes'])}"
    seen = []

    def is_seen() -> bool:
        seen.append(heaptide("live", port).stdout.splitlines()[1])
        return wanted in seen[-1]

    wait_until(is_seen, f"{wanted!r}")
    assert highest in seen[-1], (highest, seen[-1])
    assert program.finish() == 0
