"""Runs report commands on a capture and reads their output: the only source of numbers for the reader."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from heaptide import command_process
from heaptide.compat.memray.records import Frame, Trace

# One field of the table and the character after it. The `csv` module refuses fields of more than 128 KiB, which a deep
# stack exceeds, and its limit is a setting of the whole process, which belongs to the program.
FIELD = re.compile(r'(?:"((?:[^"]+|"")*)"|([^",\n]*))(,|\n|\Z)')


def output(*words: str) -> str:
    """Return the output of the heaptide command; its message becomes memray's exception for a bad file."""
    done = command_process.run(*words)
    if done.returncode != 0:
        message = (done.stderr.splitlines() or ["the capture cannot be read"])[-1]
        raise OSError(message.removeprefix("heaptide: "))
    return done.stdout


def rows(table: str) -> Iterator[dict[str, str]]:
    """Return the rows of a table of comma-separated values, by column name."""
    names: list[str] = []
    row: list[str] = []
    for match in FIELD.finditer(table):
        quoted, plain, end = match.groups()
        row.append(plain if quoted is None else quoted.replace('""', '"'))
        if end == ",":
            continue
        if not names:
            names = row
        elif len(row) == len(names):
            yield dict(zip(names, row, strict=True))
        row = []


class StackNumbers:
    """Gives the same number to the same stack, in all records of a reader. A stack is the text of its frames."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}

    def trace(self, text: str, kinds: str) -> Trace:
        """Return the stack with this text: innermost first, ``function;file;line`` joined by ``|``."""
        number = self._numbers.setdefault(text, len(self._numbers))
        return Trace(number, lambda: _frames(text, kinds))


def _frames(text: str, kinds: str) -> tuple[list[Frame], str]:
    frames = [_frame(part) for part in text.split("|") if part]
    return frames, kinds or "p" * len(frames)


def _frame(text: str) -> Frame:
    function, _, rest = text.partition(";")
    file, _, line = rest.rpartition(";")
    return function, file, int(line or 0)


class EventList:
    """The lines of ``heaptide transform events``: stacks and threads, then events in order."""

    def __init__(self, path: str, numbers: StackNumbers) -> None:
        self._path = path
        self._numbers = numbers
        self._frames: list[Frame] = []
        self._kinds: list[str] = []
        self._nodes: list[tuple[int, int]] = []
        self._traces: dict[int, Trace] = {}
        # By the number of a thread in events: its ID and its name.
        self.threads: dict[str, tuple[int, str]] = {}

    def __iter__(self) -> Iterator[list[str]]:
        """Return the fields of each event."""
        self._frames, self._kinds, self._nodes, self._traces = [], [], [], {}
        for line in self._lines():
            fields = line.rstrip("\n").split("\t")
            kind = fields[0]
            if kind == "line":
                self._frames.append((fields[1], fields[2], int(fields[3])))
                self._kinds.append(fields[4])
            elif kind == "stack":
                self._nodes.append((-1 if fields[1] == "-" else int(fields[1]), int(fields[2])))
            elif kind == "thread":
                self.threads[fields[1]] = int(fields[2]), fields[3]
            else:
                yield fields

    def _lines(self) -> Iterator[str]:
        import subprocess

        words = [*command_process.command(), "transform", "events", "-o", "-", "--", self._path]
        with subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            errors="replace",
            env=command_process.environment(),
        ) as process:
            try:
                assert process.stdout is not None
                yield from process.stdout
            finally:
                process.kill()  # if the caller stopped early; it has ended otherwise

    def trace(self, field: str) -> Trace:
        """Return the stack of an event."""
        if field == "-":
            return self._numbers.trace("", "")
        node = int(field)
        if node not in self._traces:
            frames, _ = self._resolve(node)
            text = "|".join(f"{function};{file};{line}" for function, file, line in frames)
            number = self._numbers.trace(text, "").stack_id
            self._traces[node] = Trace(number, lambda: self._resolve(node))
        return self._traces[node]

    def _resolve(self, node: int) -> tuple[list[Frame], str]:
        frames: list[Frame] = []
        kinds: list[str] = []
        while node >= 0:
            node, line = self._nodes[node]
            frames.append(self._frames[line])
            kinds.append(self._kinds[line])
        return frames, "".join(kinds)


def series(readings: dict[str, Any]) -> list[tuple[int, int]]:
    """Return times in nanoseconds and sizes of a series in the JSON export."""
    return list(zip(readings["elapsed_ns"], readings["bytes"], strict=True))
