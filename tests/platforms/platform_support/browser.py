"""Runs a script of a platform's tests that opens the platform's pages in Chromium."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from platform_support.environments import REPOSITORY


def run_in_browser(script: Path, **variables: str) -> str:
    """Run the script with Node, pass it the variables, and return its output. A failure fails the test.

    The script finds playwright-core in web/, and writes pictures to the folder SHOTS, which the tests do not delete.
    """
    web = REPOSITORY / "web"
    if not (web / "node_modules" / "playwright-core").exists():
        npm = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(npm, cwd=web, env=_caller_variables(), check=True)
    shots = REPOSITORY / "build" / "platforms" / f"{script.parent.name}-screenshots"
    shots.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "SHOTS": str(shots), **variables}
    done = subprocess.run(["node", str(script)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _caller_variables() -> dict[str, str]:
    """Return the variables with which the tests were started: npm needs its registry, which hermetic tests hide."""
    pairs = Path("/proc/self/environ").read_bytes().split(b"\0")
    return dict(os.fsdecode(pair).split("=", 1) for pair in pairs if b"=" in pair)
