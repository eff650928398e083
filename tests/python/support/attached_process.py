"""Starts a process to attach to, makes it allocate, attaches and detaches, and checks that it ends normally.

Where the kernel's settings forbid attaching, tests are skipped with the message of the command.
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
from support.messages import one_sentence

SETTINGS = ("ptrace_scope", "CAP_SYS_PTRACE", "not dumpable")


def attach(process: subprocess.Popen[str], *options: str | Path, check: bool = True) -> str:
    """Attach, and return the command's standard error; skip the test where the kernel forbids attaching.

    Without `check`, the command must fail.
    """
    done = heaptide("attach", str(process.pid), *options, check=False)
    if done.returncode == 1 and any(setting in done.stderr for setting in SETTINGS):
        pytest.skip(done.stderr.strip())
    if check:
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == 1, done.stderr
    return done.stderr


def detach(process: subprocess.Popen[str]) -> str:
    """Detach, and return the command's standard error."""
    return heaptide("detach", str(process.pid)).stderr


def refused(pid: int, *options: str | Path, command: str = "attach") -> str:
    """Return the one sentence with which the command refuses the process."""
    done = heaptide(command, str(pid), *options, check=False)
    assert done.returncode == 1 and done.stdout == "", done
    return one_sentence(done.stderr)


@contextmanager
def running(*command: str | Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a process for the length of a block, and kill it at the end if it still runs."""
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
    """Start the program that blocks in a system call, and wait until it has started."""
    with running(*(python or (sys.executable,)), PROGRAMS / "attach/blocked_in_a_read.py", **options) as process:
        assert output(process).readline() == "ready\n"
        yield process


def output(process: subprocess.Popen[str]) -> IO[str]:
    """Return the process's standard output."""
    assert process.stdout is not None
    return process.stdout


def ask(process: subprocess.Popen[str], n_letters: int) -> None:
    """Make the blocked program allocate and keep 100,000 bytes."""
    assert process.stdin is not None
    process.stdin.write("x" * n_letters + "\n")
    process.stdin.flush()
    assert output(process).readline() == f"{n_letters}\n"


def n_asked(capture: Path) -> int:
    """Count the calls of `ask` in a capture: each left a block of 100,000 bytes and a few more."""
    return len(re.findall(r" size=1000\d\d ", heaptide("parse", capture).stdout))


def end(process: subprocess.Popen[str]) -> None:
    """Check that the blocked program ends as it would without Heaptide."""
    printed, _ = process.communicate()
    assert printed == "threading imported: False\nmain thread: True\n"
    assert process.returncode == 0


def remaining_folders(process: subprocess.Popen[str]) -> list[str]:
    """Return the temporary folders of Heaptide for this process that still exist."""
    folders = {Path(os.environ.get("TMPDIR", "/tmp")), Path("/tmp")}
    return [str(path) for folder in folders for path in folder.glob(f"heaptide-{process.pid}-*")]


def snapshot(process: subprocess.Popen[str], *words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a `heaptide heap` command on the process; skip the test where the kernel forbids attaching."""
    done = heaptide("heap", *words, "--pid", str(process.pid), check=False)
    if done.returncode == 1 and any(setting in done.stderr for setting in SETTINGS):
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return done
