"""Tests Heaptide's Python code in a recorded process: captures omit its allocations and keep the program's frees.

A garbage collection or a cache of the interpreter may free objects of the program at any allocation, also at one of
Heaptide's. The programs here provoke this: while Heaptide's code runs, they collect a cycle that refers to a block.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import Finished, heaptide, python

Run = Callable[..., Finished]
Stats = Callable[..., dict[str, Any]]

HEAD = """
import gc, threading
gc.disable()

class Node: pass

def make_garbage():
    node = Node()
    node.itself, node.block = node, bytearray(3_000_000)

calls = []
def collect(*_):
    if not calls:
        calls.append(gc.collect())
"""

# Code of the program after HEAD. Each calls `collect` exactly while Python code of Heaptide runs.
CASES = {
    "job record": """
        from heaptide.jobs import records
        original = records.begin
        records.begin = lambda job: (collect(), original(job))
        make_garbage()
        with heaptide.job("import"): pass
    """,
    "preparation of jobs": """
        from heaptide.jobs import marks
        original = marks.prepare
        marks.prepare = lambda *options: (collect(), original(*options))
        make_garbage()
        with heaptide.job("import"): pass
    """,
    "redaction of the labels of a job": """
        from heaptide.jobs import marks
        original = marks.redacted
        marks.redacted = lambda *words: (collect(), original(*words))[1]
        make_garbage()
        with heaptide.job("import", key="1"): pass
    """,
    "job that begins in another thread": """
        heaptide.job._native_id = staticmethod(lambda thread: (collect(), 0)[1])
        thread = threading.Thread(target=threading.Event().wait, daemon=True)
        thread.start()
        make_garbage()
        heaptide.job("import").begin(thread.ident).end()
    """,
    "import of a module of Heaptide": """
        import sys
        class Finder:
            find_spec = collect
        sys.meta_path.insert(0, Finder)
        make_garbage()
        heaptide.wsgi
    """,
    "request to the mounted control API": """
        from heaptide import control
        from heaptide.inspection import snapshots
        snapshots.heap_snapshot = lambda *_, **options: collect()
        mounted = control.start(directory="sessions")
        make_garbage()
        mounted.handle("POST", "/api/v1/profiler/heap", trusted=True)
    """,
    "request to the control API's own server": """
        import http.client, socket
        from heaptide import control
        from heaptide.inspection import snapshots
        snapshots.heap_snapshot = lambda *_, **options: collect()
        server = control.start(directory="sessions")
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(server.socket.removeprefix("unix:"))
        make_garbage()
        connection.request("POST", "/api/v1/profiler/heap")
        connection.getresponse().read()
    """,
    "check of the watching thread": """
        from heaptide.activation import triggers
        checked = threading.Event()
        make_garbage()
        triggers.add_check(lambda: (collect(), checked.set()))
        checked.wait()
    """,
    "thread of an attached process": """
        from heaptide import _native
        def work():
            _native.leave_out_thread()
            collect()
        thread = threading.Thread(target=work)
        make_garbage()
        thread.start()
        thread.join()
    """,
    "end of the recording": """
        class Named(threading.Thread):
            name = property(collect)
        named = Named(target=threading.Event().wait, daemon=True)
        named.start()
        calls.clear()
        make_garbage()
    """,
}


def leaked(capture: Path) -> list[int]:
    """Return the sizes of the blocks that are alive at the end of a capture."""
    rows = csv.DictReader(heaptide("transform", "csv", "--leaks", "-o", "-", capture).stdout.splitlines())
    return [int(row["size"]) for row in rows]


def program(case: str) -> str:
    """Return a program that is recorded from its start, as text."""
    lines = [line.removeprefix("        ") for line in CASES[case].splitlines()]
    return f"{HEAD}\nimport heaptide, heaptide.jobs\n" + "\n".join(lines) + "\nprint(calls[:1])\n"


@pytest.mark.parametrize("case", CASES)
def test_block_that_is_freed_while_python_code_of_heaptide_runs_is_no_leak(
    heaptide_run: Run, tmp_path: Path, case: str
) -> None:
    env = {"HEAPTIDE_JOBS": str(tmp_path / "jobs"), "HEAPTIDE_REDACT": "password"}
    done = heaptide_run(program(case), env=env)
    assert done.stderr == ""
    if case != "end of the recording":
        assert done.stdout != "[]\n", "the program did not collect"
    assert not [size for size in leaked(done.capture) if 3_000_000 <= size < 3_100_000]


MODES = [(), ("--objects",), ("--sample=4k"), ("--objects", "--sample=4k"), ("--aggregate",), ("--native",)]


@pytest.mark.parametrize("options", MODES, ids=lambda options: " ".join(options) or "exact")
def test_block_that_is_freed_while_a_job_record_is_written_is_no_leak_in_any_mode(
    heaptide_run: Run, tmp_path: Path, options: tuple[str, ...]
) -> None:
    done = heaptide_run(program("job record"), *options, env={"HEAPTIDE_JOBS": str(tmp_path / "jobs")})
    assert done.stdout != "[]\n"
    assert not [size for size in leaked(done.capture) if 3_000_000 <= size < 3_100_000]


@pytest.mark.parametrize("options", [(), ("--objects",)], ids=["exact", "objects"])
def test_list_of_the_program_that_grows_while_python_code_of_heaptide_runs_stays_in_the_capture(
    heaptide_run: Run, options: tuple[str, ...]
) -> None:
    done = heaptide_run(
        """
        from heaptide import _native
        def grow():
            for _ in range(1_000_000):
                numbers.append(None)
        numbers = [None] * 100_000
        _native.unrecorded(grow)
        print(numbers.__sizeof__())
        """,
        *options,
    )
    # The size of the list itself, without its items, is 40 bytes or 56 with the collector's header.
    assert any(int(done.stdout) - 100 < size <= int(done.stdout) for size in leaked(done.capture))


def recorded_jobs(heaptide_run: Run, tmp_path: Path, n_jobs: int) -> Path:
    text = f"""
        import heaptide
        for number in range({n_jobs}):
            with heaptide.job("import"): pass
    """
    return heaptide_run(text, "--objects", env={"HEAPTIDE_JOBS": str(tmp_path / "jobs")}).capture


def test_job_records_add_fewer_than_four_frees_of_unknown_blocks_per_job(
    heaptide_run: Run, stats: Stats, tmp_path: Path
) -> None:
    few, many = (stats(recorded_jobs(heaptide_run, tmp_path, n_jobs))["heaptide"] for n_jobs in (50, 250))
    # Not zero: the interpreter's caches keep a few blocks of one record and drop them while another one is written.
    assert many["frees_of_unknown_blocks"] - few["frees_of_unknown_blocks"] < 4 * 200
    assert many["allocations_over_live_blocks"] == 0


@pytest.mark.parametrize(
    "tracker",
    ["heaptide.Tracker(name, objects=True)", "memray.Tracker(name, trace_python_allocators=True)"],
    ids=["heaptide", "memray"],
)
def test_recording_of_nothing_has_at_most_three_allocations_and_nine_frees(tmp_path: Path, tracker: str) -> None:
    text = f"""
