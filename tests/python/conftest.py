"""Fixtures of all Python tests: run a program under Heaptide, read its capture, compile a C program.

Tests drive the installed wheel from outside, in separate processes, as a user would. The interpreter that runs pytest
is never profiled itself.
"""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.commands import PROGRAMS, Finished, compile_library, heaptide
from support.controlled_program import Job, obedient
from support.hermetic import become_hermetic

become_hermetic()


@pytest.fixture
def heaptide_run(tmp_path: Path) -> Callable[..., Finished]:
    """Run a program, given as text or as a path, under `heaptide run` with further options.

    `args` go to the program, `env` is added to the environment. With `check` (the default) a program that does not end
    with 0 fails the test. Each call in a test has a capture of its own.
    """
    count = 0

    def run(
        program: str | Path,
        *options: str,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> Finished:
        nonlocal count
        count += 1
        if isinstance(program, str):
            script = tmp_path / f"program{count}.py"
            script.write_text(textwrap.dedent(program))
        else:
            script = program
        capture = tmp_path / f"program{count}.tide"
        done = heaptide(
            *("run", "-q", "-f", "-o", capture, *options, script, *args),
            check=check,
            cwd=tmp_path,
            env={**os.environ, **(env or {})},
        )
        return Finished(done.returncode, done.stdout, done.stderr, capture)

    return run


@pytest.fixture
def stats() -> Callable[..., dict[str, Any]]:
    """Read a capture's statistics, as `heaptide stats --json` gives them."""

    def read(capture: Path, *options: str) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(heaptide("stats", "--json", *options, capture).stdout)
        return result

    return read


@pytest.fixture
def parse() -> Callable[[Path], list[str]]:
    """Read every record of a capture, as the lines of `heaptide parse`."""
    return lambda capture: heaptide("parse", capture).stdout.splitlines()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A job that does what it is told, with its doors open."""
    job = obedient(tmp_path)
    yield job
    job.stop()


@pytest.fixture(scope="session")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compile tests/programs/<name>.c once and return the library's path; further arguments go to the compiler.

    A source that includes Python.h becomes an importable module: put the folder of the result on `sys.path`. Any other
    becomes a plain shared library for ctypes. Without a compiler, or without headers where they are needed, the test is
    skipped.
    """
    built: dict[tuple[str, ...], Path] = {}

    def build(name: str, *flags: str) -> Path:
        key = (name, *flags)
        if key not in built:
            built[key] = compile_library(PROGRAMS / f"{name}.c", tmp_path_factory.mktemp(name), flags)
        return built[key]

    return build
