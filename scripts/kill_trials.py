"""Kills recorded programs with SIGKILL at random instants and checks their captures.

    make kills COUNT=1000
    build/venv/bin/python scripts/kill_trials.py COUNT [--seed N] [--keep FOLDER]

Every program numbers the blocks of each thread. After each block it writes the count to `progress`, memory that it
shares with this script. The size of a block encodes its thread and number. Programs differ in mode (exact, objects,
native, sampled, aggregate, changing), in the number of threads, and in whether a forked child is also recorded. Some
are killed while the recording starts. After each kill, `heaptide parse` must read every capture without a note of
damage, and no file may be empty. In modes that store single events, each thread may lack only its last event. The exit
code is 1 if a check fails.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import mmap
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from heaptide import Tracker, set_mode

CYCLE = 5000  # Sizes repeat after this many blocks.
MAX_THREADS = 4
BYTES_HEAD = sys.getsizeof(b"")
MODES: dict[str, dict[str, bool | int]] = {
    "exact": {},
    "objects": {"objects": True},
    "native": {"native": True},
    "sampled": {"sample": 4096},
    "aggregate": {"aggregate": True},
    # `change_modes` changes the mode repeatedly.
    "changing": {},
    "changing-aggregate": {"aggregate": True},
}
WITH_EVENTS = ("exact", "objects", "native")
ALLOCATION = re.compile(r"ALLOCATION time=\S+ thread=(\d+) address=\S+ size=(\d+) ")


def allocate(number: int, progress: memoryview) -> None:
    """Allocate numbered blocks until the process is killed."""
    base = 10_000 * (number + 1)
    for n in itertools.count():
        bytes(base + n % CYCLE)
        progress[number] = n + 1


def change_modes(chance: random.Random) -> None:
    """Change the mode of the recording until the process is killed."""
    while True:
        set_mode(chance.choice(("exact", "objects", "sampled")), native=chance.random() < 0.2)
        time.sleep(chance.uniform(0, 0.003))


def program(capture: Path, mode: str, n_threads: int, forks: bool, progress: memoryview) -> None:
    """Record and allocate. A forked child writes to the second half of `progress`."""
    sys.setswitchinterval(1e-4)
    Tracker(capture, follow_fork=forks, **MODES[mode]).start()  # type: ignore[arg-type]
    first = 0
    if forks and os.fork() == 0:
        first = MAX_THREADS
    if mode.startswith("changing"):
        threading.Thread(target=change_modes, args=(random.Random(n_threads),), daemon=True).start()
    for number in range(1, n_threads):
        threading.Thread(target=allocate, args=(first + number, progress), daemon=True).start()
    allocate(first, progress)


def kill_one(capture: Path, mode: str, n_threads: int, forks: bool, chance: random.Random) -> list[int]:
    """Run one program, kill it and its child at a random instant, and return `progress`."""
    progress = memoryview(mmap.mmap(-1, 4096)).cast("Q")
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        try:
            program(capture, mode, n_threads, forks, progress)
        finally:
            os._exit(1)
    # One program in eight is killed while the recording starts. Most others are killed while the file is small.
    if chance.randrange(8) == 0:
        time.sleep(chance.uniform(0, 0.02))
    else:
        limit = int(10 ** chance.uniform(0, 4.5))
        while sum(progress[: 2 * MAX_THREADS]) < limit and os.waitpid(pid, os.WNOHANG) == (0, 0):
            time.sleep(0)
    for _ in range(chance.randrange(300)):
        pass
    for target in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError):
            target(pid, signal.SIGKILL)
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return []  # The program ended before the kill, which is a failure.
    return list(progress[: 2 * MAX_THREADS])


def wrong(folder: Path, mode: str, progress: list[int]) -> str | None:
    """Return the problem of one program's captures, or None."""
    if not progress:
        return "the program ended before it was killed"
    files = sorted(folder.iterdir())
    empty = [file.name for file in files if file.stat().st_size == 0]
    if empty:
        return f"empty: {', '.join(empty)}"
    captures = [file for file in files if ".tide" in file.name]
    if not captures:
        return "no capture" if sum(progress) else None
    parsed = subprocess.run([sys.executable, "-m", "heaptide", "parse", *captures], capture_output=True, text=True)
    # A child may be killed after its file is created and before it has an event; a note reports this.
    notes = [line for line in parsed.stderr.splitlines() if "the file ends after its header" not in line]
    if parsed.returncode != 0 or notes:
        return f"unreadable: {parsed.stderr.strip()[:300]}"
    if mode not in WITH_EVENTS:
        return None
    numbers: dict[int, list[int]] = collections.defaultdict(list)
    for line in parsed.stdout.splitlines():
        if found := ALLOCATION.match(line):
            size = int(found[2]) - BYTES_HEAD
            number = size // 10_000 - 1
            if 0 <= number < 2 * MAX_THREADS and size % 10_000 < CYCLE:
                numbers[number].append(size % 10_000)
    for number, n_announced in enumerate(progress):
        found_numbers = numbers[number]
        if not n_announced - 1 <= len(found_numbers) <= n_announced + 1:
            return f"thread {number}: {len(found_numbers)} events of {n_announced}"
        if found_numbers != [n % CYCLE for n in range(len(found_numbers))]:
            return f"thread {number}: events out of order"
    return None


def main() -> int:
    """Run the trials, print each failure and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, help="number of programs to kill")
    parser.add_argument("--seed", type=int, default=1, help="start of the random choices (default %(default)s)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the captures of failures in this folder")
    options = parser.parse_args()
    kills: collections.Counter[str] = collections.Counter()
    failures = 0
    for turn in range(options.count):
        chance = random.Random(options.seed * 1_000_003 + turn)
        mode = chance.choice(list(MODES))
        n_threads = chance.choice([1, 1, 2, MAX_THREADS])
        forks = chance.randrange(4) == 0
        with tempfile.TemporaryDirectory(prefix="heaptide-kills-") as scratch:
            folder = Path(scratch)
            progress = kill_one(folder / "job.tide", mode, n_threads, forks, chance)
            problem = wrong(folder, mode, progress)
            kills[mode] += 1
            if problem:
                failures += 1
                print(f"turn {turn}, {mode}, {n_threads} threads, forks {forks}: {problem}", flush=True)
                if options.keep:
                    folder.rename(options.keep / f"{turn}")
                    folder.mkdir()
    by_mode = ", ".join(f"{mode} {count}" for mode, count in sorted(kills.items()))
    print(f"kills {kills.total()} ({by_mode}), failures {failures}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
