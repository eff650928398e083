"""Reads the console blocks of Markdown pages, and compares the shape of an output with the one on the page.

A console block is a fence of the language `console`: lines that start with `$ ` are commands, the others are their
output. A comment `<!-- not run: REASON -->` above a block keeps it from being run. A Python block that starts with a
comment `# NAME.py` is a file that the reader saves.

The shape of an output is its text without the parts that differ from run to run: numbers, sizes, times, paths and bars.
In a shown output, `…` means any text, and a line `…` any lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

NOT_RUN = re.compile(r"<!-- not run: (.+?) -->")
_SAVED_FILE = re.compile(r"^```python\n(# (\w+\.py)\n.*?)^```$", re.M | re.S)

# Texts that may differ between two runs, and their replacements. Sizes come before numbers, which are a part of them.
_MASKS = (
    (re.compile(r"(?<![\w.…])/[^\s:;,'\")]*"), "<path>"),
    (re.compile(r"0x[0-9a-f]+"), "<number>"),
    (re.compile(r"[-+]?\d[\d,.]* ?[kMGT]?i?B\b"), "<size>"),
    (re.compile(r"\d[\d,.]* ?%"), "<percent>"),
    (re.compile(r"\d[\d,.]* ?(?:µs|ms|s|m|h)\b"), "<time>"),
    (re.compile(r"[-+]?\d(?:[\d,.]*\d)?"), "<number>"),
    (re.compile(r"[─━═┄=▁-▓⠀-⣿•]+"), "<bar>"),
    (re.compile(r"\s+"), " "),
)


@dataclass
class Step:
    """One command of a block and the output that the page shows; `line` is the number of its first line."""

    command: str
    line: int
    output: list[str] = field(default_factory=list)


@dataclass
class Block:
    """A console block: its steps, and the reason why it cannot be run, if the page gives one."""

    page: str
    line: int
    reason: str | None = None
    steps: list[Step] = field(default_factory=list)


def read_blocks(path: Path, name: str) -> list[Block]:
    """Return the console blocks of a page."""
    blocks: list[Block] = []
    inside = False
    above = ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("```"):
            inside = line == "```console" and not inside
            if inside:
                not_run = NOT_RUN.fullmatch(above)
                blocks.append(Block(name, number, not_run[1] if not_run else None))
        elif inside:
            _add_line(blocks[-1], number, line)
        if line:
            above = line
    return blocks


def _add_line(block: Block, number: int, line: str) -> None:
    """Add a line to a block: a command, the rest of a command, or output."""
    if line.startswith("$ "):
        block.steps.append(Step(line[2:], number))
        return
    assert block.steps, f"{block.page}:{number}: output before the first command"
    step = block.steps[-1]
    if step.command.endswith("\\") and not step.output:
        step.command += "\n" + line
    else:
        step.output.append(line)


@dataclass
class SavedFile:
    """A file that the reader saves at this point of the page."""

    line: int
    name: str
    content: str


def read_files(path: Path) -> list[SavedFile]:
    """Return the files that a reader of the page saves."""
    text = path.read_text()
    return [SavedFile(text.count("\n", 0, at.start()) + 1, at[2], at[1]) for at in _SAVED_FILE.finditer(text)]


def shape(line: str) -> str:
    """Return a line without numbers, sizes, times, paths and bars."""
    for pattern, name in _MASKS:
        line = pattern.sub(name, line)
    return line.strip()


def has_shape(shown: Sequence[str], actual: Sequence[str]) -> bool:
    """Return whether an output has the shape of the shown one."""
    pattern = ""
    for line in shown:
        if line.strip() == "…":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*".join(re.escape(shape(part)).replace(r"\ ", " *") for part in line.split("…")) + r" *\n"
    text = "".join(shape(line) + "\n" for line in actual)
    return re.fullmatch(pattern, text) is not None
