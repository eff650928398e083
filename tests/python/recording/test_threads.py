"""Tests that events belong to their thread from its start to its end, in the right order between threads."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import PROGRAMS, Finished
from support.replay import replay

Run = Callable[..., Finished]
Parse = Callable[[Path], list[str]]


def test_allocations_of_a_hundred_named_threads_are_counted_exactly(
    extension: Callable[..., Path], heaptide_run: Run, parse: Parse
) -> None:
    done = heaptide_run(
        """
        import ctypes, json, sys, threading
        allocate = ctypes.CDLL(sys.argv[1]).allocate
        tids = {}
        def work(n):
            tids[n] = threading.get_native_id()
            for _ in range(100):
                allocate(50_000 + n, 1)
        threads = [threading.Thread(target=work, args=[n], name=f"worker number {n}") for n in range(100)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(json.dumps([tids[n] for n in range(100)]))
        """,
        args=[str(extension("recording/threads"))],
    )
    tids = json.loads(done.stdout)
    recorded = replay(parse(done.capture))
    found = Counter(
        (recorded.threads[each.thread], each.size) for each in recorded.allocations if 50_000 <= each.size < 50_100
    )
    assert found == {((tids[n], f"worker number {n}"), 50_000 + n): 100 for n in range(100)}


def test_allocations_of_a_python_thread_have_its_stack(
    extension: Callable[..., Path], heaptide_run: Run, parse: Parse
) -> None:
    done = heaptide_run(
        """
        import ctypes, sys, threading
        allocate = ctypes.CDLL(sys.argv[1]).allocate
        def inner(n): allocate(40_000 + n, 10)
        def work(n): inner(n)
        threads = [threading.Thread(target=work, args=[n]) for n in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        """,
        args=[str(extension("recording/threads"))],
    )
    allocations = [each for each in replay(parse(done.capture)).allocations if 40_000 <= each.size < 40_008]
    assert len(allocations) == 80
    for each in allocations:
        functions = [frame.split(":")[0] for frame in each.stack]
        assert functions == ["_bootstrap", "_bootstrap_inner", "run", "work", "inner"]


def test_thread_older_than_the_recording_is_recorded_with_stack_and_name(
    extension: Callable[..., Path], parse: Parse, tmp_path: Path
) -> None:
    program = """
import ctypes, sys, threading, heaptide
allocate = ctypes.CDLL(sys.argv[1]).allocate
ready, go = threading.Event(), threading.Event()
def wait():
    ready.set()
    go.wait()
    allocate(60_013, 7)
thread = threading.Thread(target=wait, name="older thread")
thread.start()
ready.wait()
with heaptide.Tracker(sys.argv[2]):
    go.set()
    thread.join()
print(thread.native_id)
"""
    capture = tmp_path / "capture.tide"
    command = [sys.executable, "-c", program, str(extension("recording/threads")), str(capture)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    recorded = replay(parse(capture))
    allocations = recorded.of_size(60_013)
    assert len(allocations) == 7
    assert {recorded.threads[each.thread] for each in allocations} == {(int(done.stdout), "older thread")}
    assert {each.stack[-1].split(":")[0] for each in allocations} == {"wait"}


def test_threads_without_python_frames_are_recorded_with_an_empty_stack(
    extension: Callable[..., Path], heaptide_run: Run, parse: Parse
) -> None:
    done = heaptide_run(
        """
        import ctypes, json, sys
        tids = (ctypes.c_int * 20)()
        ctypes.CDLL(sys.argv[1]).allocate_in_threads(20, 30_000, 50, tids)
        print(json.dumps(list(tids)))
        """,
        args=[str(extension("recording/threads"))],
    )
    tids = json.loads(done.stdout)
    recorded = replay(parse(done.capture))
    found = Counter(
        (recorded.threads[each.thread][0], each.size, each.stack)
        for each in recorded.allocations
        if 30_000 <= each.size < 30_020
    )
    assert found == {(tids[n], 30_000 + n, ()): 50 for n in range(20)}


def test_allocations_in_thread_destructors_are_recorded_and_freed(
    extension: Callable[..., Path], heaptide_run: Run, parse: Parse, stats: Callable[..., dict[str, Any]]
) -> None:
    # The C library runs destructors in up to four rounds.
    done = heaptide_run(
        """
        import ctypes, json, sys
        tids = (ctypes.c_int * 50)()
        ctypes.CDLL(sys.argv[1]).allocate_in_destructors(50, 35_001, 35_000, tids)
        print(json.dumps(list(tids)))
        """,
        args=[str(extension("recording/threads"))],
    )
    tids = json.loads(done.stdout)
    recorded = replay(parse(done.capture))
    for size in range(35_000, 35_005):
        assert len(recorded.of_size(size)) == 50, size
    assert recorded.of_size(35_005) == []
    for size in (35_000, 35_001, 35_002, 35_003):
        assert sorted(recorded.threads[each.thread][0] for each in recorded.of_size(size)) == sorted(tids), size
    assert not leaked(recorded, range(35_000, 35_005))
    found = stats(done.capture)["heaptide"]
    assert (found["lost"], found["allocations_over_live_blocks"]) == ([], 0)


def test_allocations_in_destructors_of_thread_local_objects_are_recorded_and_freed(
    heaptide_run: Run, parse: Parse, tmp_path: Path
) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler: install g++ to run this test")
    library = tmp_path / "thread_local.so"
    flags = ["-shared", "-fPIC", "-O1", "-fno-builtin", "-Wall", "-Werror", "-pthread"]
    subprocess.run([compiler, *flags, str(PROGRAMS / "recording/thread_local.cpp"), "-o", str(library)], check=True)
    done = heaptide_run(
        """
        import ctypes, sys
        ctypes.CDLL(sys.argv[1]).destroy_in_threads(30, ctypes.c_size_t(36_007))
        """,
        args=[str(library)],
    )
    recorded = replay(parse(done.capture))
    assert (len(recorded.of_size(36_007)), len(recorded.of_size(36_008))) == (30, 30)
    assert len({each.thread for each in recorded.of_size(36_007)}) == 30
    assert not leaked(recorded, (36_007, 36_008))


def test_threads_that_end_with_the_recording_lose_no_event(
    extension: Callable[..., Path], parse: Parse, tmp_path: Path
) -> None:
    program = """
import ctypes, sys, heaptide
allocate = ctypes.PyDLL(sys.argv[1]).allocate_in_ending_threads
for n in range(12):
    with heaptide.Tracker(f"{n}.tide"):
        allocate(100, 37_003, 5)
"""
    subprocess.run([sys.executable, "-c", program, str(extension("recording/threads"))], check=True, cwd=tmp_path)
    counts = [len(replay(parse(tmp_path / f"{n}.tide")).of_size(37_003)) for n in range(12)]
    assert counts == [100 * 5] * 12


def leaked(recorded: Any, sizes: Any) -> bool:
    """Return whether blocks of these sizes were freed less often than allocated, counted by address."""
    addresses = {each.address for each in recorded.allocations if each.size in sizes}
    n_allocated = Counter(each.address for each in recorded.allocations if each.address in addresses)
    n_released = Counter(address for address in recorded.released if address in addresses)
    return any(n_allocated[address] > n_released[address] for address in addresses)


@pytest.mark.parametrize(
    ("tunables", "n_rounds"), [("glibc.malloc.arena_max=1:glibc.malloc.tcache_count=0", 350_000), ("", 60_000)]
)
def test_frees_are_recorded_before_other_threads_reuse_the_block(
    extension: Callable[..., Path],
    stats: Callable[..., dict[str, Any]],
    tmp_path: Path,
    tunables: str,
    n_rounds: int,
) -> None:
    # Four threads share one heap. A free recorded after the reuse of its block would show as an allocation over a live
    # block, or as a second free.
    program = """
import ctypes, sys, heaptide
pass_blocks = ctypes.CDLL(sys.argv[1]).pass_blocks
with heaptide.Tracker("capture.tide"):
    pass_blocks(4, int(sys.argv[2]))
"""
    command = [sys.executable, "-c", program, str(extension("recording/threads")), str(n_rounds)]
    subprocess.run(command, check=True, cwd=tmp_path, env={**os.environ, "GLIBC_TUNABLES": tunables})
    capture = tmp_path / "capture.tide"
    command = [sys.executable, "-m", "heaptide", "parse", str(capture)]
    live: set[str] = set()
    past_addresses: set[str] = set()
    n_events = n_over_live = n_freed_twice = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("FREE "):
                address = line[line.rindex("=") + 1 : -1]
                n_events += 1
                if address in live:
                    live.remove(address)
                else:
                    # A block from before the recording is freed once without an allocation.
                    n_freed_twice += address in past_addresses
            elif line.startswith("ALLOCATION ") and line.endswith("alloc\n"):
                address = line.split(" ", 4)[3].removeprefix("address=")
                n_events += 1
                n_over_live += address in live
                live.add(address)
                past_addresses.add(address)
    assert process.returncode == 0
    assert n_events >= 3 * n_rounds
    assert (n_over_live, n_freed_twice) == (0, 0)
    found = stats(capture)["heaptide"]
    assert (found["allocations_over_live_blocks"], found["lost"], found["damage"]) == (0, [], [])


def test_no_profile_function_trace_function_or_monitoring_tool_is_installed(heaptide_run: Run) -> None:
    program = """
        import sys, threading
        print(sys.getprofile(), sys.gettrace(), threading._profile_hook, threading._trace_hook)
        if sys.version_info >= (3, 12):
            assert [sys.monitoring.get_tool(tool) for tool in range(6)] == [None] * 6
        threading.Thread(target=lambda: print(sys.getprofile(), sys.gettrace())).start()
        """
    for options in ([], ["--objects"], ["--sample"], ["--aggregate"]):
        assert heaptide_run(program, *options).stdout == "None None None None\nNone None\n"


def test_profile_and_trace_functions_of_the_program_stay_set(tmp_path: Path) -> None:
    program = """
import sys, heaptide
calls = []
def profile(frame, event, argument): calls.append((event, frame.f_code.co_name)) if event == "call" else None
def trace(frame, event, argument): return None
sys.setprofile(profile)
sys.settrace(trace)
with heaptide.Tracker(sys.argv[1]):
    assert (sys.getprofile(), sys.gettrace()) == (profile, trace)
    def seen(): pass
    seen()
assert (sys.getprofile(), sys.gettrace()) == (profile, trace)
assert ("call", "seen") in calls
"""
    capture = tmp_path / "capture.tide"
    done = subprocess.run([sys.executable, "-c", program, str(capture)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
