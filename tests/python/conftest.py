"""What every Python test may ask for: to run a program under Heaptide, to read its capture, to compile a C program.

Tests drive the installed wheel from outside, in processes of their own, as a user would: the interpreter that runs
pytest is never profiled itself.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hermetic import become_hermetic
from jobs import Job, obedient

become_hermetic()

PROGRAMS = Path(__file__).resolve().parent.parent / "programs"


@dataclass(frozen=True)
class Finished:
    """A program that has ended, and the capture it left."""

    returncode: int
    stdout: str
    stderr: str
    capture: Path


def heaptide(*arguments: str | Path, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the heaptide command of the interpreter under test; a failure shows what it said."""
    command = [sys.executable, "-m", "heaptide", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if check and done.returncode != 0:
        pytest.fail(f"{command} ended with {done.returncode}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}")
    return done


def session_id(capture: Path) -> bytes:
    """The field of the header that all captures of a session share: tag 1, 16 bytes, right behind the prefix."""
    start = capture.read_bytes()[24:42]
    assert start[:2] == b"\x01\x10"
    return start[2:]


def python(*arguments: str | Path, cwd: Path, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the interpreter under test in a folder, with `env` added to the environment."""
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env={**os.environ, **env})
    if check and done.returncode != 0:
        pytest.fail(f"{command} ended with {done.returncode}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}")
    return done


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


def compile_library(source: Path, folder: Path, flags: Sequence[str]) -> Path:
    """One C source to one shared library, for the interpreter that runs the tests."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: install gcc to run this test")
    include = Path(sysconfig.get_path("include"))
    needs_python = "Python.h" in source.read_text()
    if needs_python and not (include / "Python.h").exists():
        pytest.skip(f"no Python.h for {sys.executable}: install its development headers to run this test")
    library = folder / (source.stem + (sysconfig.get_config_var("EXT_SUFFIX") if needs_python else ".so"))
    command = [compiler, "-shared", "-fPIC", "-O1", "-g", "-fno-builtin", "-Wall", "-Werror"]
    command += [f"-I{include}", str(source), "-o", str(library), "-pthread", "-ldl", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{source.name} does not compile:\n{done.stderr}"
    return library
