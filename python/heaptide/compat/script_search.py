"""Finds the script that a command line of memory_profiler or mprof names."""

from __future__ import annotations

import os
import sys


def find_script(name: str) -> str:
    """Return the path of a script that is in the current folder or on PATH. If there is none, exit with a message."""
    if os.path.isfile(name):
        return name
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, name)
        if folder and os.path.isfile(path):
            return path
    sys.exit(f"Could not find script {name}")
