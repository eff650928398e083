"""A process to attach to: started, asked to work, entered and left, and ended as it would have ended alone.

Where the kernel's settings do not let us enter another process, tests are skipped with what the command says.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from support.commands import PROGRAMS, heaptide

SETTINGS = ("ptrace_scope", "CAP_SYS_PTRACE", "not dumpable")


def attach(process: subprocess.Popen[str], *options: str | Path, check: bool = True) -> str:
    """Attach, and return what was said; skip the test where the kernel forbids it."""
    done = heaptide("attach", str(process.pid), *options, check=False)
    if done.returncode == 1 and any(setting in done.stderr for setting in SETTINGS):
        pytest.skip(done.stderr.strip())
    if check:
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 1, done.stderr
    return done.stderr


def detach(process: subprocess.Popen[str]) -> str:
    """Detach, and return what was said."""
    return heaptide("detach", str(process.pid)).stderr


def refused(pid: int, *options: str | Path, command: str = "attach") -> str:
    """The one sentence with which it is refused."""
    done = heaptide(command, str(pid), *options, check=False)
    assert done.returncode == 1 and done.stdout == "", done
    assert done.stderr.startswith("heaptide: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("heaptide: ").rstrip("\n")


@contextmanager
def running(*command: str | Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process for the length of a block; one that still runs then is killed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEAPTIDE")}
    process = subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **{"env": environment, **options},
    )
    try:
        yield process
    finally:
        process.kill()
        with process:  # closes its pipes and waits
            pass


@contextmanager
def blocked(*python: str | Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """The program that waits in a system call, once it does."""
    with running(*(python or (sys.executable,)), PROGRAMS / "blocked_in_a_read.py", **options) as process:
        assert output(process).readline() == "ready\n"
        yield process


def output(process: subprocess.Popen[str]) -> IO[str]:
    """What the process prints."""
    assert process.stdout is not None
    return process.stdout


def ask(process: subprocess.Popen[str], n_letters: int) -> None:
    """Have the blocked program work once: it allocates 100 000 bytes that it keeps."""
    assert process.stdin is not None
    process.stdin.write("x" * n_letters + "\n")
    process.stdin.flush()
    assert output(process).readline() == f"{n_letters}\n"


def n_asked(capture: Path) -> int:
    """How often the blocked program was asked while this capture was written: by blocks of 100 000 bytes and a header."""
    return len(re.findall(r" size=1000\d\d ", heaptide("parse", capture).stdout))


def end(process: subprocess.Popen[str]) -> None:
    """The blocked program ends as it would have without us."""
    said, _ = process.communicate()
    assert said == "threading imported: False\nmain thread: True\n"
    assert process.returncode == 0


def left_behind(process: subprocess.Popen[str]) -> list[str]:
    """Folders of ours that are still there."""
    folders = {Path(os.environ.get("TMPDIR", "/tmp")), Path("/tmp")}
    return [str(path) for folder in folders for path in folder.glob(f"heaptide-{process.pid}-*")]


def snapshot(process: subprocess.Popen[str], *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Ask for a process's objects; skip the test where the kernel forbids it."""
    done = heaptide("heap", *words, "--pid", str(process.pid), check=False)
    if done.returncode == 1 and any(setting in done.stderr for setting in SETTINGS):
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return done
