"""Tests that `heaptide.Tracker` also records frames and threads that are older than the recording."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from support.call_stacks import Recording, read_allocations
from support.commands import heaptide


@pytest.fixture
def track(parse: Callable[[Path], list[str]], tmp_path: Path) -> Callable[[str], Recording]:
    """Run a program that records itself into the file named by its first argument."""

    def run(program: str) -> Recording:
        script, capture = tmp_path / "tracked.py", tmp_path / "tracked.tide"
        script.write_text(textwrap.dedent(program))
        done = subprocess.run([sys.executable, str(script), str(capture)], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        lines = parse(capture)
        return Recording(script, done.stdout, lines, list(read_allocations(lines)))

    return run


def test_frames_entered_before_the_recording_are_part_of_its_stacks(track: Callable[[str], Recording]) -> None:
    recorded = track("""
        import sys
        import heaptide

        def leaf(n):
            return bytes(n)  # @leaf

        def measured():
            leaf(1_000_001)
            with heaptide.Tracker(sys.argv[1]):
                leaf(1_000_002)  # @inside
                bytes(1_000_003)  # @direct
            leaf(1_000_004)

        def outer():
            measured()  # @measured

        outer()  # @outer
    """)
    assert recorded.stack(1_000_002) == ["<module>@outer", "outer@measured", "measured@inside", "leaf@leaf"]
    assert recorded.stack(1_000_003) == ["<module>@outer", "outer@measured", "measured@direct"]
    assert recorded.of(1_000_001) == recorded.of(1_000_004) == []


def test_start_and_stop_in_different_functions_record_correct_stacks(
    track: Callable[[str], Recording],
) -> None:
    recorded = track("""
        import sys
        import heaptide

        tracker = heaptide.Tracker(sys.argv[1])

        def begin():
            def nested():
                tracker.start()
                bytes(1_000_001)  # @begun
            nested()  # @nested
            bytes(1_000_002)  # @back

        def end(depth):
            if depth:
                return end(depth - 1)  # @end
            bytes(1_000_004)  # @last
            tracker.stop()

        begin()  # @begin
        bytes(1_000_003)  # @module
        end(3)  # @finish
    """)
    assert recorded.stack(1_000_001) == ["<module>@begin", "begin@nested", "nested@begun"]
    assert recorded.stack(1_000_002) == ["<module>@begin", "begin@back"]
    assert recorded.stack(1_000_003) == ["<module>@module"]
    assert recorded.stack(1_000_004) == ["<module>@finish"] + ["end@end"] * 3 + ["end@last"]


def test_heaptides_own_allocations_are_in_no_report(track: Callable[[str], Recording], tmp_path: Path) -> None:
    recorded = track("""
        import sys
        import threading
        import heaptide

        def work():
            threads = [threading.Thread(target=bytes, args=(1_000_000 + n,), name=f"worker {n}") for n in range(50)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        print(heaptide.__file__)
        with heaptide.Tracker(sys.argv[1], objects=True):
            work()  # @work
            heaptide.active()
    """)
    folder = str(Path(recorded.stdout.strip()).parent)
    for command in (["tree"], ["tree", "--leaks"], ["stats", "-n", "10000"], ["summary"]):
        report = heaptide(*command, tmp_path / "tracked.tide").stdout
        assert recorded.script.name in report or "--leaks" in command
        assert [line for line in report.splitlines() if folder in line] == []


def test_threads_older_than_the_recording_have_complete_stacks(track: Callable[[str], Recording]) -> None:
    recorded = track("""
        import sys
        import threading
        import heaptide

        ready, go = threading.Barrier(4), threading.Event()

        def deep(base, depth):
            if depth:
                return deep(base, depth - 1)  # @deep
            ready.wait()
            go.wait()
            for n in range(10):
                bytes(base + n)  # @bottom

        def entry(base, depth):
            deep(base, depth)  # @entry

        def generate():
            ready.wait()
            go.wait()
            yield bytes(3_000_000)  # @yield

        threads = [
            threading.Thread(target=entry, args=(1_000_000, 3)),
            threading.Thread(target=entry, args=(2_000_000, 30)),
            threading.Thread(target=lambda: next(generate())),  # @lambda
        ]
        for thread in threads:
            thread.start()
        ready.wait()
        with heaptide.Tracker(sys.argv[1]):
            go.set()
            for thread in threads:
                thread.join()
    """)
    for base, depth in ((1_000_000, 3), (2_000_000, 30)):
        for n in range(10):
            assert recorded.script_stack(base + n) == ["entry@entry"] + ["deep@deep"] * depth + ["deep@bottom"]
    assert [call.name for call in recorded.of(1_000_000)[0].stack][:3] == ["_bootstrap", "_bootstrap_inner", "run"]
    assert recorded.script_stack(3_000_000) == ["<lambda>@lambda", "generate@yield"]


def test_second_recording_of_a_process_is_as_exact_as_the_first(
    track: Callable[[str], Recording], parse: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    recorded = track("""
        import sys
        import heaptide

        def leaf(n):
            bytes(n)  # @leaf

        def record(path, n):
            with heaptide.Tracker(path):
                leaf(n)  # @record

        for i in range(20):
            record(f"{sys.argv[1]}.{i}", 1_000_000 + i)  # @loop
        record(sys.argv[1], 2_000_000)  # @last
    """)
    assert recorded.stack(2_000_000) == ["<module>@last", "record@record", "leaf@leaf"]
    for i in range(20):
        lines = parse(tmp_path / f"tracked.tide.{i}")
        earlier = Recording(recorded.script, "", lines, list(read_allocations(lines)))
        assert earlier.stack(1_000_000 + i) == ["<module>@loop", "record@record", "leaf@leaf"]


SUB_INTERPRETERS = "_interpreters" if sys.version_info >= (3, 13) else "_xxsubinterpreters"


@pytest.mark.parametrize("objects", [False, True], ids=["exact", "objects"])
def test_sub_interpreter_has_separate_stacks_from_3_12_on_and_none_before(
    track: Callable[[str], Recording], objects: bool
) -> None:
    recorded = track(f"""
        import sys
        import {SUB_INTERPRETERS} as interpreters
        import heaptide

        INSIDE = '''
        def leaf(n):
            return bytes(n)

        def work(n):
            return leaf(n)

        for n in range(1_000_000, 1_000_020):
            work(n)
        '''

        def run(interpreter):
            interpreters.run_string(interpreter, INSIDE)  # @run

        with heaptide.Tracker(sys.argv[1], objects={objects}):
            first, second = interpreters.create(), interpreters.create()
            bytes(2_000_001)  # @before
            run(first)  # @first
            run(second)  # @second
            bytes(2_000_002)  # @between
            interpreters.destroy(first)
            run(second)  # @third
            interpreters.destroy(second)
            bytes(2_000_003)  # @after
        print("done")
    """)
    assert recorded.stdout == "done\n"
    assert recorded.stack(2_000_001) == ["<module>@before"]
    assert recorded.stack(2_000_002) == ["<module>@between"]
    assert recorded.stack(2_000_003) == ["<module>@after"]
    for n in range(1_000_000, 1_000_020):
        if sys.version_info >= (3, 12):
            inside = [[(call.name, call.line) for call in one.stack] for one in recorded.of(n)]
            assert inside == [[("<module>", 9), ("work", 6), ("leaf", 3)]] * 3
        else:
            # Older versions do not show which interpreter a thread runs, so its allocations belong to the line that
            # started the sub-interpreter.
            assert recorded.stacks(n) == [[f"<module>@{line}", "run@run"] for line in ("first", "second", "third")]
