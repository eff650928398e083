"""Tests that code written for memray runs on Heaptide unchanged, and that unsupported features are refused."""

from __future__ import annotations

import csv
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from heaptide.compat import memray
from support.commands import heaptide, python

pytestmark = pytest.mark.once

SIZE = 3_000_000 + sys.getsizeof(b"")

PROGRAM = """
import pathlib, subprocess, sys
import memray

def work():
    global held
    held = bytes(3_000_000)

with memray.Tracker(pathlib.Path("out.bin"), native_traces=False, trace_python_allocators=True, follow_fork=True):
    work()
tracker = memray.Tracker(destination=memray.FileDestination("other.bin", overwrite=True), memory_interval_ms=5,
                         file_format=memray.FileFormat.AGGREGATED_ALLOCATIONS)
tracker.__enter__()
work()
tracker.__exit__(None, None, None)
for words in (["flamegraph", "--leaks", "-o", "page.html", "out.bin"], ["stats", "out.bin"]):
    subprocess.run([sys.executable, "-m", "memray", *words], check=True)
"""


def test_program_written_for_memray_runs_unchanged(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(PROGRAM)
    for n_captures in (1, 2):
        (tmp_path / "page.html").unlink(missing_ok=True)
        done = python("job.py", cwd=tmp_path, HEAPTIDE_COMPAT="memray", HEAPTIDE_CONFIG="off")
        assert "Total allocations" in done.stdout and done.stderr == ""
        # An earlier file of the same name is kept, and a second start does not fail.
        assert len(list(tmp_path.glob("out*.bin"))) == n_captures
    assert (tmp_path / "page.html").read_text().startswith("<!")
    head = heaptide("parse", tmp_path / "out.bin").stdout.splitlines()[0]
    assert " objects=true " in head and " follow_fork=true " in head
    assert " aggregate=true " in heaptide("parse", tmp_path / "other.bin").stdout.splitlines()[0]


def test_reader_returns_the_records_of_a_capture(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("def work(): return bytes(3_000_000)\nheld = work()\nwork()\n")
    heaptide("run", "-q", "-o", tmp_path / "job.bin", tmp_path / "job.py")
    with memray.FileReader(tmp_path / "job.bin") as reader:
        assert reader.metadata.peak_memory > 6_000_000 and reader.metadata.command_line.endswith("job.py")
        assert reader.metadata.end_time > reader.metadata.start_time
        for records, n_allocations in (
            (reader.get_high_watermark_allocation_records(), 2),
            (reader.get_leaked_allocation_records(merge_threads=False), 1),
        ):
            large = [record for record in records if record.size >= SIZE]
            assert sum(record.n_allocations for record in large) == n_allocations
            assert sum(record.size for record in large) == n_allocations * SIZE
            for record in large:
                assert record.stack_trace(1) == [("work", str(tmp_path / "job.py"), 1)]
                assert [frame[0] for frame in record.stack_trace()] == ["work", "<module>"]
    with pytest.raises(ValueError, match="closed"):
        reader.get_leaked_allocation_records()


def test_reader_returns_stacks_that_are_longer_than_a_field_of_the_csv_module(tmp_path: Path) -> None:
    name = "with_a_long_name_" * 8
    (tmp_path / "job.py").write_text(
        f"import sys\nsys.setrecursionlimit(9000)\n"
        f"def {name}(n): return {name}(n - 1) if n else bytes(3_000_000)\n{name}(3000)\n"
    )
    heaptide("run", "-q", "-o", tmp_path / "job.bin", tmp_path / "job.py")
    limit = csv.field_size_limit()
    with memray.FileReader(tmp_path / "job.bin") as reader:
        records = list(reader.get_high_watermark_allocation_records())
    (large,) = [record for record in records if record.size == SIZE]
    stack = large.stack_trace()
    assert len(stack) == 3002 and len(name) * len(stack) > limit
    assert stack[0][:2] == (name, str(tmp_path / "job.py")) and stack[-1][0] == "<module>"
    assert large.stack_trace(2) == large.hybrid_stack_trace(2) == stack[:2]
    assert csv.field_size_limit() == limit


def test_unreadable_files_raise_memrays_exceptions(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        memray.FileReader(tmp_path / "missing.bin")
    (tmp_path / "junk.bin").write_text("junk")
    with pytest.raises(OSError, match="junk"):
        memray.FileReader(tmp_path / "junk.bin")


def test_reader_waits_for_its_port_and_sees_the_live_heap(tmp_path: Path) -> None:
    program = """
import socket, subprocess, sys
from heaptide.compat import memray
with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
if len(sys.argv) == 1:
    code = "import sys; from heaptide.compat import memray; from program import work; work(int(sys.argv[1]))"
    with subprocess.Popen([sys.executable, "-c", code, str(port)], stdin=subprocess.PIPE) as child:
        reader = memray.SocketReader(port).__enter__()
        assert reader.pid == child.pid and reader.is_active and not reader.has_native_traces
        while not (found := [r for r in reader.get_current_snapshot(merge_threads=False) if r.size > 4_000_000]):
            pass
        print(found[0].stack_trace()[0][0], found[0].n_allocations, reader.command_line)
        child.stdin.close()
        while reader.is_active:
            pass
        print(sum(record.size for record in reader.get_current_snapshot(merge_threads=True)) < 4_000_000)
        reader.__exit__(None, None, None)
"""
    helper = """
import sys
from heaptide.compat import memray
def allocate():
    return bytearray(5_000_000)
def work(port):
    with memray.Tracker(destination=memray.SocketDestination(server_port=port)):
        held = allocate()
        sys.stdin.read()
        del held
"""
    (tmp_path / "program.py").write_text(helper)
    (tmp_path / "main.py").write_text(program)
    done = python("main.py", cwd=tmp_path)
    assert done.stdout.splitlines()[0].startswith("allocate 1 -c ") and done.stdout.splitlines()[1] == "True"


# Prints a line after each step, and makes the next step when it reads a line. Other threads allocate meanwhile.
STEPS = """
import hashlib, mmap, sys, threading
from heaptide.compat import memray

def one_block():
    return bytearray(3_000_000)

def twenty_blocks():
    return [bytearray(70_000) for _ in range(20)]

def one_mapping():
    return mmap.mmap(-1, 5_000_000)

def allocate_all():
    held.append((one_block(), twenty_blocks(), one_mapping()))

def disturb():
    own = []
    while not is_over:
        own.append(bytearray(2_000))
        hashlib.sha256(bytes(100_000))  # releases the GIL
        if len(own) > 200:
            own.clear()

held, is_over = [], False
with memray.Tracker(destination=memray.SocketDestination(server_port=int(sys.argv[1]))):
    others = [threading.Thread(target=disturb) for _ in range(2)]
    for other in others:
        other.start()
    for step in range(int(sys.argv[2])):
        if step % 2:
            worker = threading.Thread(target=allocate_all)
            worker.start()
            worker.join()
        else:
            allocate_all()
        print("allocated", flush=True)
        sys.stdin.readline()
    is_over = True
    for other in others:
        other.join()
"""


def test_snapshot_contains_every_block_that_was_allocated_before_it(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [sys.executable, "steps.py", str(port), "8"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, cwd=tmp_path, **pipes) as program:  # type: ignore[call-overload]
        with memray.SocketReader(port) as reader:
            for n_steps, line in enumerate(program.stdout, start=1):
                assert line == "allocated\n"
                held: Counter[str] = Counter()
                for record in reader.get_current_snapshot(merge_threads=n_steps % 4 < 2):
                    for function in {frame[0] for frame in record.stack_trace()}:
                        held[function] += record.size
                assert held["one_block"] >= n_steps * 3_000_000
                assert held["twenty_blocks"] >= n_steps * 20 * 70_000
                assert held["one_mapping"] >= n_steps * 5_000_000
                print(file=program.stdin, flush=True)
        assert program.wait() == 0 and n_steps == 8


def test_other_machines_and_bad_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="only on this machine"):
        memray.Tracker(destination=memray.SocketDestination(8000, "0.0.0.0"))
    for wrong in ({}, {"file_name": "x", "destination": memray.FileDestination("x")}):
        with pytest.raises(TypeError, match="Exactly one"):
            memray.Tracker(**wrong)  # type: ignore[arg-type]


def test_objects_that_survive_are_found_with_their_allocation(tmp_path: Path) -> None:
    program = """
import gc
from heaptide.compat import memray
class Thing:
    pass
kept = []
def work():
    kept.append(Thing())
    kept.append("text " * (100 + len(kept)))
    kept.append([1.5 * len(kept)])
    Thing(), [Thing() for _ in range(1000)], "other " * 100
before = Thing()
tracker = memray.Tracker("out.bin", track_object_lifetimes=True)
with tracker:
    work()
found = tracker.get_surviving_objects()
names = [type(item).__name__ for item in found]
assert names.count("Thing") == 1 and kept[0] in found, names
assert any(item is kept[1] for item in found) and any(item is kept[2] for item in found)
assert any(item is kept[2][0] for item in found) and not any(item is before for item in found)
reader = memray.FileReader("out.bin")
(record,) = reader.get_tracked_objects([kept[0], before])
assert record.is_created and record.address == id(kept[0])
print(record.stack_trace()[0][0], record.stack_trace()[0][2])
"""
    assert python("-c", program, cwd=tmp_path).stdout == "work 8\n"


def test_trackers_are_used_once_and_one_at_a_time(tmp_path: Path) -> None:
    program = """
from heaptide.compat import memray
first = memray.Tracker("first.bin")
with first:
    try:
        memray.Tracker("second.bin").__enter__()
    except RuntimeError as error:
        assert "No more than one Tracker" in str(error)
    else:
        raise AssertionError
try:
    first.__enter__()
except RuntimeError:
    pass
else:
    raise AssertionError
try:
    memray.Tracker(destination=memray.FileDestination("first.bin")).__enter__()
except OSError:
    pass
else:
    raise AssertionError
with memray.Tracker("/dev/null"):
    pass
memray.install(force=True)
import memray as found
assert found is memray
"""
    python("-c", program, cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["first.bin"]


def test_only_requested_modules_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "memray.py").write_text("real = True")
    code = "import memray; print(hasattr(memray, 'real'))"
    assert python("-c", code, cwd=tmp_path).stdout == "True\n"
    assert python("-c", code, cwd=tmp_path, HEAPTIDE_COMPAT="memray").stdout == "False\n"
    done = python("-c", code, cwd=tmp_path, HEAPTIDE_COMPAT="scalpel")
    assert done.stdout == "True\n" and "no front end for 'scalpel'" in done.stderr


def test_records_are_those_of_the_list_of_events(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import mmap\n"
        "held = [bytearray(5000 + number) for number in range(50)]\n"
        "del held[::2]\n"
        "mmap.mmap(-1, 1 << 20).close()\n"
    )
    heaptide("run", "-q", "--objects", "-o", "job.tide", "job.py", cwd=tmp_path)
    lines = heaptide("transform", "events", "-o", "-", "job.tide", cwd=tmp_path).stdout.splitlines()
    expected = []
    of_python = set()
    for kind, *fields in (line.split("\t") for line in lines):
        if kind == "alloc":
            allocator = memray.AllocatorType[fields[4]] if fields[4] != "MMAP_FILE" else memray.AllocatorType.MMAP
            if allocator.name.startswith("PYMALLOC"):
                of_python.add(fields[2])
            expected.append((int(fields[2]), int(fields[3]), allocator))
        elif kind == "free":
            allocator = memray.AllocatorType.PYMALLOC_FREE if fields[2] in of_python else memray.AllocatorType.FREE
            of_python.discard(fields[2])
            expected.append((int(fields[2]), 0, allocator))
        elif kind == "unmap":
            expected.append((int(fields[2]), int(fields[3]), memray.AllocatorType.MUNMAP))
    records = list(memray.FileReader(tmp_path / "job.tide").get_allocation_records())
    assert [(each.address, each.size, each.allocator) for each in records] == expected
    assert {memray.AllocatorType.PYMALLOC_FREE, memray.AllocatorType.FREE, memray.AllocatorType.MUNMAP} <= {
        each.allocator for each in records
    }
