"""Tests that a program leaves a readable capture with all its events, however it exits."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from support.commands import PROGRAMS, heaptide

BYTES_HEAD = sys.getsizeof(b"")
CYCLE = 5000

NORMAL_EXITS = {
    "falling off the end": ("pass", 0),
    "SystemExit": ("raise SystemExit(3)", 3),
    "an uncaught exception": ("1 / 0", 1),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", -signal.SIGINT),
    "SIGINT": ("os.kill(os.getpid(), signal.SIGINT); signal.pause()", -signal.SIGINT),
    "SIGTERM with a handler": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(4)); os.kill(os.getpid(), signal.SIGTERM); signal.pause()",
        4,
    ),
    "an exit handler that fails": ("import atexit; atexit.register(lambda: 1 / 0)", 0),
    "a thread that outlives the main thread": ("threading.Timer(0.05, mark).start()", 0),
}
ABRUPT_EXITS = {
    "os._exit": ("os._exit(7)", 7),
    "libc's exit": ("ctypes.CDLL(None).exit(8)", 8),
    "libc's quick_exit": ("ctypes.CDLL(None).quick_exit(9)", 9),
    "exec": ("os.execv('/bin/sh', ['sh', '-c', 'exit 10'])", 10),
    "SIGTERM": ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    "SIGHUP": (
        "signal.signal(signal.SIGHUP, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGHUP)",
        -signal.SIGHUP,
    ),
    "SIGINT by default": (
        "signal.signal(signal.SIGINT, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGINT)",
        -signal.SIGINT,
    ),
    "abort": ("os.abort()", -signal.SIGABRT),
    "abort with faulthandler": ("import faulthandler; faulthandler.enable(); os.abort()", -signal.SIGABRT),
    "SIGSEGV": ("ctypes.string_at(0)", -signal.SIGSEGV),
    "SIGSEGV with faulthandler": ("import faulthandler; faulthandler.enable(); ctypes.string_at(0)", -signal.SIGSEGV),
    "SIGKILL": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    "SIGKILL from a thread": (
        "threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGKILL)).start(); signal.pause()",
        -signal.SIGKILL,
    ),
}
MARKED = 1_234_567


def n_marked(capture: Path) -> int:
    """Count the marked blocks in a capture."""
    lines = heaptide("parse", capture).stdout.splitlines()
    return sum(f" size={MARKED + BYTES_HEAD} " in line for line in lines if line.startswith("ALLOCATION "))


def end(heaptide_run: Callable[..., Any], code: str) -> Any:
    """Record a program that allocates six marked blocks and then runs `code` to exit."""
    program = f"""
import ctypes, os, signal, sys, threading
held = []
def mark():
    held.append(bytes({MARKED}))
for _ in range(5):
    mark()
thread = threading.Thread(target=mark)
thread.start()
thread.join()
{code}
"""
    return heaptide_run(program, check=False)


@pytest.mark.parametrize("way_to_exit", NORMAL_EXITS)
def test_normal_exit_completes_the_capture(
    heaptide_run: Callable[..., Any], stats: Callable[..., dict[str, Any]], way_to_exit: str
) -> None:
    code, expected = NORMAL_EXITS[way_to_exit]
    done = end(heaptide_run, code)
    assert done.returncode == expected
    report = stats(done.capture)["heaptide"]
    assert report["processes"][0]["ended_in_order"] and report["damage"] == [] and report["lost"] == []
    assert n_marked(done.capture) == 6 + ("thread" in way_to_exit)


@pytest.mark.parametrize("way_to_exit", ABRUPT_EXITS)
def test_sudden_exit_keeps_all_events(
    heaptide_run: Callable[..., Any], stats: Callable[..., dict[str, Any]], way_to_exit: str
) -> None:
    code, expected = ABRUPT_EXITS[way_to_exit]
    done = end(heaptide_run, code)
    assert done.returncode == expected
    report = stats(done.capture)["heaptide"]
    assert report["damage"] == [] and report["lost"] == []
    assert n_marked(done.capture) == 6


def test_faulthandler_shows_only_frames_of_the_program(heaptide_run: Callable[..., Any]) -> None:
    done = end(heaptide_run, "import faulthandler; faulthandler.enable(); os.abort()")
    assert "Fatal Python error: Aborted" in done.stderr
    # Newer versions also print the C stack, which contains Heaptide's library, after the Python stack.
    frames = [line for line in done.stderr.splitlines() if line.startswith("  File ")]
    assert len(frames) == 1 and "program1.py" in frames[0]


def test_daemon_threads_are_recorded_until_exit(heaptide_run: Callable[..., Any]) -> None:
    # The thread continues while the interpreter waits in an exit handler.
    code = """
import atexit, time
def keep_marking():
    while len(held) < 400:
        mark()
    finished.set()
