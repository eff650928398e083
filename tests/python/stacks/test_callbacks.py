"""Tests that stacks of Python code called from C, finalisers and signal handlers are those of Python itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support.call_stacks import Recording


def test_builtins_that_call_back_add_no_frame(
    record: Callable[..., Recording],
) -> None:
    recorded = record("""
        import functools
        import re

        def key(n):
            return len(bytes(n))  # @key

        def add(total, n):
            return total + key(n)  # @add

        def replace(match):
            return str(key(1_000_006))  # @replace

        def work():
            sorted([1_000_001, 1_000_002], key=key)  # @sorted
            list(map(key, [1_000_003]))  # @map
            functools.reduce(add, [1_000_004], 0)  # @reduce
            min([1_000_005], key=functools.partial(key))  # @partial
            re.sub("x", replace, "axa")  # @sub

        work()  # @call
    """)
    for n in (1_000_001, 1_000_002):
        assert recorded.stack(n) == ["<module>@call", "work@sorted", "key@key"]
    assert recorded.stack(1_000_003) == ["<module>@call", "work@map", "key@key"]
    assert recorded.stack(1_000_004) == ["<module>@call", "work@reduce", "add@add", "key@key"]
    assert recorded.stack(1_000_005) == ["<module>@call", "work@partial", "key@key"]
    assert recorded.script_stack(1_000_006) == ["<module>@call", "work@sub", "replace@replace", "key@key"]
    assert [call.name for call in recorded.of(1_000_006)[0].stack] == ["<module>", "work", "sub", "replace", "key"]


def test_callback_from_c_code_has_the_frames_of_the_caller_of_the_c_code(
    record: Callable[..., Recording],
) -> None:
    recorded = record("""
        import ctypes

        Compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))

        def compare(one, other):
            bytes(1_000_001)  # @compare
            return one[0] - other[0]

        def sort(numbers):
            qsort = ctypes.CDLL(None).qsort
            qsort(numbers, len(numbers), ctypes.sizeof(ctypes.c_int), Compare(compare))  # @sort
            bytes(1_000_002)  # @after

        numbers = (ctypes.c_int * 4)(4, 1, 3, 2)
        sort(numbers)  # @call
        print(list(numbers))
    """)
    assert recorded.stdout == "[1, 2, 3, 4]\n"
    stacks = recorded.stacks(1_000_001)
    assert len(stacks) >= 3
    assert stacks == [["<module>@call", "sort@sort", "compare@compare"]] * len(stacks)
    assert recorded.stack(1_000_002) == ["<module>@call", "sort@after"]


def test_recursion_through_c_and_python_keeps_every_python_frame(record: Callable[..., Recording]) -> None:
    recorded = record("""
        import sys

        class Nested:
            def __init__(self, depth):
                self.depth = depth

            def __repr__(self):
                if self.depth == 0:
                    return str(len(bytes(1_000_001)))  # @bottom
                return repr([Nested(self.depth - 1)])  # @deeper

        def key(depth):
            if depth == 0:
                return len(bytes(1_000_002))  # @last
            return max([depth - 1], key=key)  # @key

        sys.setrecursionlimit(5_000)
        repr(Nested(60))  # @repr
        key(150)  # @start
    """)
    assert recorded.stack(1_000_001) == ["<module>@repr"] + ["__repr__@deeper"] * 60 + ["__repr__@bottom"]
    assert recorded.stack(1_000_002) == ["<module>@start"] + ["key@key"] * 150 + ["key@last"]


def test_finaliser_is_called_from_the_line_that_dropped_the_object(record: Callable[..., Recording]) -> None:
    recorded = record("""
        import gc
        import weakref

        class Thing:
            def __init__(self, n):
                self.n = n

            def __del__(self):
                bytes(self.n)  # @del

        def on_death(reference):
            bytes(1_000_003)  # @died

        def by_count():
            thing = Thing(1_000_001)
            del thing  # @drop

        def by_collector():
            thing = Thing(1_000_002)
            thing.itself = thing
            thing = None
            gc.collect()  # @collect

        def by_weakref():
            thing = Thing(1_000_004)
            reference = weakref.ref(thing, on_death)
            thing = None  # @clear

        gc.disable()
        by_count()  # @count
        by_collector()  # @collector
        by_weakref()  # @weakref
    """)
    assert recorded.stack(1_000_001) == ["<module>@count", "by_count@drop", "__del__@del"]
    assert recorded.stack(1_000_002) == ["<module>@collector", "by_collector@collect", "__del__@del"]
    assert recorded.stack(1_000_003) == ["<module>@weakref", "by_weakref@clear", "on_death@died"]
    assert recorded.stack(1_000_004) == ["<module>@weakref", "by_weakref@clear", "__del__@del"]


def test_signal_handler_is_called_from_the_interrupted_line(record: Callable[..., Recording]) -> None:
    recorded = record("""
        import signal

        seen = []

        def handler(number, frame):
            seen.append(frame.f_lineno)
            bytes(1_000_001)  # @handler

        def wait():
            # This line sets a timer three times, each time after the handler of the last one has run. Set elsewhere, a
            # timer might fire before this line or within the handler. A fourth might fire after the program's end.
            while len(seen) < 3: len(set_) > min(len(seen), 2) or set_.append(signal.setitimer(signal.ITIMER_REAL, 0.01))  # @wait

        set_ = []
        signal.signal(signal.SIGALRM, handler)
        wait()  # @call
        bytes(1_000_002)  # @after
    """)
    stacks = recorded.stacks(1_000_001)
    assert stacks == [["<module>@call", "wait@wait", "handler@handler"]] * 3
    assert recorded.stack(1_000_002) == ["<module>@after"]


def test_decorators_lambdas_class_bodies_and_properties_have_their_names_and_lines(
    record: Callable[..., Recording],
) -> None:
    recorded = record("""
        import functools

        def decorate(function):
            bytes(1_000_001)  # @decorate
            @functools.wraps(function)
            def wrapper(*args):
                return function(*args)  # @wrapper
            return wrapper

        class Outer:
            bytes(1_000_002)  # @body

            class Inner:
                bytes(1_000_003)  # @inner

            @decorate  # @decorator
            def method(self):
                return bytes(1_000_004)  # @method

            @property
            def value(self):
                return bytes(1_000_005)  # @property

            @staticmethod
            def static():
                return (lambda: bytes(1_000_006))()  # @lambda

        Outer().method()  # @call
        Outer().value  # @value
        Outer.static()  # @static
    """)
    assert recorded.stack(1_000_001)[-1] == "decorate@decorate"
    assert [call.name for call in recorded.of(1_000_001)[0].stack] == ["<module>", "Outer", "decorate"]
    assert [call.name for call in recorded.of(1_000_002)[0].stack] == ["<module>", "Outer"]
    assert recorded.stack(1_000_002)[-1] == "Outer@body"
    assert [call.name for call in recorded.of(1_000_003)[0].stack] == ["<module>", "Outer", "Inner"]
    assert recorded.stack(1_000_003)[-1] == "Inner@inner"
    assert recorded.stack(1_000_004) == ["<module>@call", "wrapper@wrapper", "method@method"]
    assert recorded.stack(1_000_005) == ["<module>@value", "value@property"]
    assert recorded.stack(1_000_006) == ["<module>@static", "static@lambda", "<lambda>@lambda"]


def test_import_is_recorded_with_the_frames_of_the_importer(record: Callable[..., Recording], tmp_path: Path) -> None:
    (tmp_path / "imported_by_test.py").write_text("def use(n):\n    return bytes(n)\n\nuse(1_000_001)\n")
    recorded = record("""
        def work():
            import imported_by_test  # @import
            imported_by_test.use(1_000_002)  # @use

        work()  # @call
    """)
    stack = recorded.stack(1_000_001)
    assert stack[:2] == ["<module>@call", "work@import"]
    assert stack[-2:] == ["<module>:imported_by_test.py:4", "use:imported_by_test.py:2"]
    assert stack[2].startswith("_find_and_load:")
    assert recorded.stack(1_000_002) == ["<module>@call", "work@use", "use:imported_by_test.py:2"]
