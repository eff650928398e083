"""Runs programs that write job records, and reads the records."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from support.commands import heaptide, python


def run_jobs(tmp_path: Path, program: str, *, check: bool = True, **env: str) -> CompletedProcess[str]:
    """Run a program whose jobs are recorded in the folder `jobs`."""
    script = tmp_path / "program.py"
    script.write_text("import heaptide, json, os, sys\n" + textwrap.dedent(program))
    env.setdefault("HEAPTIDE_JOBS", str(tmp_path / "jobs"))
    return python(script, cwd=tmp_path, check=check, **env)


def files(folder: Path) -> list[Path]:
    """Return the files of job records in a folder."""
    return sorted(folder.glob("jobs-*.jsonl"))


def lines(folder: Path) -> list[dict[str, Any]]:
    """Return all records in a folder, as they were written."""
    return [json.loads(line) for file in files(folder) for line in file.read_text().splitlines()]


def rows(*arguments: str | Path) -> dict[str, dict[str, Any]]:
    """Return the rows of `heaptide jobs --json` by name."""
    found = json.loads(heaptide("jobs", "--json", *arguments).stdout)
    return {row["name"]: row for row in found}
