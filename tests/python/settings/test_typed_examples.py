"""Tests that type checkers accept every Python example of the README and the docs, and see the types in them.

Each example becomes a module, with earlier examples of its page that define names it uses. Names that are left to the
reader, such as `work`, become variables of type `Any`. Whole programs, which begin with a comment such as `# job.py`,
represent the reader's own code and need no annotations.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.commands import REPOSITORY

pytestmark = pytest.mark.once

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
# The first words of an indented block that is Python.
PYTHON = ("import ", "from ", "with ", "@", "heaptide.", "app", "def ", "tracer")

# A module that mypy also checks: decorated functions keep their signatures, and Heaptide's modules and classes have types.
USES = """
from collections.abc import AsyncIterator, Iterator

import heaptide

tracer = heaptide.leaks.JobTracer()


@heaptide.profile
def by_line(number: int) -> str:
    return str(number)


@heaptide.profile(precision=2, columns=["peak"])
def by_line_with_options(number: int) -> str:
    return str(number)


@heaptide.profile_memory
def recorded(number: int) -> str:
    return str(number)


@heaptide.profile_memory(reporter="table")
async def recorded_later(number: int) -> str:
    return str(number)


@heaptide.job("name")
def each(number: int) -> Iterator[str]:
    yield str(number)


@tracer.traced
def traced(number: int) -> str:
    return str(number)


@tracer.job("name")
async def traced_steps(number: int) -> AsyncIterator[str]:
    yield str(number)


@heaptide.component("name")
def part(number: int) -> str:
    return str(number)


reveal_type(by_line)
reveal_type(by_line_with_options)
reveal_type(recorded)
reveal_type(recorded_later)
reveal_type(each)
reveal_type(traced)
reveal_type(traced_steps)
reveal_type(part)
reveal_type(heaptide.asgi.app)
reveal_type(heaptide.wsgi.app)
reveal_type(heaptide.control.start("7001").address)
reveal_type(heaptide.heap().count)
"""

REVEALED = [
    *["def (number: int) -> str"] * 3,
    "def (number: int) -> typing.Coroutine[Any, Any, str]",
    "def (number: int) -> typing.Iterator[str]",
    "def (number: int) -> str",
    "def (number: int) -> typing.AsyncIterator[str]",
    "def (number: int) -> str",
    "heaptide.asgi.App",
    "heaptide.wsgi.App",
    "str | None",
    "int",
]


def blocks(page: Path) -> list[str]:
    """Return the Python examples of a page: fenced and indented ones."""
    text = page.read_text()
    found = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    without_fences = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    indented = re.findall(r"(?:^\n)((?:^    .*\n|^\n)+)", without_fences, re.MULTILINE)
    found += [block for block in map(textwrap.dedent, indented) if block.strip().startswith(PYTHON)]
    return [_statements(block) for block in found if re.match(r"# [\w./]+\.py\b", block) is None]


def _statements(block: str) -> str:
    """Return the code of an interactive session, or the block as it is."""
    prompts = re.findall(r"^(?:>>>|\.\.\.) ?(.*)$", block, re.MULTILINE)
    return "\n".join(prompts) if ">>>" in block else block


def bound_names(tree: ast.Module) -> set[str]:
    """Return the names that an example defines."""
    bound = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    bound |= {alias.asname or alias.name.partition(".")[0] for node in imports for alias in node.names}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return bound | {node.id for node in names if isinstance(node.ctx, ast.Store)}


def free_names(tree: ast.Module) -> set[str]:
    """Return the names that an example uses and does not define."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    used = {node.id for node in names if isinstance(node.ctx, ast.Load)}
    return used - bound_names(tree) - set(dir(builtins)) - {"heaptide"}


def module_of(example: str, earlier: list[str]) -> str:
    """Return an example as a module."""
    wanted = free_names(ast.parse(example))
    text = "\n".join([each for each in earlier if wanted & bound_names(ast.parse(each))] + [example])
    head = [f"{name}: Any = ..." for name in sorted(free_names(ast.parse(text)))]
    return "\n".join(["from typing import Any", "import heaptide", *head, text])


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one module for each example."""
    folder = tmp_path_factory.mktemp("examples")
    for page in PAGES:
        name = re.sub(r"\W", "_", str(page.relative_to(REPOSITORY).with_suffix("")))
        found = blocks(page)
        for number, example in enumerate(found):
            (folder / f"{name}_{number}.py").write_text(module_of(example, found[:number]))
    assert len(list(folder.iterdir())) >= 15
    (folder / "uses.py").write_text(USES)
    return folder


def test_mypy_accepts_every_example_and_decorators_keep_signatures(examples: Path) -> None:
    # Packages that the examples import may be missing; functions that they decorate then have no type.
    lenient = ["--ignore-missing-imports", "--allow-untyped-decorators"]
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, *lenient, "."]
    done = subprocess.run(command, cwd=examples, capture_output=True, text=True)
    revealed = re.findall(r'Revealed type is "(.*)"', done.stdout)
    # A revealed type may contain the function's name. Only the rest is compared.
    assert [re.sub(r"def \w+\(", "def (", each) for each in revealed] == REVEALED, done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if ": error:" in line] == []


def test_pyright_accepts_every_example(examples: Path) -> None:
    (examples / "pyrightconfig.json").write_text(
        json.dumps({"typeCheckingMode": "standard", "reportMissingImports": False, "reportUnusedExpression": False})
    )
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "."]
    done = subprocess.run(command, cwd=examples, capture_output=True, text=True)
    errors = [each for each in json.loads(done.stdout)["generalDiagnostics"] if each["severity"] == "error"]
    assert [(Path(each["file"]).name, each["message"]) for each in errors] == []
