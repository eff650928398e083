"""The job of Racetrack's documentation, served over HTTP. It leaks eight million bytes with each call."""

from __future__ import annotations

import sys
from pathlib import Path

from support.commands import REPOSITORY
from support.controlled_program import BASE, ControlledProgram

EXAMPLE = REPOSITORY / "examples" / "memory-leak" / "job.py"
PREFIX = "/pub/job/JOB_NAME/JOB_VERSION"
MEMRAY = f"{PREFIX}{BASE}/memray"
PERFORM = f"{PREFIX}/api/v1/perform"


def serve(folder: Path, job: Path = EXAMPLE, *options: str, **env: str) -> ControlledProgram:
    """Serve a job over HTTP, on any free port."""
    served = ControlledProgram([sys.executable, "-m", "heaptide", "serve", "--port", "0", *options, job], folder, env)
    # So far, `address` is the first line that the command printed: `serving JOB at URL`.
    line = served.address
    assert line.startswith("serving "), line
    served.address = line.rpartition(" at ")[2].partition("/pub/")[0]
    return served


def leak(job: ControlledProgram, calls: int = 3) -> None:
    """Call the job, as Racetrack's documentation does."""
    for _ in range(calls):
        assert job.ask("POST", PERFORM, {}).status == 200
