"""Tests a change of the mode while recording: sums of all modes agree with an exact recording of the same program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.commands import heaptide, python

# Each phase keeps blocks, makes temporary ones, and frees the blocks of an earlier phase, which may be of another mode.
# With one sample per byte, nearly every block is sampled, so sampled sums are nearly exact.
PROGRAM = """
import sys
import heaptide

path, aggregate, *plan = sys.argv[1:]
kept = []
set_mode = heaptide.set_mode  # imports its module before the recording

def fill(n, size):
    return [bytearray(size) for _ in range(n)]

def phase(number):
    kept.append(fill(100, 5000 + number))
    temporary = fill(200, 3000 + number)
    del temporary
    if number >= 2:
        kept[number - 2].clear()

changes = {
    "exact": lambda: set_mode("exact"),
    "objects": lambda: set_mode("objects"),
    "every-byte": lambda: set_mode("sampled", sample=1),
    "every-4k": lambda: set_mode("sampled", sample=4096),
    "native": lambda: set_mode(native=True),
    "python": lambda: set_mode(native=False),
}
options = {"exact": {}, "objects": {"objects": True}, "every-byte": {"sample": 1}, "every-4k": {"sample": 4096}}
with heaptide.Tracker(path, aggregate=aggregate == "yes", **options[plan[0]]):
    phase(0)
    for number, step in enumerate(plan[1:], 1):
        changes[step]()
        phase(number)
"""

# More than the bytes of all small objects: the bytearray objects without their data, lists and others. Only objects
# mode records them; in exact mode they are in pymalloc's arenas.
SMALL = 100_000


def record(folder: Path, *plan: str, aggregate: str = "no") -> dict[str, Any]:
    """Run the program with a plan of modes, and return its statistics."""
    script = folder / "program.py"
    script.write_text(PROGRAM)
    capture = folder / f"{'-'.join(plan)}-{aggregate}.tide"
    python(script, capture, aggregate, *plan, cwd=folder)
    result: dict[str, Any] = json.loads(heaptide("stats", "--json", capture).stdout)
    return result


def sums(stats: dict[str, Any]) -> tuple[int, int, int]:
    """Return total, peak and live bytes."""
    process = stats["heaptide"]["processes"][0]
    return stats["total_bytes_allocated"], process["peak_bytes"], process["live_bytes"]


@pytest.mark.parametrize("aggregate", ["no", "yes"])
@pytest.mark.parametrize(
    "plan",
    [
        ("exact", "every-byte", "exact", "every-byte"),
        ("every-byte", "exact", "every-byte", "exact"),
        ("exact", "native", "python", "every-byte"),
        ("exact", "objects", "exact", "every-byte"),
        ("objects", "exact", "objects", "every-byte"),
    ],
    ids="-".join,
)
def test_sums_of_mixed_modes_agree_with_an_exact_recording(
    tmp_path: Path, plan: tuple[str, ...], aggregate: str
) -> None:
    exact = sums(record(tmp_path, "exact", "exact", "exact", "exact"))
    stats = record(tmp_path, *plan, aggregate=aggregate)
    tolerance = SMALL + 50_000 if "objects" in plan else 200
    for mixed, expected in zip(sums(stats), exact, strict=True):
        assert abs(mixed - expected) <= tolerance, (sums(stats), exact)
    quality = stats["heaptide"]
    assert quality["frees_of_unknown_blocks"] == 0
    assert quality["allocations_over_live_blocks"] == 0
    assert len(quality["processes"][0]["modes"]) == len(plan)


@pytest.mark.once
def test_sampled_intervals_add_to_the_error_of_mixed_sums(tmp_path: Path) -> None:
    exact = sums(record(tmp_path, "exact", "exact", "exact", "exact"))
    misses = 0
    for number in range(12):
        folder = tmp_path / str(number)
        folder.mkdir()
        stats = record(folder, "exact", "every-4k", "exact", "every-4k")
        sampling = stats["heaptide"]["sampling"]
        assert 0 < sampling["total_error_bytes_95"] < exact[0] / 4
        misses += abs(sums(stats)[0] - exact[0]) > sampling["total_error_bytes_95"]
    # A sum is outside its error bar with a probability of 5%. More than four of twelve are outside in 1 of 5,000 runs.
    assert misses <= 4


@pytest.mark.once
def test_reports_state_the_mode_of_each_interval(tmp_path: Path) -> None:
    record(tmp_path, "exact", "every-4k", "objects")
    capture = tmp_path / "exact-every-4k-objects-no.tide"
    for report in ("summary", "tree", "stats"):
        text = heaptide(report, capture).stdout
        assert "was recorded exact; from 0." in text, report
        assert "s on sampled every 4 KiB; from 0." in text, report
        assert "s on exact, with Python objects" in text, report


THREADS = """
import queue, random, sys, threading, time
import heaptide

stop = threading.Event()
set_mode = heaptide.set_mode  # imports its module before the recording
queues = [queue.SimpleQueue() for _ in range(3)]

