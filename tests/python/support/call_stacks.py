"""Rebuilds the call stack of every allocation from the lines of `heaptide parse`, in a form that tests can compare.

A program under test allocates with `bytes(n)`. In all supported versions this asks the C library for `n` bytes and a
fixed header, so one `n` identifies one allocation. A line that ends with `# @word` appears in stacks as `@word`, any
other line by its number: `["<module>@start", "load@read"]` is a whole stack, outermost call first.
"""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

CODE_OBJECT = re.compile(
    r"CODE_OBJECT code_id=(\d+) function_name=(.*) qualified_name=(.*) filename=(.*)"
    r" firstlineno=-?\d+ linetable_size=\d+"
)
FRAME_PUSH = re.compile(r"FRAME_PUSH code_object_id=(\d+) instruction_offset=(?:\d+|start) location=(.*)")
ALLOCATION = re.compile(r"ALLOCATION time=\S+ thread=(\d+) address=\S+ size=(\d+) allocator=(\S+)")
MARK = re.compile(r"# (@\S+)$")


class Call(NamedTuple):
    """One frame of a call stack."""

    name: str
    qualified_name: str
    file: str
    line: int


class Allocation(NamedTuple):
    """One allocation and its call stack, outermost call first."""

    size: int
    allocator: str
    thread: int
    stack: tuple[Call, ...]


def read_allocations(lines: Iterable[str], at_least: int = 1_000_000) -> Iterator[Allocation]:
    """Rebuild the stacks of allocations of at least `at_least` bytes from the lines of `heaptide parse`."""
    codes: dict[str, tuple[str, str, str]] = {}
    stacks: dict[str, list[Call]] = {}
    stack: list[Call] = []
    for line in lines:
        if match := ALLOCATION.fullmatch(line):
            assert stacks[match[1]] is stack, f"an event of thread {match[1]} without a switch to it"
            if int(match[2]) >= at_least:
                yield Allocation(int(match[2]), match[3], int(match[1]), tuple(stack))
        elif match := FRAME_PUSH.fullmatch(line):
            name, qualified_name, file = codes[match[1]]
            location, _, number = match[2].rpartition(":")
            assert location == f"{name}:{file}"
            stack.append(Call(name, qualified_name, file, int(number)))
        elif line.startswith("FRAME_POP count="):
            count = int(line.removeprefix("FRAME_POP count="))
            assert count <= len(stack)
            del stack[len(stack) - count :]
        elif line.startswith("CONTEXT_SWITCH thread="):
            stack = stacks.setdefault(line.removeprefix("CONTEXT_SWITCH thread="), [])
        elif match := CODE_OBJECT.fullmatch(line):
            codes[match[1]] = (match[2], match[3], match[4])


@dataclass(frozen=True)
class Recording:
    """The recorded allocations of a program, found by their sizes."""

    script: Path
    stdout: str
    lines: list[str]
    allocations: list[Allocation]

    def of(self, n: int) -> list[Allocation]:
        """Return all allocations made by `bytes(n)`, in order."""
        candidates = self.by_size.get(n + bytes.__basicsize__, [])
        return [allocation for allocation in candidates if allocation.allocator.endswith("calloc")]

    @functools.cached_property
    def by_size(self) -> dict[int, list[Allocation]]:
        """The allocations by size, in order."""
        result: dict[int, list[Allocation]] = {}
        for allocation in self.allocations:
            result.setdefault(allocation.size, []).append(allocation)
        return result

    def stack(self, n: int) -> list[str]:
        """Return the whole stack of the only `bytes(n)`."""
        [allocation] = self.of(n)
        return [self.describe(call) for call in allocation.stack]

    def stacks(self, n: int) -> list[list[str]]:
        """Return the whole stack of each `bytes(n)`, in order."""
        return [[self.describe(call) for call in allocation.stack] for allocation in self.of(n)]

    def script_stack(self, n: int) -> list[str]:
        """Return the frames of the only `bytes(n)` that lie in the script, without those of libraries."""
        [allocation] = self.of(n)
        return [self.describe(call) for call in allocation.stack if call.file == str(self.script)]

    def qualified_names(self, n: int) -> list[str]:
        """Return the qualified names in the stack of the only `bytes(n)`."""
        [allocation] = self.of(n)
        return [call.qualified_name for call in allocation.stack]

    def describe(self, call: Call) -> str:
        """Describe a call by its name and its mark or line; calls outside the script also by file name."""
        if call.file != str(self.script):
            return f"{call.name}:{Path(call.file).name}:{call.line}"
        line = self.script.read_text(encoding="utf-8").splitlines()[call.line - 1]
        mark = MARK.search(line)
        return call.name + (mark[1] if mark else f":{call.line}")


def recorder(
    heaptide_run: Callable[..., Any], parse: Callable[[Path], list[str]], folder: Path
) -> Callable[..., Recording]:
    """Return a function that records a program, given as text or path, and reads its capture."""
    count = 0

    def record(program: str | Path, *options: str, at_least: int = 1_000_000, **more: Any) -> Recording:
        nonlocal count
        count += 1
        script = folder / f"recorded{count}.py" if isinstance(program, str) else program
        if isinstance(program, str):
            script.write_text(textwrap.dedent(program), encoding="utf-8")
        done = heaptide_run(script, *options, **more)
        lines = parse(done.capture)
        return Recording(script, done.stdout, lines, list(read_allocations(lines, at_least)))

    return record
