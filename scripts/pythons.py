"""Finds the CPython interpreters of this machine that Heaptide supports, one for each minor version.

Looks on PATH and in pyenv. Prints `3.N<TAB>path` lines, oldest first; with --first only the path of the one to use when
any will do. Runs on whatever python3 there is, so it keeps to the plainest Python.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

OLDEST = (3, 10)

# Asked of every candidate: is it CPython, which version, free-threaded, can extensions be compiled for it, and where
# it really lives (a pyenv shim answers with the interpreter behind it).
QUESTION = """
import os, sys, sysconfig
header = os.path.join(sysconfig.get_path("include"), "Python.h")
print(sys.implementation.name, "%d.%d" % sys.version_info[:2], int(bool(sysconfig.get_config_var("Py_GIL_DISABLED"))),
      int(os.path.exists(header)), sys.executable, sep="\\t")
"""


def candidates() -> list[Path]:
    """Every file that looks like a Python 3 interpreter, in order of preference."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders += sorted(pyenv.glob("versions/*/bin"))
    found = []
    for folder in folders:
        for path in sorted(folder.glob("python3*")):
            if re.fullmatch(r"python3(\.\d+)?", path.name) and os.access(path, os.X_OK):
                found.append(path)
    return found


def ask(path: Path) -> tuple[tuple[int, int], bool, str] | None:
    """Version, presence of headers and real path of a supported interpreter; None for any other."""
    try:
        answer = subprocess.run(
            [str(path), "-c", QUESTION], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = answer.stdout.strip().split("\t")
    if answer.returncode != 0 or len(words) != 5:
        return None
    name, version, free_threaded, headers, executable = words
    major, minor = version.split(".")
    if name != "cpython" or free_threaded == "1" or (int(major), int(minor)) < OLDEST:
        return None
    return (int(major), int(minor)), headers == "1", executable


def supported() -> dict[tuple[int, int], str]:
    """The interpreter for each version: the first found, but one with headers before one without."""
    best: dict[tuple[int, int], tuple[bool, str]] = {}
    for path in candidates():
        answer = ask(path)
        if answer is None:
            continue
        version, headers, executable = answer
        if version not in best or (headers and not best[version][0]):
            best[version] = (headers, executable)
    return {version: best[version][1] for version in sorted(best)}


def main() -> int:
    """Print what was asked for; exit code 1 if there is no interpreter to name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", action="store_true", help="print only the interpreter to use when any will do")
    options = parser.parse_args()
    found = supported()
    if not found:
        print("no CPython 3.10 or newer is on PATH or in pyenv; install one, or name it with PYTHON=", file=sys.stderr)
        return 1
    if options.first:
        default = ask(Path("python3"))
        print(found[default[0]] if default else list(found.values())[-1])
        return 0
    for (major, minor), path in found.items():
        print(f"{major}.{minor}\t{path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
