"""Tests busy programs that mix all types of calls: their stacks equal the interpreter's, and they run normally."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.call_stacks import Recording
from support.commands import PROGRAMS, heaptide


@pytest.mark.parametrize("options", [[], ["--objects"]], ids=["exact", "objects"])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_stack_equals_the_interpreters_own(
    record: Callable[..., Recording], seed: int, options: list[str]
) -> None:
    with_greenlets = ["greenlet"] if importlib.util.find_spec("greenlet") else []
    count = 60 if options else 500
    recorded = record(PROGRAMS / "stacks/stack_witness.py", *options, args=[str(seed), str(count), *with_greenlets])
    truth = json.loads(recorded.stdout)
    assert len(truth) >= count
    wrong = {}
    for n, frames in truth.items():
        found = [[[call.name, call.file, call.line] for call in one.stack] for one in recorded.of(int(n))]
        if found != [frames]:
            wrong[n] = (frames, found)
    assert wrong == {}


def test_busy_program_has_the_same_result_and_an_undamaged_capture(
    heaptide_run: Callable[..., Any], stats: Callable[..., dict[str, Any]]
) -> None:
    program = PROGRAMS / "stacks/stack_stress.py"
    plain = subprocess.run([sys.executable, str(program), "200"], capture_output=True, text=True, check=True)
    done = heaptide_run(program, "--objects", args=["200"])
    assert (done.stdout, done.stderr) == (plain.stdout, plain.stderr)
    reading = heaptide("stats", "--json", done.capture)
    assert reading.stderr == ""
    statistics = json.loads(reading.stdout)
    assert statistics["total_num_allocations"] > 100_000
    assert "missing" not in heaptide("stats", done.capture).stdout


def test_short_threads_are_recorded_completely(
    record: Callable[..., Recording],
) -> None:
    recorded = record("""
        import threading

        def work(base):
            for n in range(base, base + 3):
                bytes(n)  # @work

        threads = [threading.Thread(target=work, args=(1_000_000 + 10 * i,)) for i in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    """)
    lost = [n for i in range(50) for n in range(1_000_000 + 10 * i, 1_000_003 + 10 * i) if len(recorded.of(n)) != 1]
    assert lost == []


def test_scan_for_new_libraries_does_not_disturb_loading(
    heaptide_run: Callable[..., Any], extension: Callable[..., Path]
) -> None:
    # The loader needs milliseconds to fill thousands of slots, again and again.
    library = extension("stacks/many_relocations", "-Wl,-z,relro,-z,now")
    done = heaptide_run(
        f"""
        import _ctypes

        for turn in range(200):
            handle = _ctypes.dlopen({str(library)!r}, 2)
            _ctypes.dlclose(handle)
        print("loaded")
        """,
        *("--interval", "1"),
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "loaded\n")
