"""Tests that every allocation of ordinary code has its exact functions and lines."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from support.call_stacks import Recording


def test_nested_calls_are_recorded_from_the_module_to_the_allocation(record: Callable[..., Recording]) -> None:
    recorded = record("""
        def inner(n):
            return bytes(n)  # @allocate

        def middle(n):
            block = inner(n)  # @pass
            return block

        def outer(n):
            return middle(n)  # @on

        outer(1_000_001)  # @call
        bytes(1_000_002)  # @direct
    """)
    assert recorded.stack(1_000_001) == ["<module>@call", "outer@on", "middle@pass", "inner@allocate"]
    assert recorded.stack(1_000_002) == ["<module>@direct"]


def test_one_function_called_from_two_lines_has_two_stacks(record: Callable[..., Recording]) -> None:
    recorded = record("""
        def make():
            return bytes(1_000_001)  # @allocate

        def use():
            make()  # @first
            make()  # @second
            make(); make()  # @twice

        use()  # @use
    """)
    calls = ["first", "second", "twice", "twice"]
    assert recorded.stacks(1_000_001) == [["<module>@use", f"use@{call}", "make@allocate"] for call in calls]


def test_callers_that_have_returned_are_not_in_later_stacks(record: Callable[..., Recording]) -> None:
    recorded = record("""
        def leaf(n):
            bytes(n)  # @leaf

        def left(n):
            leaf(n)  # @left

        def right(n):
            leaf(n)  # @right

        for n in range(1_000_000, 1_000_010):
            left(n) if n % 2 else right(n)  # @loop
    """)
    for n in range(1_000_000, 1_000_010):
        side = "left" if n % 2 else "right"
        assert recorded.stack(n) == ["<module>@loop", f"{side}@{side}", "leaf@leaf"]


@pytest.mark.parametrize("depth", [500, 3000])
def test_recursion_is_recorded_to_its_full_depth(record: Callable[..., Recording], depth: int) -> None:
    recorded = record(f"""
        import sys

        def dive(n):
            if n == 0:
                return bytes(1_000_001)  # @bottom
            if n % 2:
                return dive(n - 1)  # @odd
            return dive(n - 1)  # @even

        sys.setrecursionlimit(10_000)
        dive({depth})  # @call
        dive({depth - 1})  # @again
    """)
    dives = ["dive@odd" if n % 2 else "dive@even" for n in range(depth, 0, -1)]
    assert recorded.stacks(1_000_001) == [
        ["<module>@call", *dives, "dive@bottom"],
        ["<module>@again", *dives[1:], "dive@bottom"],
    ]
    assert not [line for line in recorded.lines if line.startswith("LOST")]


def test_line_is_exact_in_loops_branches_and_after_backward_jumps(record: Callable[..., Recording]) -> None:
    recorded = record("""
        def work():
            for n in range(1_000_000, 1_000_003):
                bytes(n)  # @top
                if n == 1_000_001:
                    bytes(2_000_001)  # @branch
                    continue
                bytes(n + 3_000_000)  # @end
            while n < 1_000_004:
                n += 1
                bytes(n + 5_000_000)  # @while
            else:
                bytes(7_000_000)  # @else

        work()  # @call
    """)
    lines = {n: recorded.stack(n) for n in (1_000_000, 1_000_001, 1_000_002)}
    assert lines == {n: ["<module>@call", "work@top"] for n in lines}
    assert recorded.stack(2_000_001) == ["<module>@call", "work@branch"]
    assert recorded.stack(4_000_000) == recorded.stack(4_000_002) == ["<module>@call", "work@end"]
    assert recorded.of(4_000_001) == []
    assert recorded.stack(6_000_003) == recorded.stack(6_000_004) == ["<module>@call", "work@while"]
    assert recorded.stack(7_000_000) == ["<module>@call", "work@else"]


def test_each_part_of_a_multiline_call_has_its_line(record: Callable[..., Recording]) -> None:
    recorded = record("""
        def both(one, two):
            return bytes(  # @own
                1_000_003
            )

        def work():
            return both(  # @both
                bytes(1_000_001),  # @one
                two=bytes(  # @two
                    1_000_002
                ),
            )

        work()  # @call
        total = (
            len(bytes(1_000_004))  # @left
            + len(bytes(1_000_005))  # @right
        )
    """)
    assert recorded.stack(1_000_001) == ["<module>@call", "work@one"]
    assert recorded.stack(1_000_002) == ["<module>@call", "work@two"]
    assert recorded.stack(1_000_003) == ["<module>@call", "work@both", "both@own"]
    assert recorded.stack(1_000_004) == ["<module>@left"]
    assert recorded.stack(1_000_005) == ["<module>@right"]


def test_line_is_exact_while_an_exception_is_handled(record: Callable[..., Recording]) -> None:
    recorded = record("""
        def fail(n):
            try:
                bytes(n)  # @try
                raise KeyError(n)
            finally:
                bytes(n + 1)  # @finally

        def work():
            try:
                fail(1_000_001)  # @fail
            except ValueError:
                bytes(1)
            except KeyError as error:
                bytes(1_000_003)  # @except
                try:
                    fail(1_000_004)  # @second
                except KeyError:
                    bytes(1_000_006)  # @inner
                bytes(1_000_007)  # @still
            else:
                bytes(1)
            finally:
                bytes(1_000_008)  # @last
            bytes(1_000_009)  # @after

        work()  # @call
    """)
    assert recorded.stack(1_000_001) == ["<module>@call", "work@fail", "fail@try"]
    assert recorded.stack(1_000_002) == ["<module>@call", "work@fail", "fail@finally"]
    assert recorded.stack(1_000_005) == ["<module>@call", "work@second", "fail@finally"]
    marks = {1_000_003: "except", 1_000_006: "inner", 1_000_007: "still", 1_000_008: "last", 1_000_009: "after"}
    assert {n: recorded.stack(n) for n in marks} == {n: ["<module>@call", f"work@{mark}"] for n, mark in marks.items()}


def test_context_managers_have_the_lines_of_entry_body_and_exit(record: Callable[..., Recording]) -> None:
    recorded = record("""
        import contextlib

        class Manager:
            def __enter__(self):
                return bytes(1_000_001)  # @enter

            def __exit__(self, *error):
                bytes(1_000_003)  # @exit

        @contextlib.contextmanager
        def manager():
            bytes(1_000_004)  # @before
            try:
                yield
            finally:
                bytes(1_000_006)  # @after

        def work():
            with Manager() as block:  # @with
                bytes(1_000_002)  # @body
            with manager():  # @generator
                bytes(1_000_005)  # @within

        work()  # @call
    """)
    assert recorded.stack(1_000_001) == ["<module>@call", "work@with", "__enter__@enter"]
    assert recorded.stack(1_000_002) == ["<module>@call", "work@body"]
    assert recorded.stack(1_000_003) == ["<module>@call", "work@with", "__exit__@exit"]
    assert recorded.script_stack(1_000_004) == ["<module>@call", "work@generator", "manager@before"]
    assert recorded.stack(1_000_005) == ["<module>@call", "work@within"]
    assert recorded.script_stack(1_000_006) == ["<module>@call", "work@generator", "manager@after"]
    assert [call.name for call in recorded.of(1_000_006)[0].stack] == ["<module>", "work", "__exit__", "manager"]


def test_specialized_initialiser_call_adds_no_frame(
    record: Callable[..., Recording],
) -> None:
    # After some calls the interpreter calls `__init__` without C in between, through an internal frame that no Python
    # code can see.
    recorded = record("""
        class Base:
            def __init__(self, n):
                self.block = bytes(n)  # @base

        class Derived(Base):
            def __init__(self, n):
                super().__init__(n)  # @super

        def make(n):
            Base(n)  # @plain
            Derived(n + 1_000)  # @derived

        for n in range(1_000_000, 1_000_300):
            make(n)  # @loop
    """)
    for n in range(1_000_000, 1_000_300):
        assert recorded.stack(n) == ["<module>@loop", "make@plain", "__init__@base"]
        assert recorded.stack(n + 1_000) == ["<module>@loop", "make@derived", "__init__@super", "__init__@base"]


def test_list_comprehension_is_a_separate_call_until_3_11_and_inlined_later(
    record: Callable[..., Recording],
) -> None:
    recorded = record("""
        def work():
            return [
                bytes(n)  # @item
                for n in (1_000_001,)
                if [bytes(m) for m in (1_000_002,)]  # @condition
            ]

        work()  # @call
    """)
    [one] = recorded.of(1_000_001)
    assert [call.name for call in one.stack] == ["<module>", "work"] + ["<listcomp>"] * (sys.version_info < (3, 12))
    assert recorded.describe(one.stack[-1]).endswith("@item")
    [two] = recorded.of(1_000_002)
    assert [call.name for call in two.stack] == ["<module>", "work"] + ["<listcomp>"] * 2 * (sys.version_info < (3, 12))
    assert recorded.describe(two.stack[-1]).endswith("@condition")
