"""Tests `heaptide.Tracker`, which records a block of code in a running process, from any thread."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import heaptide

Python = Callable[..., subprocess.CompletedProcess[str]]

# Nothing else allocates blocks of these sizes, so their number is exact.
MARKED_SIZE = 1_234_567
OTHER_SIZE = 2_345_678


@pytest.fixture
def python(tmp_path: Path) -> Python:
    """Run a program that uses the API; with `check` it must exit with 0 and print nothing to standard error."""

    def run(program: str, *, flags: tuple[str, ...] = (), check: bool = True) -> subprocess.CompletedProcess[str]:
        start = (
            "import gc, os, sys, threading\nfrom pathlib import Path\nimport heaptide\nfrom heaptide import Tracker\n"
        )
        command = [sys.executable, *flags, "-c", start + textwrap.dedent(program)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        if check:
            assert (done.returncode, done.stderr) == (0, "")
        return done

    return run


def count(capture: Path, size: int = MARKED_SIZE) -> int:
    """Count the blocks of this size in a capture."""
    lines = heaptide("parse", capture).stdout.splitlines()
    return sum(f" size={size + BYTES_HEAD} " in line for line in lines if line.startswith("ALLOCATION "))


BYTES_HEAD = sys.getsizeof(b"")


def test_only_allocations_in_the_block_are_recorded(python: Python, tmp_path: Path) -> None:
    python(f"""
    before = bytes({OTHER_SIZE})
    with Tracker("block.tide"):
        within = [bytes({MARKED_SIZE}) for _ in range(3)]
    after = bytes({OTHER_SIZE})
    """)
    assert count(tmp_path / "block.tide") == 3
    assert count(tmp_path / "block.tide", OTHER_SIZE) == 0


def test_start_and_stop_record_like_the_with_block(python: Python, tmp_path: Path) -> None:
    python(f"""
    tracker = Tracker("block.tide")
    before = bytes({OTHER_SIZE})
    tracker.start()
    within = [bytes({MARKED_SIZE}) for _ in range(3)]
    tracker.stop()
    after = bytes({OTHER_SIZE})
    tracker.stop()
    """)
    assert count(tmp_path / "block.tide") == 3
    assert count(tmp_path / "block.tide", OTHER_SIZE) == 0


def test_with_returns_the_tracker(python: Python) -> None:
    done = python('tracker = Tracker("block.tide")\nwith tracker as same: print(tracker is same)')
    assert done.stdout == "True\n"


def test_active_returns_whether_the_process_is_recorded(python: Python) -> None:
    done = python("""
    print(heaptide.active())
    tracker = Tracker("block.tide")
    print(heaptide.active())
    with tracker:
        print(heaptide.active())
        thread = threading.Thread(target=lambda: print(heaptide.active()))
        thread.start(); thread.join()
    print(heaptide.active())
    """)
    assert done.stdout.split() == ["False", "False", "True", "True", "False"]


def test_active_is_true_under_heaptide_run(heaptide_run: Callable[..., Any]) -> None:
    assert heaptide_run("import heaptide; print(heaptide.active())").stdout == "True\n"


@pytest.mark.parametrize("where", ["in the same thread", "in another thread"])
def test_second_start_raises_and_the_first_recording_continues(python: Python, tmp_path: Path, where: str) -> None:
    done = python(f"""
    def second():
        for tracker in (Tracker("second.tide"), first):
            try:
                tracker.start()
            except heaptide.RecordingError as error:
                print(error)
            tracker is first or tracker.stop()
    with Tracker("first.tide") as first:
        if {where == "in another thread"}:
            thread = threading.Thread(target=second)
            thread.start(); thread.join()
        else:
            second()
        print(heaptide.active())
        within = bytes({MARKED_SIZE})
    """)
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and lines[2] == "True"
    assert all("being recorded already" in line and "first.tide" in line for line in lines[:2])
    assert count(tmp_path / "first.tide") == 1
    assert not (tmp_path / "second.tide").exists()


def test_tracker_under_heaptide_run_raises_and_the_run_continues(
    heaptide_run: Callable[..., Any], tmp_path: Path
) -> None:
    done = heaptide_run(f"""
    import heaptide
    try:
        heaptide.Tracker("second.tide").start()
    except heaptide.RecordingError as error:
        print(error)
    within = bytes({MARKED_SIZE})
    """)
    assert "being recorded already" in done.stdout
    assert count(done.capture) == 1 and not (tmp_path / "second.tide").exists()


def test_exceptions_propagate_unchanged_and_the_capture_is_complete(python: Python, tmp_path: Path) -> None:
    done = python(f"""
    import traceback
    problem = LookupError("here")
    try:
        with Tracker("block.tide"):
            within = bytes({MARKED_SIZE})
            raise problem
    except LookupError as error:
        print(error is problem, error.__context__, error.__cause__)
        print([frame.name for frame in traceback.extract_tb(error.__traceback__)])
    print(heaptide.active())
    for end in (SystemExit, KeyboardInterrupt, GeneratorExit):
        try:
            with Tracker(f"{{end.__name__}}.tide"):
                raise end
        except end:
            print(end.__name__)
    """)
    assert done.stdout.split("\n")[:3] == ["True None None", "['<module>']", "False"]
    assert done.stdout.split()[-3:] == ["SystemExit", "KeyboardInterrupt", "GeneratorExit"]
    assert count(tmp_path / "block.tide") == 1


def test_destination_is_a_string_or_a_path(python: Python, tmp_path: Path) -> None:
    python(f"""
    os.mkdir("sub")
    class Custom:
        def __fspath__(self): return "custom.tide"
    for destination in ("text.tide", Path("sub", "path.tide"), Custom(), os.path.abspath("whole ü.tide")):
        with Tracker(destination):
            os.chdir("/")
        os.chdir({str(tmp_path)!r})
    """)
    for name in ("text.tide", "sub/path.tide", "custom.tide", "whole ü.tide"):
        assert heaptide("parse", tmp_path / name).stdout.splitlines()[-1].startswith("TRAILER time=0.")


def test_existing_file_is_refused_without_overwrite(python: Python, tmp_path: Path) -> None:
    (tmp_path / "there.tide").write_text("somebody's work")
    done = python("""
    try:
        Tracker("there.tide").start()
    except FileExistsError as error:
        print(error)
    print(heaptide.active(), Path("there.tide").read_text())
    with Tracker("there.tide", overwrite=True):
        pass
    """)
    assert "there.tide exists already" in done.stdout and "overwrite=True" in done.stdout
    assert done.stdout.endswith("False somebody's work\n")
    heaptide("stats", tmp_path / "there.tide")


def test_unwritable_destination_raises_and_nothing_is_recorded(python: Python) -> None:
    done = python("""
    os.mkdir("folder")
    for destination in ("missing/block.tide", "folder", "/dev/full"):
        try:
            Tracker(destination, overwrite=destination != "folder").start()
        except OSError as error:
            print(type(error).__name__, error.errno, destination in str(error), heaptide.active())
    """)
    assert done.stdout.splitlines() == [
        "FileNotFoundError 2 True False",
        "FileExistsError 17 True False",
        "OSError 28 True False",
    ]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("", "TypeError"),
        ("42", "TypeError"),
        ("None", "TypeError"),
        ("'x.tide', True", "TypeError"),
        ("'x.tide', nonsense=1", "TypeError"),
        ("'x.tide', sample=0", "ValueError"),
        ("'x.tide', sample=-5", "ValueError"),
        ("'x.tide', sample='many'", "TypeError"),
        ("'x.tide', interval_ms=0", "ValueError"),
        ("'x.tide', interval_ms='slow'", "TypeError"),
        ("'x.tide', interval_ms=2**40", "ValueError"),
        ("'x.tide', sample=2**80", "ValueError"),
    ],
)
def test_wrong_arguments_are_refused_by_the_constructor(
    python: Python, tmp_path: Path, arguments: str, error: str
) -> None:
    done = python(f"""
    try:
        Tracker({arguments})
    except (TypeError, ValueError) as error:
        print(type(error).__name__, heaptide.active())
        print(error)
    """)
    outcome, sentence = done.stdout.splitlines()
    assert outcome == f"{error} False"
    assert "sample=" not in arguments or sentence.startswith("sample must be a number of bytes from 1 to ")
    assert list(tmp_path.iterdir()) == []


def test_recording_can_be_started_and_stopped_in_different_threads(python: Python, tmp_path: Path) -> None:
    python(f"""
    tracker = Tracker("block.tide")
    for step in (tracker.start, lambda: held.append(bytes({MARKED_SIZE})), tracker.stop):
        held = []
        thread = threading.Thread(target=step)
        thread.start(); thread.join()
    """)
    assert count(tmp_path / "block.tide") == 1


def test_many_threads_can_start_and_stop_concurrently(python: Python, tmp_path: Path) -> None:
    done = python("""
    outcomes = {"started": 0, "refused": 0}
    lock, gate = threading.Lock(), threading.Barrier(6)
    def work(number):
        gate.wait()
        for turn in range(40):
            tracker = Tracker(f"{number}-{turn}.tide")
            try:
                tracker.start()
            except heaptide.RecordingError:
                outcome = "refused"
            else:
                outcome = "started"
                [bytes(5000) for _ in range(20)]
                tracker.stop()
            with lock:
                outcomes[outcome] += 1
    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print(outcomes["started"], outcomes["started"] + outcomes["refused"], heaptide.active())
    """)
    started, total, active = done.stdout.split()
    files = list(tmp_path.glob("*.tide"))
    assert (total, active) == ("240", "False") and len(files) == int(started) > 0
    statistics = heaptide("stats", "--json", *files)
    assert '"damage": []' in statistics.stdout and "did not end" not in statistics.stdout


def test_stop_of_a_tracker_that_did_not_start_does_not_stop_the_other(python: Python, tmp_path: Path) -> None:
    python(f"""
    other = Tracker("other.tide")
    with Tracker("block.tide"):
        other.stop()
        try:
            other.start()
        except heaptide.RecordingError:
            pass
        other.stop()
        within = bytes({MARKED_SIZE})
    """)
    assert count(tmp_path / "block.tide") == 1


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "1 / 0", "raise KeyboardInterrupt"])
def test_capture_of_an_open_tracker_is_completed_at_exit(python: Python, tmp_path: Path, end: str) -> None:
    python(f"Tracker('block.tide').start()\nheld = bytes({MARKED_SIZE})\n{end}", check=False)
    assert count(tmp_path / "block.tide") == 1
    assert heaptide("parse", tmp_path / "block.tide").stdout.splitlines()[-1].startswith("TRAILER time=0.")


def test_modes_of_the_tracker_are_written_into_the_capture(python: Python, tmp_path: Path) -> None:
    python("""
    for name, value in [("objects", True), ("sample", True), ("sample", 4096), ("aggregate", True), ("follow_fork", True)]:
        with Tracker(f"{name}-{value}.tide", **{name: value}):
            pass
    """)
    for name, mark in [
        ("objects-True", "objects=true"),
        ("sample-True", "sample_bytes=524288"),
        ("sample-4096", "sample_bytes=4096"),
        ("aggregate-True", "aggregate=true"),
        ("follow_fork-True", "follow_fork=true"),
    ]:
        header = heaptide("parse", tmp_path / f"{name}.tide").stdout.splitlines()[0]
        assert f" {mark} " in header and " joined_late=true " in header


@pytest.mark.once
def test_finer_sampling_than_in_the_previous_recording_starts_at_once(python: Python, tmp_path: Path) -> None:
    # The first recording would take a sample after about a terabyte.
    python(f"""
    with Tracker("coarse.tide", sample=2**40):
        bytes({OTHER_SIZE})
    with Tracker("fine.tide", sample=1000):
        held = bytes({MARKED_SIZE})
    """)
    assert count(tmp_path / "fine.tide") == 1


def test_stop_restores_the_process(python: Python) -> None:
    done = python("""
    def state():
        hooks = sys.getprofile(), sys.gettrace(), threading.Thread.__dict__.get("_set_native_id")
        return hooks, len(os.listdir("/proc/self/fd"))
    before = state()
    with Tracker("block.tide"):
        assert sys.getprofile() is None and sys.gettrace() is None
    assert state() == before, (state(), before)
    # The kernel lists a thread for a moment after it was joined; a thread that stays would hang the test.
    while len(os.listdir("/proc/self/task")) > 1:
        pass
    assert not any(".tide" in line for line in open("/proc/self/maps"))
    """)
    assert done.stdout == ""


def test_hundreds_of_recordings_do_not_grow_the_process(python: Python) -> None:
    done = python("""
    def resident():
        return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    def n_mappings():
        return sum(1 for _ in open("/proc/self/maps"))
    for turn in range(600):
        with Tracker("block.tide", overwrite=True):
            bytes(10000)
        if turn == 200:
            first = resident(), n_mappings()
    grown = resident() - first[0]
    # One page per recording would be 1.6 million bytes; the kernel updates page counts in batches of up to 64.
    print(grown < 1_000_000, n_mappings() - first[1] < 8, grown, n_mappings() - first[1])
    """)
    assert done.stdout.startswith("True True"), done.stdout


def test_heaptide_imports_nothing_during_a_recording(tmp_path: Path) -> None:
    program = """
        import sys
        from heaptide import Tracker, active

        seen = []
        sys.addaudithook(lambda name, args: seen.append(args[0]) if name == "import" and active() else None)
        with Tracker("block.tide"):
            pass
        print(seen)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
