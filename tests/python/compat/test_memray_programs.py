"""Tests that programs written for memray print the same with memray and with Heaptide under memray's name.

The output of every program is independent of addresses, times and process IDs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.memray_comparison import memray  # skips where memray has no wheel

pytestmark = pytest.mark.once
assert memray

RECORD = """
import memray, os, sys, threading
def leaf(size):
    return bytearray(size)
def work():
    global kept
    kept = [leaf(1_000_000) for _ in range(3)]
    leaf(2_000_000)
def record(path="out.bin", **options):
    with memray.Tracker(path, **options):
        work()
    return memray.FileReader(path)
FREES = (memray.AllocatorType.FREE, memray.AllocatorType.MUNMAP, memray.AllocatorType.PYMALLOC_FREE)
def names(record):
    return [(function, os.path.basename(file), line) for function, file, line in record.stack_trace()]
"""

PROGRAMS = {
    "every allocation and free": """
        live = {}
        for record in recording.get_allocation_records():
            if record.allocator in FREES:
                live.pop(record.address, None)
                try:
                    record.stack_trace()
                except NotImplementedError as error:
                    reason = str(error)
            elif record.size >= 1_000_000:
                live[record.address] = record
                print(names(record), record.size, record.n_allocations, memray.AllocatorType(record.allocator).name)
        print(reason, sorted(record.size for record in live.values()))
    """,
    "stacks of frees of Python's blocks": """
        with memray.Tracker("python.bin", trace_python_allocators=True):
            freed = [object() for _ in range(50)]
            del freed
        frees = {
            str(record.stack_trace() + record.hybrid_stack_trace())
            for record in memray.FileReader("python.bin").get_allocation_records()
            if record.allocator == memray.AllocatorType.PYMALLOC_FREE
        }
        print(frees)
    """,
    "modules of the package": """
        print(memray._memray.size_fmt(1_500), memray._version.__version__, memray._metadata.Metadata is memray.Metadata)
        print(memray._memray.compute_statistics("out.bin").total_memory_allocated >= 5_000_000)
        print(hasattr(memray, "no_such_name"), memray._destination.FileDestination is memray.FileDestination)
    """,
    "functions that an aggregated capture refuses": """
        reader = record("aggregated.bin", file_format=memray.FileFormat.AGGREGATED_ALLOCATIONS)
        for name in ("get_allocation_records", "get_temporary_allocation_records", "get_temporal_allocation_records",
                     "get_temporal_high_water_mark_allocation_records"):
            try:
                list(getattr(reader, name)())
            except NotImplementedError as error:
                print(name, error)
    """,
    "records compare and hash": """
        first = list(recording.get_allocation_records())
        second = list(recording.get_allocation_records())
        print(first == second, len(set(first + second)) == len(set(first)), first[0] == 1)
        large = [record for record in first if record.size == 1_000_001]
        print(len({record.stack_id for record in large}), large[0].native_stack_id, large[0].native_segment_generation)
        print(memray.FileDestination("a") == memray.FileDestination("a"), memray.FileDestination("a").overwrite)
        print(memray.FileDestination("a", True) == memray.FileDestination("a"), hash(memray.SocketDestination(5)) != 0)
        print(memray.FileDestination("a"), memray.SocketDestination(5))
    """,
    "peak, leaks and temporary allocations": """
        for get in ("get_high_watermark_allocation_records", "get_leaked_allocation_records",
                    "get_temporary_allocation_records"):
            records = [record for record in getattr(recording, get)() if record.size >= 1_000_000]
            print(get, sorted((record.size, record.n_allocations, names(record)) for record in records))
            print(all(record.tid == recording.metadata.main_thread_id for record in records))
    """,
    "metadata": """
        metadata = recording.metadata
        print(metadata.peak_memory >= 5_000_000, metadata.pid == os.getpid(), metadata.command_line)
        print(type(metadata.start_time).__name__, metadata.start_time <= metadata.end_time, metadata.file_format)
        print(metadata.has_native_traces, metadata.trace_python_allocators, metadata.python_allocator)
        import dataclasses
        print([field.name for field in dataclasses.fields(metadata)], memray.__version__)
    """,
    "memory over time": """
        import time
        with memray.Tracker("slow.bin", memory_interval_ms=5):
            held = leaf(20_000_000)
            time.sleep(1)
        snapshots = list(memray.FileReader("slow.bin").get_memory_snapshots())
        print(memray.MemorySnapshot._fields, all(type(value) is int for value in snapshots[0]))
        print(len(snapshots) > 3, max(snapshot.heap for snapshot in snapshots) >= 20_000_000)
        print([snapshot.time for snapshot in snapshots] == sorted(snapshot.time for snapshot in snapshots))
        print(abs(snapshots[0].time / 1000 - time.time()) < 100, snapshots[-1].rss > 20_000_000)
        few = list(memray.FileReader("slow.bin", max_memory_records=3).get_memory_snapshots())
        print(0 < len(few) <= 3)
    """,
    "lifetimes": """
        import time
        with memray.Tracker("slow.bin", memory_interval_ms=5):
            time.sleep(0.05)
            held = leaf(20_000_000)
            time.sleep(0.1)
            del held
            time.sleep(0.05)
            kept = leaf(3_000_000)
            time.sleep(0.05)
        reader = memray.FileReader("slow.bin")
        for merge in (True, False):
            for record in reader.get_temporal_allocation_records(merge_threads=merge):
                for interval in record.intervals:
                    if interval.n_bytes > 1_000_000:
                        end = interval.deallocated_before_snapshot
                        print(names(record)[0][0], interval.n_bytes, interval.n_allocations,
                              end is None or end > interval.allocated_before_snapshot > 0)
        records, peaks = reader.get_temporal_high_water_mark_allocation_records(merge_threads=True)
        print(max(peaks) // 1_000_000, peaks[0] < 1_000_000)
        sizes = sorted(interval.n_bytes for record in records for interval in record.intervals)
        print(sizes[-2:])
    """,
    "statistics and private modules": """
        from memray._memray import compute_statistics, size_fmt, SymbolicSupport, TemporalAllocationRecord
        from memray._errors import MemrayError, MemrayCommandError
        from memray._metadata import Metadata
        from memray._version import __version__
        from memray._stats import Stats
        from memray._destination import FileDestination
        from memray.commands import main
        print([size_fmt(size) for size in (0, 1, 999, 1000, 1536, 10**6, 123456789, 10**13)], __version__)
        stats = compute_statistics("out.bin", num_largest=2)
        (function, file, line), size = stats.top_locations_by_size[0]
        print(type(stats).__name__, function, os.path.basename(file), line, size)
        print(stats.top_locations_by_count[0][1] > 0, stats.allocation_count_by_size[1_000_001])
        print(stats.allocation_count_by_allocator["MALLOC"] >= 4, stats.peak_memory_allocated >= 5_000_000)
        print(MemrayCommandError("x", exit_code=3).exit_code, issubclass(MemrayCommandError, MemrayError))
        print(FileDestination is memray.FileDestination, Metadata is memray.Metadata)
        print(main(["table", "missing.bin"]))
    """,
    "a thread that changes its name": """
        def named():
            threading.current_thread().name = "renamed"
            global held
            held = leaf(5_000_000)
        with memray.Tracker("threads.bin"):
            thread = threading.Thread(target=named, name="first")
            thread.start()
            thread.join()
        reader = memray.FileReader("threads.bin")
        for record in reader.get_high_watermark_allocation_records(merge_threads=False):
            if record.size > 4_000_000:
                print(record.thread_name, record.tid != reader.metadata.main_thread_id)
    """,
    "stacks begin where the Tracker was entered": """
        def outer():
            return middle()
        def middle():
            with memray.Tracker("root.bin"):
                return leaf(3_000_000)
        held = outer()
        for record in memray.FileReader("root.bin").get_high_watermark_allocation_records():
            if record.size > 1_000_000:
                print([name for name, _, _ in names(record)], names(record)[-1][0])
    """,
    "deep recursion": """
        sys.setrecursionlimit(5000)
        def deep(n):
            return deep(n - 1) if n else leaf(3_000_000)
        with memray.Tracker("deep.bin"):
            held = deep(2000)
        for record in memray.FileReader("deep.bin").get_high_watermark_allocation_records():
            if record.size > 1_000_000:
                print(len(record.stack_trace()), len(record.stack_trace(5)), names(record)[1])
    """,
    "Python's allocators": """
        with memray.Tracker("objects.bin", trace_python_allocators=True):
            pass
        records = list(memray.FileReader("objects.bin").get_allocation_records())
        allocations = [record for record in records if record.allocator not in FREES]
        # memray itself adds some allocations.
        print(len(allocations) <= 3, sum(record.size for record in allocations) <= 172)
    """,
    "aggregated captures": """
        reader = record("sums.bin", file_format=memray.FileFormat.AGGREGATED_ALLOCATIONS)
        print(reader.metadata.file_format, max(record.size for record in reader.get_leaked_allocation_records()))
        for get in ("get_allocation_records", "get_temporary_allocation_records", "get_temporal_allocation_records"):
            try:
                list(getattr(reader, get)(**{"merge_threads": True} if "temp" in get else {}))
            except NotImplementedError as error:
                print(get, "raises", type(error).__name__)
    """,
    "files that are no captures": """
        open("junk.bin", "w").write("junk" * 100)
        open("empty.bin", "w").close()
        for name in ("junk.bin", "empty.bin", os.devnull, ".", "missing.bin"):
            try:
                memray.FileReader(name)
            except OSError as error:
                print(name, str(error).partition(".:")[0])
    """,
    "output of main in a stream": """
        import contextlib, io
        from memray.commands import main
        for words in (["stats", "out.bin"], ["summary", "out.bin"], ["transform", "csv", "out.bin"]):
            stream = io.StringIO()
            with contextlib.redirect_stdout(stream):
                code = main(words)
            print(code, len(stream.getvalue()) > 10, "leaf" in stream.getvalue())
    """,
    "problems": """
        def attempt(action):
            try:
                action()
            except Exception as error:
                print(type(error).__name__, str(error).split(":")[0][:30])
        attempt(lambda: memray.FileReader("missing.bin"))
        open("junk.bin", "w").write("junk" * 100)
        print([issubclass(kind, OSError) for kind in (type(_error(lambda: memray.FileReader("junk.bin"))),)])
        attempt(lambda: memray.Tracker())
        attempt(lambda: memray.Tracker("a", destination=memray.FileDestination("b")))
        attempt(lambda: memray.Tracker(destination=5))
        attempt(lambda: memray.Tracker(destination=memray.SocketDestination(5), follow_fork=True))
        tracker = memray.Tracker("once.bin")
        with tracker:
            pass
        reader = memray.FileReader("once.bin")
        reader.close()
        print(reader.closed)
        attempt(lambda: list(reader.get_leaked_allocation_records()))
        attempt(memray.Tracker("never.bin").get_surviving_objects)
        print(memray.start_thread_trace.__name__, memray.set_log_level(30), memray.AllocatorType(14).name)
    """,
}

ERROR = """
def _error(action):
    try:
        action()
    except Exception as error:
        return error
"""


def printed(folder: Path, program: str, **environment: str) -> str:
    """Run a program in a new folder and return its output."""
    folder.mkdir()
    (folder / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env={**os.environ, "HEAPTIDE_CONFIG": "off", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_prints_the_same_with_memray_and_with_heaptide(tmp_path: Path, name: str) -> None:
    import textwrap

    body = textwrap.dedent(PROGRAMS[name])
    program = RECORD + ERROR + "recording = record()\n" + body
    expected = printed(tmp_path / "memray", program)
    assert printed(tmp_path / "heaptide", program, HEAPTIDE_COMPAT="memray") == expected
    assert expected.strip()
