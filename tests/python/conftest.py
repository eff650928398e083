"""Fixtures of all Python tests: run a program under Heaptide, read its capture, compile a C program.

Tests drive the installed wheel from outside, in separate processes, as a user would. The interpreter that runs pytest
is never profiled itself.
"""

from __future__ import annotations

import json
import os
import resource
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.commands import PROGRAMS, Finished, compile_library, heaptide
from support.controlled_program import ControlledProgram, start_program
from support.hermetic import become_hermetic

become_hermetic()


@pytest.fixture
def heaptide_run(tmp_path: Path) -> Callable[..., Finished]:
    """Run a program, given as text or as a path, under `heaptide run` with further options.

    `args` go to the program, `env` is added to the environment. With `check` (the default) a program that does not end
    with 0 fails the test. Each call within a test writes a separate capture.
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
    """Read a capture's statistics with `heaptide stats --json`."""

    def read(capture: Path, *options: str) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(heaptide("stats", "--json", *options, capture).stdout)
        return result

    return read


@pytest.fixture
def parse() -> Callable[[Path], list[str]]:
    """Read every record of a capture as the lines of `heaptide parse`."""
    return lambda capture: heaptide("parse", capture).stdout.splitlines()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[ControlledProgram]:
    """A program that evaluates its input and serves the control API."""
    program = start_program(tmp_path)
    yield program
    program.stop()


@pytest.fixture
def many_open_files() -> Iterator[None]:
    """Allow this process to open more than ten thousand files; without that right, the test is skipped."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 11_000
    if 0 <= hard < needed:
        pytest.skip("too few open files are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="session")
def extension(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compile tests/programs/<name>.c once and return the path of the library.

    The name includes the folder: `hooks/import_slots`. Further arguments go to the compiler. A source that includes
    Python.h becomes an importable module: put the folder of the result on `sys.path`. Any other source becomes a plain
    shared library for ctypes. Without a compiler, or without the headers it needs, the test is skipped.
    """
    built: dict[tuple[str, ...], Path] = {}

    def build(name: str, *flags: str) -> Path:
        key = (name, *flags)
        if key not in built:
            built[key] = compile_library(PROGRAMS / f"{name}.c", tmp_path_factory.mktemp(Path(name).name), flags)
        return built[key]

    return build