def drain(own):
    try:
        while True:
            own.get_nowait()
    except queue.Empty:
        pass

def work(number):
    chance = random.Random(number)
    kept = []
    while not stop.is_set():
        kept.append(bytearray(600 + chance.randrange(3000)))
        if len(kept) > 200:
            block = kept.pop(chance.randrange(len(kept)))
            if chance.random() < 0.3:
                queues[(number + 1) % 3].put(block)
            del block
        drain(queues[number])
    kept.clear()

sys.setswitchinterval(1e-4)
modes = [("exact", None), ("objects", None), ("sampled", 1), ("sampled", 300), ("sampled", 1 << 19)]
with heaptide.Tracker(sys.argv[1], aggregate=sys.argv[2] == "yes"):
    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    chance = random.Random(7)
    for _ in range(40):
        mode, sample = chance.choice(modes)
        set_mode(mode, sample=sample, native=chance.random() < 0.2)
        time.sleep(0.005)
    stop.set()
    for thread in threads:
        thread.join()
    for own in queues:
        drain(own)
"""


@pytest.mark.parametrize("aggregate", ["no", "yes"])
def test_blocks_freed_by_other_threads_in_other_modes_do_not_leak(tmp_path: Path, aggregate: str) -> None:
    script = tmp_path / "threads.py"
    script.write_text(THREADS)
    capture = tmp_path / "threads.tide"
    python(script, capture, aggregate, cwd=tmp_path)
    stats = json.loads(heaptide("stats", "--json", capture).stdout)
    # Still live are modules that were imported meanwhile, and one block of `threading`. A lost free of a sample would
    # add 512 KiB. Arenas that Python mapped do not count.
    live = stats["heaptide"]["processes"][0]["live_bytes"] - stats["heaptide"]["python_arenas"]["live_bytes"]
    assert live < SMALL
    assert stats["heaptide"]["allocations_over_live_blocks"] == 0


def test_forked_children_inherit_the_current_mode(tmp_path: Path) -> None:
    script = tmp_path / "fork.py"
    script.write_text(
        "import os, sys, heaptide\n"
        "with heaptide.Tracker(sys.argv[1], follow_fork=True):\n"
        "    heaptide.set_mode('sampled', sample=4096)\n"
        "    if (child := os.fork()) == 0:\n"
        "        kept = bytearray(1_000_000)\n"
        "        heaptide.set_mode('exact')\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
    )
    python("-W", "ignore", script, tmp_path / "fork.tide", cwd=tmp_path)
    [child] = [path for path in tmp_path.iterdir() if path.name.startswith("fork.tide.")]
    stats = json.loads(heaptide("stats", "--json", child).stdout)
    modes = [interval["mode"] for interval in stats["heaptide"]["processes"][0]["modes"]]
    assert modes == ["sampled every 4 KiB", "exact"]


@pytest.mark.once
def test_mode_cannot_change_without_a_recording_or_to_an_unknown_mode(tmp_path: Path) -> None:
    script = tmp_path / "wrong.py"
    script.write_text(
        "import sys, heaptide\n"
        "def refused(error, *args, **kwargs):\n"
        "    try:\n"
        "        heaptide.set_mode(*args, **kwargs)\n"
        "    except error:\n"
        "        return\n"
        "    raise SystemExit(f'{args} {kwargs} was accepted')\n"
        "refused(heaptide.RecordingError, 'exact')\n"
        "tracker = heaptide.Tracker(sys.argv[1])\n"
        "with tracker:\n"
        "    refused(ValueError, 'fast')\n"
        "    refused(ValueError, 'objects', sample=5)\n"
        "    refused(ValueError, sample=-1)\n"
        "    assert not tracker.set_mode('exact')\n"
        "    assert tracker.set_mode('sampled')\n"
        "try:\n"
        "    tracker.set_mode('exact')\n"
        "except heaptide.RecordingError:\n"
        "    print('refused')\n"
    )
    assert python(script, tmp_path / "wrong.tide", cwd=tmp_path).stdout == "refused\n"


@pytest.mark.once
def test_next_recording_of_the_process_has_only_its_own_mode(tmp_path: Path) -> None:
    script = tmp_path / "twice.py"
    script.write_text(
        "import sys, heaptide\n"
        "with heaptide.Tracker(sys.argv[1]):\n"
        "    heaptide.set_mode('objects')\n"
        "    heaptide.set_mode('sampled', sample=1)\n"
        "with heaptide.Tracker(sys.argv[2], sample=1 << 30):\n"
        "    for _ in range(10_000):\n"
        "        bytearray(2000)\n"
    )
    python(script, tmp_path / "one.tide", tmp_path / "two.tide", cwd=tmp_path)
    stats = json.loads(heaptide("stats", "--json", tmp_path / "two.tide").stdout)
    [process] = stats["heaptide"]["processes"]
    assert [interval["mode"] for interval in process["modes"]] == ["sampled every 1 GiB"]
    # Frees of blocks that were not sampled are not in this capture.
    assert process["num_events"] < 100
