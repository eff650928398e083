"""Tests the disk space of captures: of children that exit without cleanup, and of many children over time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from support.commands import heaptide, python

pytestmark = pytest.mark.once

FORKS = """
import os, signal, sys
import heaptide

kept = []

def allocate():
    kept.append(bytearray(1024))

def job():
    import decimal, http.client, json
    for number in range(3000):
        kept.append(json.dumps({"a": [number] * 50}) * 10)

work, end, count = globals()[sys.argv[2]], sys.argv[3], int(sys.argv[4])
with heaptide.Tracker(sys.argv[1], follow_fork=True):
    for _ in range(count):
        child = os.fork()
        if child == 0:
            work()
            if end == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(0)
        os.waitpid(child, 0)
"""


def on_disk(path: Path) -> int:
    """Return the bytes that a file takes on disk."""
    return path.stat().st_blocks * 512


@pytest.mark.parametrize(("work", "limit"), [("allocate", 64 << 10), ("job", 160 << 10)])
@pytest.mark.parametrize("end", ["exit", "kill"])
def test_children_that_exit_without_cleanup_leave_small_readable_captures(
    tmp_path: Path, work: str, limit: int, end: str
) -> None:
    script = tmp_path / "forks.py"
    script.write_text(FORKS)
    python("-W", "ignore", script, tmp_path / "forks.tide", work, end, "5", cwd=tmp_path)
    children = sorted(tmp_path.glob("forks.tide.*"))
    assert len(children) == 5
    assert max(map(on_disk, children)) <= limit
    text = heaptide("summary", "--leaks", "--by", "location", *children).stdout
    assert f"{work} at" in text and "damaged" not in text


PARENT = """
import os, sys

for number in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        kept = bytearray(1000)
        os._exit(0)
    os.waitpid(child, 0)
"""


def record_forks(folder: Path, count: int, **settings: str) -> list[Path]:
    """Run a program that forks, with settings, and return the captures of its children."""
    script = folder / "dags.py"
    script.write_text(PARENT)
    env = {
        "HEAPTIDE": "run",
        "HEAPTIDE_QUIET": "yes",
        "HEAPTIDE_FOLLOW_FORK": "yes",
        "HEAPTIDE_OUT": "dag-processor_memory.bin",
        **{f"HEAPTIDE_{name.upper()}": value for name, value in settings.items()},
    }
    python("-W", "ignore", script, str(count), cwd=folder, **env)
    return sorted(folder.glob("dag-processor_memory.bin.*"))


def test_number_of_captures_of_children_is_bounded_while_the_parent_runs(tmp_path: Path) -> None:
    other = tmp_path / "worker_memory.bin.17"
    other.write_bytes(b"another component's")
    children = record_forks(tmp_path, 70, keep_children="10")
    # Checked after every 16 forks.
    assert 10 <= len(children) < 10 + 16
    assert other.exists()
    heaptide("stats", tmp_path / "dag-processor_memory.bin", *children)


def test_bytes_of_captures_of_children_are_bounded(tmp_path: Path) -> None:
    children = record_forks(tmp_path, 48, keep_total="400k")
    assert 2 <= len(children) <= 12
    assert sum(map(on_disk, children)) < 500_000


def test_old_captures_of_children_are_deleted(tmp_path: Path) -> None:
    children = record_forks(tmp_path, 3)
    assert len(children) == 3
    for path in tmp_path.glob("dag-processor_memory.bin*"):
        os.utime(path, (time.time() - 90_000,) * 2)
    again = record_forks(tmp_path, 2, keep_age="1d")
    assert len(again) == 2
    # The second recording renamed these captures of the first one; they are older than a day.
    assert [path for path in tmp_path.iterdir() if path.name.startswith("dag-processor_memory.2")] == []


def test_captures_of_running_children_are_kept(tmp_path: Path) -> None:
    script = tmp_path / "dags.py"
    script.write_text(
        "import os, signal\n"
        "running = os.fork()\n"
        "if running == 0:\n"
        "    signal.pause()\n"
        "for _ in range(32):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "print(running, sorted(os.listdir('.')))\n"
        "os.kill(running, signal.SIGKILL)\n"
        "os.waitpid(running, 0)\n"
    )
    env = {
        "HEAPTIDE": "run",
        "HEAPTIDE_FOLLOW_FORK": "yes",
        "HEAPTIDE_OUT": "x_memory.bin",
        "HEAPTIDE_KEEP_CHILDREN": "0",
    }
    done = python("-W", "ignore", script, cwd=tmp_path, **env)
    running, _, names = done.stdout.partition(" ")
    assert f"x_memory.bin.{running}" in names
    # The last child was running at the last check, or was forked after it.
    assert names.count("x_memory.bin.") <= 3


def test_heaptide_run_deletes_captures_of_children_only_beyond_a_limit_that_is_set(tmp_path: Path) -> None:
    script = tmp_path / "forks.py"
    script.write_text(
        "import os\n"
        "for _ in range(32):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
    )

    def n_captures(name: str, **env: str) -> int:
        command = ("-m", "heaptide", "run", "-q", "--follow-fork", "-o", f"{name}.tide", script)
        python(*command, cwd=tmp_path, **env)
        return len(list(tmp_path.glob(f"{name}.tide.*")))

    assert n_captures("all") == 32
    # The last check comes with the 32nd fork, whose child is still running then.
    assert n_captures("few", HEAPTIDE_KEEP_CHILDREN="2") <= 4
    assert n_captures("small", HEAPTIDE_KEEP_TOTAL="1k") <= 3
