"""Tests recursion deeper than recorded stacks: the stack is cut, and an event costs the same at any depth."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.call_stacks import Recording
from support.commands import Finished, heaptide

# A stack deeper than MAX_DEPTH is cut, and keeps at least LEAST_CUT frames.
MAX_DEPTH = 4096
LEAST_CUT = 1024
CUT = "<stack cut: outer frames not recorded>"

# One block for each level, in a thread with enough stack for versions that use the C stack for each call.
DIVE = """
    import sys
    import threading
    import time

    def dive(n):
        block = bytearray(600)  # @block
        if n:
            dive(n - 1)  # @dive
        return len(block)

    def measure(depth):
        started = time.thread_time()
        dive(depth)
        return time.thread_time() - started

    def main():
        depths = [int(depth) for depth in sys.argv[1:]]
        for depth in depths:
            print(depth, min(measure(depth) for _ in range(2)))

    sys.setrecursionlimit(200_000)
    threading.stack_size(512 << 20)
    thread = threading.Thread(target=main)
    thread.start()
    thread.join()
"""


def test_too_deep_stack_keeps_its_innermost_frames_and_marks_the_cut(record: Callable[..., Recording]) -> None:
    recorded = record("""
        import sys

        def first(n):
            return second(n)  # @first

        def second(n):
            if n:
                return second(n - 1)  # @second
            return third(70)  # @turn

        def third(n):
            if n:
                return third(n - 1)  # @third
            return bytes(1_000_001)  # @bottom

        sys.setrecursionlimit(20_000)
        first(6_000)  # @call
        bytes(1_000_002)  # @after
    """)
    stack = recorded.stack(1_000_001)
    assert LEAST_CUT <= len(stack) <= MAX_DEPTH
    assert stack[0].startswith(CUT)
    assert set(stack[1:-72]) == {"second@second"}
    assert stack[-72:] == ["second@turn", *["third@third"] * 70, "third@bottom"]
    assert recorded.stack(1_000_002) == ["<module>@after"]
    assert [line for line in recorded.lines if line.startswith("LOST") and "too deep" in line]


def test_stack_is_whole_again_after_a_deep_recursion_returns(record: Callable[..., Recording]) -> None:
    recorded = record("""
        import sys

        def dive(n, size):
            if n:
                dive(n - 1, size)  # @dive
            if n % 1_000 == 0:
                bytes(size + n)  # @here

        sys.setrecursionlimit(20_000)
        dive(9_000, 1_000_000)  # @call
        dive(3_000, 2_000_000)  # @again
    """)
    for n in range(0, 10_000, 1_000):
        stack = recorded.stack(1_000_000 + n)
        depth = 9_000 - n
        assert stack[-1] == "dive@here"
        if depth + 2 <= LEAST_CUT:
            assert stack == ["<module>@call", *["dive@dive"] * depth, "dive@here"]
        elif stack[0].startswith(CUT):
            assert LEAST_CUT <= len(stack) <= MAX_DEPTH
            assert set(stack[1:-1]) == {"dive@dive"}
        else:
            assert stack == ["<module>@call", *["dive@dive"] * depth, "dive@here"]
    for n in range(0, 4_000, 1_000):
        assert recorded.stack(2_000_000 + n) == ["<module>@again", *["dive@dive"] * (3_000 - n), "dive@here"]


@pytest.mark.parametrize("options", [[], ["--native"]], ids=["python", "native"])
def test_cost_of_an_event_does_not_grow_with_the_depth_of_the_stack(
    heaptide_run: Callable[..., Finished], options: list[str]
) -> None:
    depths = ["10000", "40000"]
    recorded = heaptide_run(DIVE, *options, args=depths)
    seconds = [float(line.split()[1]) for line in recorded.stdout.splitlines()]
    # Four times as many events take four times as long; with a walk of the whole stack they take sixteen times as long.
    assert seconds[1] < 8 * seconds[0]


@pytest.mark.once
@pytest.mark.parametrize("options", [[], ["--native"]], ids=["python", "native"])
def test_deep_recursion_adds_a_bounded_number_of_frames_per_event(
    heaptide_run: Callable[..., Finished], parse: Callable[[Path], list[str]], options: list[str]
) -> None:
    capture = heaptide_run(DIVE, *options, args=["9000"]).capture
    lines = parse(capture)
    n_allocations = sum(line.startswith("ALLOCATION") for line in lines)
    n_pushed = sum(line.startswith("FRAME_PUSH") for line in lines)
    assert n_allocations > 2 * 9_000
    assert n_pushed < 10 * n_allocations


@pytest.mark.once
def test_deep_native_recursion_moves_its_window_rarely(
    heaptide_run: Callable[..., Finished], parse: Callable[[Path], list[str]], extension: Callable[..., Path]
) -> None:
    library = extension("stacks/native_stacks")
    recorded = heaptide_run(
        """
        import sys
        import threading

        sys.path.insert(0, sys.argv[1])
        import native_stacks

        def work():
            for depth in range(3_000, 8_000, 50):
                native_stacks.recurse(depth, 700)

        threading.stack_size(512 << 20)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        """,
        "--native",
        args=[str(library.parent)],
    )
    lines = parse(recorded.capture)
    assert any(line.startswith("LOST") and "native" in line for line in lines)
    # A window of 4096 frames for each of the 80 stacks that are too deep would be 300,000 frames.
    assert sum(line.startswith("FRAME_PUSH") for line in lines) < 60_000


@pytest.mark.once
def test_reports_name_the_cut_and_note_the_number_of_cut_stacks(heaptide_run: Callable[..., Finished]) -> None:
    capture = heaptide_run(DIVE, args=["10000"]).capture
    assert CUT in heaptide("tree", str(capture)).stdout
    stats = json.loads(heaptide("stats", "--json", str(capture)).stdout)
    assert "too deep" in json.dumps(stats)
