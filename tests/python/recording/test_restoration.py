"""Tests that a process is unchanged after a recording, however often it was recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import PROGRAMS


def run(program: str | Path, *arguments: object, folder: Path) -> Any:
    """Run a program that records itself, and return the JSON it prints."""
    program_words = ["-c", program] if isinstance(program, str) else [str(program)]
    command = [sys.executable, *program_words, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


MODES = {
    "exact": "",
    "objects": "objects=True",
    "sampled": "sample=4096",
    "objects, sampled": "objects=True, sample=4096",
    "aggregate": "aggregate=True",
}


@pytest.mark.parametrize("mode", MODES)
def test_no_import_slot_points_to_heaptide_after_a_recording(
    extension: Callable[..., Path], tmp_path: Path, mode: str
) -> None:
    printed = run(
        f"""
import ctypes, json, os, sys, heaptide, heaptide._native
library = ctypes.PyDLL(sys.argv[1])
library.slots_into.restype, library.slots_into.argtypes = ctypes.c_size_t, [ctypes.c_size_t]
path = os.path.realpath(heaptide._native.__file__)
heaptide_address = next(int(line.split("-")[0], 16) for line in open("/proc/self/maps") if line.rstrip().endswith(path))
printed = [library.slots_into(0), library.slots_into(heaptide_address)]
with heaptide.Tracker("capture.tide", {MODES[mode]}):
    import decimal  # a library loaded during the recording
    printed.append(library.slots_into(heaptide_address))
printed.append(library.slots_into(heaptide_address))
print(json.dumps(printed + [heaptide.active()]))
""",
        extension("hooks/import_slots"),
        folder=tmp_path,
    )
    n_slots, before, during, after, active = printed
    assert n_slots > 1000, "the test does not find the slots"
    assert (before, after, active) == (0, 0, False)
    assert during > 20


def test_no_import_slot_points_to_heaptide_while_another_thread_loads_libraries(
    extension: Callable[..., Path], tmp_path: Path
) -> None:
    library = extension("hooks/import_slots")
    other = tmp_path / "another.so"
    other.write_bytes(library.read_bytes())
    found, n_loads = run(
        """
import ctypes, json, os, sys, heaptide, heaptide._native
library = ctypes.CDLL(sys.argv[1])
library.slots_into.restype, library.slots_into.argtypes = ctypes.c_size_t, [ctypes.c_size_t]
path = os.path.realpath(heaptide._native.__file__)
heaptide_address = next(int(line.split("-")[0], 16) for line in open("/proc/self/maps") if line.rstrip().endswith(path))
name = sys.argv[2].encode()
assert library.start_loading(name) == 0
found = []
for _ in range(60):
    with heaptide.Tracker("capture.tide", overwrite=True):
        pass
    found.append(library.slots_into(heaptide_address))
print(json.dumps([found, library.stop_loading()]))
""",
        library,
        other,
        folder=tmp_path,
    )
    assert n_loads > 0
    assert found == [0] * 60


def test_allocations_after_a_recording_are_not_recorded(
    extension: Callable[..., Path], parse: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    printed = run(
        """
import ctypes, json, sys, heaptide
library = ctypes.PyDLL(sys.argv[1])
library.allocate(70_001)
with heaptide.Tracker("capture.tide"):
    library.allocate(70_003)
    active = heaptide.active()
library.allocate(70_009)
print(json.dumps([active, heaptide.active()]))
""",
        extension("hooks/import_slots"),
        folder=tmp_path,
    )
    assert printed == [True, False]
    lines = parse(tmp_path / "capture.tide")
    assert [size for size in (70_001, 70_003, 70_009) if any(f" size={size} " in line for line in lines)] == [70_003]


def test_function_pointer_kept_from_a_recording_works_after_it(
    extension: Callable[..., Path], parse: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    printed = run(
        """
import ctypes, json, sys, heaptide
library = ctypes.PyDLL(sys.argv[1])
with heaptide.Tracker("first.tide"):
    library.keep_pointers()
printed = [library.use_kept_pointers(70_019)]
with heaptide.Tracker("second.tide"):
    printed.append(library.use_kept_pointers(70_027))
printed.append(library.use_kept_pointers(70_033))
print(json.dumps(printed))
""",
        extension("hooks/import_slots"),
        folder=tmp_path,
    )
    assert printed == [1, 1, 1]
    lines = parse(tmp_path / "second.tide")
    assert [size for size in (70_019, 70_027, 70_033) if any(f" size={size} " in line for line in lines)] == [70_027]


@pytest.mark.parametrize("mode", MODES)
def test_interpreters_allocators_and_code_deallocation_are_restored(
    extension: Callable[..., Path], tmp_path: Path, mode: str
) -> None:
    printed = run(
        f"""
import json, sys, heaptide
sys.path.insert(0, sys.argv[1])
import interpreter_hooks
def state():
    return interpreter_hooks.allocators(), interpreter_hooks.code_dealloc()
states = [state()]
for _ in range(3):
    with heaptide.Tracker("capture.tide", overwrite=True, {MODES[mode]}):
        states.append(state())
    states.append(state())
print(json.dumps(states))
""",
        extension("recording/interpreter_hooks").parent,
        folder=tmp_path,
    )
    before, during = printed[0], printed[1]
    assert all(after == before for after in printed[2::2])
    # The recording did change these values, so that their restoration is tested.
    changed = [old != now for old, now in zip(before[0], during[0], strict=True)]
    assert changed == [("objects" in mode)] * 3


def test_two_thousand_recordings_leak_no_files_threads_or_memory(tmp_path: Path) -> None:
    first, last = run(PROGRAMS / "recording/restart_many_times.py", 2000, folder=tmp_path)
    assert last["files"] == first["files"]
    assert last["threads"] == first["threads"]
    assert last["maps"] <= first["maps"] + 4
    assert last["resident_kb"] <= first["resident_kb"] + 2048


def test_recordings_around_tracemalloc_neither_crash_nor_record_twice(
    tmp_path: Path, parse: Callable[[Path], list[str]]
) -> None:
    # tracemalloc starts in the first recording, so it calls Heaptide's hooks of Python's allocators as long as it runs.
    printed = run(
        """
import json, tracemalloc, heaptide
kept = []
def work():
    kept.extend((number + 0.5,) for number in range(5_000))
with heaptide.Tracker("first.tide", objects=True):
    tracemalloc.start()
    work()
with heaptide.Tracker("second.tide", objects=True):
    work()
with heaptide.Tracker("plain.tide"):
    work()
with heaptide.Tracker("sampled.tide", objects=True, sample=4096):
    work()
traced = tracemalloc.get_traced_memory()[0]
tracemalloc.stop()
with heaptide.Tracker("last.tide", objects=True):
    work()
print(json.dumps([len(kept), traced]))
""",
        folder=tmp_path,
    )
    n_kept, traced = printed
    assert n_kept == 25_000
    assert traced > 4 * 5_000 * 72, "tracemalloc did not see all allocations"

    def n_objects(name: str) -> int:
        lines = parse(tmp_path / f"{name}.tide")
        return sum(line.startswith("ALLOCATION") and "allocator=pymalloc" in line for line in lines)

    # tracemalloc calls Heaptide's hooks in the first recording, which therefore also contains tracemalloc's own memory.
    # Each item is a number, a float and a tuple; the interpreter keeps some of them for reuse.
    assert n_objects("first") > 10_000
    for name in ("second", "last"):
        assert 10_000 < n_objects(name) < 16_000, name
    assert n_objects("plain") == 0
    assert 0 < n_objects("sampled") < 2_000
