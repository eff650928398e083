"""Runs the interpreter under test and its heaptide command in a process, as a user would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
PROGRAMS = REPOSITORY / "tests" / "programs"


@dataclass(frozen=True)
class Finished:
    """The result of a program that has ended, and the path of its capture."""

    returncode: int
    stdout: str
    stderr: str
    capture: Path


def heaptide(*arguments: str | Path, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the heaptide command of the interpreter under test; a failure prints its output."""
    command = [sys.executable, "-m", "heaptide", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if check and done.returncode != 0:
        pytest.fail(f"{command} ended with {done.returncode}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}")
    return done


def session_id(capture: Path) -> bytes:
    """Return the session ID in the header of a capture: tag 1, 16 bytes, right after the prefix."""
    start = capture.read_bytes()[24:42]
    assert start[:2] == b"\x01\x10"
    return start[2:]


def python(*arguments: str | Path, cwd: Path, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the interpreter under test in the folder `cwd`, with `env` added to the environment."""
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env={**os.environ, **env})
    if check and done.returncode != 0:
        pytest.fail(f"{command} ended with {done.returncode}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}")
    return done


def compile_library(source: Path, folder: Path, flags: Sequence[str]) -> Path:
    """Compile one C source into a shared library for the interpreter that runs the tests."""
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
