"""Runs a program twice, without and with Heaptide, and checks that its output and exit code are the same."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path


def write(path: Path, text: str) -> Path:
    """Write an indented text into a file, and create the folders it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def run_twice(
    folder: Path,
    *arguments: str | bytes | Path,
    flags: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"a\nb\n",
    records: bool = True,
) -> subprocess.CompletedProcess[bytes]:
    """Run `python arguments…` and `python -m heaptide run arguments…` in `folder`, and return the result of the first.

    Both must print the same bytes and exit with the same code. The capture is written outside `folder`, so that the
    program cannot find it; unless `records` is false there must be one.
    """
    captures = folder.parent / f"{folder.name} captures"
    captures.mkdir(exist_ok=True)
    capture = captures / f"{len(os.listdir(captures))}.tide"
    outcomes = []
    for prefix in ([], ["-m", "heaptide", "run", "-q", "-o", str(capture)]):
        words = [word if isinstance(word, bytes) else str(word) for word in arguments]
        command = [sys.executable, *flags, *prefix, *words]
        environment = {**os.environ, **(env or {})}
        outcomes.append(subprocess.run(command, cwd=folder, env=environment, input=stdin, capture_output=True))
    plain, recorded = outcomes
    for stream in ("stderr", "stdout"):
        expected, seen = (getattr(outcome, stream).decode(errors="backslashreplace") for outcome in outcomes)
        difference = difflib.unified_diff(
            expected.splitlines(), seen.splitlines(), "plain", "recorded", lineterm="", n=1
        )
        assert seen == expected, f"{stream} of {arguments} differs:\n" + "\n".join(difference)
    assert recorded.returncode == plain.returncode, f"{arguments}: {recorded.returncode} instead of {plain.returncode}"
    assert capture.exists() or not records, "nothing was recorded"
    return plain
