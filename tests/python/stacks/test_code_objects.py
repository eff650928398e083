"""Tests that names and lines are right when code objects are created, freed, replaced and created again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.call_stacks import Recording


def innermost(recorded: Recording, n: int) -> tuple[str, str, int]:
    """Return name, file and line of the innermost call of the only `bytes(n)`."""
    [allocation] = recorded.of(n)
    call = allocation.stack[-1]
    return call.name, call.file, call.line


def test_thousands_of_functions_reusing_one_address_are_distinguished(
    record: Callable[..., Recording],
) -> None:
    recorded = record("""
        import gc

        addresses = set()

        def run(number):
            # Always the same length, so that the next code object can reuse the address.
            name = f"f{number:06}"
            text = "\\n" * (number % 97) + f"def {name}(n):\\n    return bytes(n)\\n"
            namespace = {}
            exec(compile(text, f"file{number % 7}", "exec"), namespace)
            addresses.add(id(namespace[name].__code__))
            namespace[name](1_000_000 + number)
            namespace.clear()

        for number in range(5_000):
            run(number)
            if number % 1_000 == 0:
                gc.collect()
        print(len(addresses))
    """)
    assert int(recorded.stdout) < 500, "few addresses were reused, so the test proves nothing"
    for number in range(5_000):
        expected = (f"f{number:06}", f"file{number % 7}", number % 97 + 2)
        assert innermost(recorded, 1_000_000 + number) == expected


def test_code_freed_while_other_threads_run_new_code_is_never_confused(
    record: Callable[..., Recording],
) -> None:
    recorded = record("""
        import sys
        import threading

        def run(thread):
            for number in range(1_000):
                name = f"f{thread}_{number:06}"
                namespace = {}
                exec(f"def {name}(n):\\n    return bytes(n)\\n", namespace)
                namespace[name](1_000_000 * (thread + 1) + number)

        sys.setswitchinterval(0.00005)
        threads = [threading.Thread(target=run, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        bytes(9_000_000)
    """)
    wrong = [
        (thread, number, recorded.of(1_000_000 * (thread + 1) + number))
        for thread in range(4)
        for number in range(1_000)
        if [one.stack[-1].name for one in recorded.of(1_000_000 * (thread + 1) + number)] != [f"f{thread}_{number:06}"]
    ]
    assert wrong == []


def test_function_with_replaced_code_has_the_name_of_the_code_that_ran(record: Callable[..., Recording]) -> None:
    recorded = record("""
        def one(n):
            return bytes(n)  # @one

        def other(n):
            return bytes(n)  # @other

        def call(n):
            return one(n)  # @call

        call(1_000_001)  # @before
        one.__code__ = other.__code__
        call(1_000_002)  # @after
        one.__code__ = one.__code__.replace(co_name="renamed", co_firstlineno=one.__code__.co_firstlineno + 1000)
        call(1_000_003)  # @renamed
    """)
    assert recorded.stack(1_000_001) == ["<module>@before", "call@call", "one@one"]
    assert recorded.stack(1_000_002) == ["<module>@after", "call@call", "other@other"]
    name, file, line = innermost(recorded, 1_000_003)
    other = recorded.of(1_000_002)[0].stack[-1]
    assert (name, file, line) == ("renamed", other.file, other.line + 1000)


def test_edited_and_reloaded_module_has_its_new_lines(record: Callable[..., Recording], tmp_path: Path) -> None:
    recorded = record("""
        import importlib
        import os
        import pathlib
        import sys

        sys.dont_write_bytecode = True
        path = pathlib.Path(__file__).with_name("edited.py")
        path.write_text("def first(n):\\n    return bytes(n)\\n")
        import edited

        edited.first(1_000_001)  # @first
        for number in range(20):
            path.write_text("\\n" * number + "def first(n):\\n    return bytes(n)\\n")
            importlib.reload(edited)
            edited.first(1_000_010 + number)  # @again
        path.write_text("def second(n):\\n    return bytes(n)\\nfirst = second\\n")
        importlib.reload(edited)
        edited.first(1_000_002)  # @second
    """)
    file = str(tmp_path / "edited.py")
    assert innermost(recorded, 1_000_001) == ("first", file, 2)
    for number in range(20):
        assert innermost(recorded, 1_000_010 + number) == ("first", file, number + 2)
    assert innermost(recorded, 1_000_002) == ("second", file, 2)


LONG = "/a folder/" + "x" * 3000 + ".py"


@pytest.mark.parametrize(
    "file",
    ["<generated>", "größe/данные/数据/🌊.py", LONG, "C:\\odd:name:12", "", "a space = a sign.py", "\udce9.py"],
    ids=["plain", "other alphabets", "long", "colons", "empty", "spaces", "not utf-8"],
)
def test_compiled_text_keeps_its_file_name(record: Callable[..., Recording], file: str) -> None:
    recorded = record(f"""
        name = {file!a}
        exec(compile("\\n\\nbytes(1_000_001)", name, "exec"))  # @exec
        eval(compile("(\\nbytes(1_000_002))", name, "eval"))  # @eval
        exec(compile("def größe_данные(n):\\n  bytes(n)\\ngröße_данные(1_000_003)", name, "exec"))  # @def
    """)
    shown = file.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if shown != file:
        # Characters that cannot be encoded are replaced; the rest of the name stays.
        assert innermost(recorded, 1_000_001)[1].endswith(".py")
        shown = innermost(recorded, 1_000_001)[1]
    assert innermost(recorded, 1_000_001) == ("<module>", shown, 3)
    assert innermost(recorded, 1_000_002) == ("<module>", shown, 2)
    assert innermost(recorded, 1_000_003) == ("größe_данные", shown, 2)
    [allocation] = recorded.of(1_000_003)
    assert recorded.describe(allocation.stack[0]) == "<module>@def"
    assert [(call.name, call.line) for call in allocation.stack[1:]] == [("<module>", 3), ("größe_данные", 2)]


def test_newline_in_a_file_name_does_not_break_the_output_of_parse(record: Callable[..., Recording]) -> None:
    recorded = record("""
        exec(compile("bytes(1_000_001)", "one\\nFRAME_POP count=9\\rtwo", "exec"))
    """)
    words = {line.partition(" ")[0] for line in recorded.lines}
    assert words <= {
        *("HEADER", "OWN_MEMORY", "MEMORY_LIMIT", "THREAD", "CODE_OBJECT", "CONTEXT_SWITCH", "FRAME_PUSH", "FRAME_POP"),
        *("ALLOCATION", "FREE", "FREE_RANGE", "MEMORY_RECORD", "MEMORY_PART", "TRAILER"),
    }
    assert "FRAME_POP count=9" not in recorded.lines
    assert len(recorded.of(1_000_001)) == 1


def test_very_long_function_has_exact_lines(record: Callable[..., Recording]) -> None:
    text = "def long():\n"
    lines = {}
    for n in range(1_000_000, 1_003_000):
        lines[n] = text.count("\n") + 1
        text += f"    bytes({n})\n" + "\n" * (n % 5)
    recorded = record(text + "long()\n")
    found = {n: innermost(recorded, n)[2] for n in lines}
    assert found == lines


def test_lines_far_apart_and_far_down_are_exact(record: Callable[..., Recording]) -> None:
    recorded = record(r"""
        gap = "\n" * 70_000
        text = f"bytes(1_000_001)\n{gap}bytes(1_000_002)\ndef f():\n bytes(1_000_003);{gap}\n bytes(1_000_004)\nf()"
        exec(compile(text, "sparse", "exec"))
    """)
    assert [innermost(recorded, 1_000_000 + n)[2] for n in (1, 2, 3, 4)] == [1, 70_002, 70_004, 140_005]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code objects have qualified names from 3.11 on")
def test_qualified_names_contain_the_enclosing_scopes(record: Callable[..., Recording]) -> None:
    recorded = record("""
        class Outer:
            class Inner:
                def method(self):
                    def nested():
                        return (lambda: bytes(1_000_001))()
                    return nested()

        def function():
            return list(bytes(n) for n in (1_000_002,))

        Outer.Inner().method()
        function()
    """)
    method = "Outer.Inner.method"
    names = ["<module>", method, f"{method}.<locals>.nested", f"{method}.<locals>.nested.<locals>.<lambda>"]
    assert recorded.qualified_names(1_000_001) == names
    assert recorded.qualified_names(1_000_002) == ["<module>", "function", "function.<locals>.<genexpr>"]