finished = threading.Event()
atexit.register(finished.wait)
threading.Thread(target=keep_marking, daemon=True).start()
"""
    assert n_marked(end(heaptide_run, code).capture) == 400


def sizes_by_file(lines: Iterable[str]) -> list[dict[str, list[int]]]:
    """Return for each file the sizes that each thread allocated, in order."""
    files: list[dict[str, list[int]]] = []
    record = re.compile(r"ALLOCATION time=\S+ thread=(\d+) address=\S+ size=(\d+) ")
    for line in lines:
        if line.startswith("HEADER "):
            files.append(defaultdict(list))
        elif found := record.match(line):
            files[-1][found[1]].append(int(found[2]) - BYTES_HEAD)
    return files


def numbered(sizes: list[int], thread: int) -> list[int]:
    """Return the numbers of the blocks of a thread, which their sizes encode."""
    base = 10_000 * (thread + 1)
    return [size - base for size in sizes if base <= size < base + CYCLE]


def run_program(name: str, *arguments: object) -> str:
    """Run a test program, and return its output."""
    command = [sys.executable, str(PROGRAMS / name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize(("n_threads", "n_kills"), [(1, 60), (4, 40)])
def test_killed_program_lacks_at_most_the_last_event_of_each_thread(
    tmp_path: Path, n_threads: int, n_kills: int
) -> None:
    seed = 10 * n_threads
    announced = json.loads(run_program("recording/killed_while_allocating.py", tmp_path, n_kills, n_threads, seed))
    assert len(announced) == n_kills
    parsed = heaptide("parse", *announced)
    assert parsed.stderr == ""
    files = sizes_by_file(parsed.stdout.splitlines())
    assert len(files) == n_kills
    for (capture, counts), threads in zip(announced.items(), files, strict=True):
        for thread, n_announced in enumerate(counts):
            sequences = [found for sizes in threads.values() if (found := numbered(sizes, thread))]
            numbers = sequences[0] if sequences else []
            report = f"{capture}, thread {thread}, seed {seed}: {len(numbers)} in the file, {n_announced} announced"
            assert len(sequences) <= 1, report
            assert n_announced - 1 <= len(numbers) <= n_announced + 1, report
            assert numbers == [n % CYCLE for n in range(len(numbers))], report


@pytest.mark.parametrize(("n_blocks", "n_kills"), [(500, 30), (20_000, 20)])
def test_capture_of_a_program_killed_while_stopping_has_every_event(
    tmp_path: Path, n_blocks: int, n_kills: int
) -> None:
    seed = n_blocks
    n_unfinished = int(run_program("recording/killed_while_stopping.py", tmp_path, n_kills, n_blocks, seed))
    assert n_unfinished > 0
    captures = sorted(tmp_path.glob("*.tide"))
    parsed = heaptide("parse", *captures)
    assert parsed.stderr == ""
    files = sizes_by_file(parsed.stdout.splitlines())
    assert len(files) == n_kills
    for capture, threads in zip(captures, files, strict=True):
        numbers = [number for sizes in threads.values() for number in numbered(sizes, 0)]
        assert numbers == [n % CYCLE for n in range(n_blocks)], f"{capture}, seed {seed}"


def test_heaptide_run_killed_by_another_process_leaves_a_readable_capture(tmp_path: Path) -> None:
    code = f"import sys\nheld = []\nwhile True:\n  held.append(bytes({MARKED})); print(len(held), flush=True)\n  len(held) < 300 or held.clear()"
    for limit in (1, 7, 250):
        capture = tmp_path / f"{limit}.tide"
        command = [sys.executable, "-m", "heaptide", "run", "-o", str(capture), "-c", code]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == limit:
                process.kill()
                break
        assert process.wait() == -signal.SIGKILL
        n_announced = limit + len(process.stdout.read().splitlines())
        assert n_marked(capture) in (n_announced, n_announced + 1)
        for report in ("stats", "summary", "tree"):
            assert heaptide(report, capture).stderr == ""


def test_report_states_that_a_killed_process_did_not_end_its_recording(heaptide_run: Callable[..., Any]) -> None:
    done = end(heaptide_run, ABRUPT_EXITS["SIGKILL"][0])
    assert "did not end its recording" in heaptide("stats", done.capture).stdout
    assert heaptide("parse", done.capture).stdout.splitlines()[-1].startswith("TRAILER time=unknown ")


def test_capture_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    capture = tmp_path / "growing.tide"
    code = f"import sys\nheld = [bytes({MARKED}) for _ in range(9)]\nprint('made', flush=True)\nsys.stdin.read()"
    command = [sys.executable, "-m", "heaptide", "run", "-q", "-o", str(capture), "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "made\n"
        assert n_marked(capture) == 9
        assert heaptide("stats", capture).stderr == ""
        process.stdin.close()
    assert process.returncode == 0 and n_marked(capture) == 9
