"""Tests that a recorded program under an address space limit gets MemoryErrors and continues as without Heaptide."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import heaptide

# Allocates all memory in ever smaller blocks, frees it, and continues; its output does not depend on the amount.
# Python 3.15 itself crashes without memory for small blocks, recorded or not. There the program skips small blocks.
PROGRAM = """
import resource, sys, threading
def limit(spare):
    pages = int(open("/proc/self/statm").read().split()[0])
    amount = pages * resource.getpagesize() + spare
    resource.setrlimit(resource.RLIMIT_AS, (amount, resource.RLIM_INFINITY))
def fill():
    held = []
    for size in (1 << 24, 1 << 20, 1 << 16, 1 << 12, 600)[: 5 if sys.version_info < (3, 15) else 4]:
        try:
            while True:
                held.append(bytes(size))
        except MemoryError:
            pass
    # With no memory left: code that has not run before, new stacks, new sizes.
    for function in prepared:
        try:
            function()
        except MemoryError:
            held and held.pop()
    return bool(held)
def new_code(number):
    names = {}
    exec(f"def f{number}(): return bytes(5000 + {number})", names)
    return names[f"f{number}"]
prepared = [new_code(number) for number in range(3000)]
def work():
    return sum(len(new_code(number)()) for number in range(2000))
def in_thread():
    done = []
    try:
        thread = threading.Thread(target=lambda: done.append(work()))
        thread.start()
    except (RuntimeError, MemoryError):
        return "no thread"
    thread.join()
    return done[0]
"""
RESULT = sum(5000 + number for number in range(2000))


@pytest.mark.parametrize(
    ("options", "spare"),
    [([], 0), ([], 100_000), ([], 3_000_000), ([], 40_000_000)]
    + [([option], 3_000_000) for option in ("--objects", "--sample=4k", "--aggregate", "--follow-fork")],
)
def test_program_that_runs_out_of_memory_continues(tmp_path: Path, options: list[str], spare: int) -> None:
    program = f"""{PROGRAM}
limit({spare})
for _ in range(3):
    fill()
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(work(), in_thread())
sys.exit(5)
"""
    capture = tmp_path / "job.tide"
    done = heaptide("run", "-q", *options, "-o", capture, "-c", program, check=False)
    assert (done.stdout, done.returncode) == (f"{RESULT} {RESULT}\n", 5), done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) <= 1 and all(line.startswith("heaptide: ") for line in lines), done.stderr
    assert heaptide("stats", "--json", capture).stdout


def test_failed_allocations_are_not_in_the_capture(tmp_path: Path) -> None:
    program = f"""{PROGRAM}
limit(400_000_000)
for _ in range(7):
    try:
        bytes(3_000_000_000)
    except MemoryError:
        pass
held = [bytes(1_234_567) for _ in range(4)]
"""
    capture = tmp_path / "job.tide"
    heaptide("run", "-q", "-o", capture, "-c", program)
    lines = [line for line in heaptide("parse", capture).stdout.splitlines() if line.startswith("ALLOCATION ")]
    assert not any(" size=30000000" in line for line in lines)
    assert sum(" size=1234600 " in line for line in lines) == 4


@pytest.mark.parametrize("spare", [0, 100_000, 300_000, 600_000, 2_500_000, 9_000_000])
def test_start_under_a_memory_limit_works_or_raises_and_the_program_continues(tmp_path: Path, spare: int) -> None:
    program = f"""{PROGRAM}
import heaptide
heaptide.Tracker  # imports its module while there is memory
# The limit does not cover free memory that the heap already has.
limit({spare})
tracker = heaptide.Tracker("block.tide", overwrite=True)
try:
    tracker.start()
except (MemoryError, OSError, heaptide.RecordingError) as error:
    outcome = "refused"
else:
    outcome = "started"
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert heaptide.active() == (outcome == "started")
result = work()
tracker.stop()
with heaptide.Tracker("after.tide"):
    held = bytes(1_234_567)
print(result, outcome)
sys.exit(5)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.startswith(f"{RESULT} ") and done.returncode == 5, done.stderr
    assert done.stderr == "" or done.stderr.startswith("heaptide: ")
    assert " size=1234600 " in heaptide("parse", tmp_path / "after.tide").stdout