import heaptide
from heaptide.compat import memray
def record(name):
    with {tracker}:
        pass
record("first.tide")
record("second.tide")
"""
    (tmp_path / "job.py").write_text(text)
    python("job.py", cwd=tmp_path)
    for name in ("first.tide", "second.tide"):
        lines = heaptide("parse", tmp_path / name).stdout.splitlines()
        allocations = [line for line in lines if line.startswith("ALLOCATION")]
        # Before Python 3.11 frames are objects: here those of the calls that stop the recording.
        assert len(allocations) <= (3 if sys.version_info < (3, 11) else 0)
        # Frees of the methods of the `with` statement, and of entries that the interpreter's attribute cache drops. The
        # contents of the cache depend on addresses, so the number varies from 2 to 5.
        assert sum(line.startswith("FREE") for line in lines) < 10


def test_download_from_the_mounted_control_api_is_not_memory_of_the_program(heaptide_run: Run, stats: Stats) -> None:
    text = """
from heaptide import control
mounted = control.start(directory="sessions")
for _ in range(1000):
    answer = mounted.handle("GET", "/api/v1/profiler/status", trusted=True)
    while answer.read():
        pass
"""
    # Each of the 2,000 calls of `read` has a buffer of 64 KiB.
    assert stats(heaptide_run(text).capture)["total_bytes_allocated"] < 32_000_000
