"""Runs the console blocks of the README and all documentation pages, and compares the shape of their output.

All blocks of a page run in order, in one shell, in an empty folder. `support/console_setups.py` adds the programs and
files that a page requires. Commands that start with `make` are left out, because they build and test the project
itself. With `HEAPTIDE_TEST_WRITE_DOCS=1` a test does not fail but writes the real output into the page, unless the page
shows an output in part.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from support.commands import REPOSITORY
from support.console_pages import Block, SavedFile, Step, has_shape, read_blocks, read_files, shape
from support.console_session import ConsoleSession, Output
from support.console_setups import SETUPS

pytestmark = pytest.mark.once

PAGES = {
    str(path.relative_to(REPOSITORY)): path
    for path in sorted([REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")])
}
BLOCKS = {page: blocks for page, path in PAGES.items() if (blocks := read_blocks(path, page))}
RUN = {page: [block for block in blocks if block.reason is None] for page, blocks in BLOCKS.items()}

# Number of blocks that are not run, by reason. Most commands can run in a test, so add one only for a good reason.
NOT_RUN = {
    "needs a terminal": 1,
    "needs root and a container": 1,
    "needs a processor other than x86-64": 1,
    "needs an MPI launcher": 1,
    "needs a second host": 2,
    "needs MongoDB and Redis": 1,
}


@pytest.mark.parametrize("page", [page for page, blocks in RUN.items() if blocks])
def test_console_blocks_of_a_page_run_and_print_what_the_page_shows(page: str, tmp_path: Path) -> None:
    session = ConsoleSession(tmp_path, SETUPS.get(page, ""))
    try:
        for part in sorted([*read_files(PAGES[page]), *RUN[page]], key=lambda part: part.line):
            if isinstance(part, SavedFile):
                (tmp_path / part.name).write_text(part.content)
                continue
            for step in part.steps:
                if not step.command.startswith("make "):
                    check(page, step, session.run(step))
    finally:
        session.close()


def check(page: str, step: Step, output: Output) -> None:
    """Fail if a command failed or printed something else than the page shows."""
    at = f"{page}:{step.line}: {step.command}"
    assert output.status == 0, f"{at}\nexit code {output.status}:\n{output.text}"
    if not step.output or has_shape(step.output, output.lines):
        return
    if os.environ.get("HEAPTIDE_TEST_WRITE_DOCS") and "…" not in "".join(step.output):
        rewrite(PAGES[page], step, output.lines)
        return
    shapes = ["\n".join(map(shape, lines)) for lines in (step.output, output.lines)]
    pytest.fail(f"{at}\n--- the page shows\n{shapes[0]}\n--- the command printed\n{shapes[1]}\n{output.text}")


def rewrite(path: Path, step: Step, lines: list[str]) -> None:
    """Replace the output of a command in its page."""
    old = "\n".join([f"$ {step.command}", *step.output])
    assert path.read_text().count(old) == 1, f"{path}: the output of {step.command} is not unique"
    path.write_text(path.read_text().replace(old, "\n".join([f"$ {step.command}", *lines])))


def test_blocks_that_are_not_run_state_one_of_the_known_reasons() -> None:
    reasons = Counter(block.reason for blocks in BLOCKS.values() for block in blocks if block.reason)
    assert reasons == NOT_RUN


def test_pages_with_a_setup_have_blocks_to_run() -> None:
    assert sorted(page for page in SETUPS if not RUN.get(page)) == []


def test_commands_are_in_console_blocks() -> None:
    """An indented command would never be run."""
    indented = [
        f"{page}:{number}"
        for page, path in PAGES.items()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.startswith("    $ ")
    ]
    assert indented == []


@pytest.mark.parametrize(
    ("shown", "actual", "expected"),
    [
        (["peak 24.002MB, 74 %"], ["peak 1.5 kB, 3%"], True),
        (["process 4711 took 38.2 ms"], ["process 12 took 4 s"], True),
        (["recorded into /srv/a.tide"], ["recorded into /tmp/x/b.tide"], True),
        (["Wrote report.html"], ["Wrote other.html"], False),
        (["first", "…", "last"], ["first", "second", "third", "last"], True),
        (["first", "…", "last"], ["first", "second"], False),
        (["- perform:…/job.py:7 -> 24 MB"], ["- perform:/tmp/x/job.py:7 -> 24 MB"], True),
        (["one line"], ["one line", "another line"], False),
    ],
)
def test_shapes_ignore_numbers_and_paths_only(shown: list[str], actual: list[str], expected: bool) -> None:
    assert has_shape(shown, actual) == expected


def test_a_python_block_with_a_file_name_is_saved(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python\n# job.py\nwork()\n```\n\n```python\nother()\n```\n")
    assert read_files(page) == [SavedFile(3, "job.py", "# job.py\nwork()\n")]


def test_a_comment_above_a_block_keeps_it_from_being_run(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- not run: needs a browser -->\n\n```console\n$ a \\\n  b\nout\n```\n\n```console\n$ c\n```\n")
    first, second = read_blocks(page, "page.md")
    assert first == Block("page.md", 3, "needs a browser", [Step("a \\\n  b", 4, ["out"])])
    assert second == Block("page.md", 9, None, [Step("c", 10)])
