"""Finds the CPython interpreters of this machine that Heaptide supports, one per minor version.

Searches PATH and pyenv. Prints `3.N<TAB>path` lines, oldest first; with --first only the path of the interpreter to use
if the version does not matter. The supported versions come from the classifiers of pyproject.toml. Make runs this file
with any installed python3, so it must work with old versions.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
CLASSIFIER = re.compile(r'"Programming Language :: Python :: 3\.(\d+)"')


def versions() -> list[tuple[int, int]]:
    """Return the supported versions, oldest first. All scripts, benchmarks and checks read this one list."""
    return sorted((3, int(minor)) for minor in CLASSIFIER.findall((REPOSITORY / "pyproject.toml").read_text()))


def forky_versions() -> list[str]:
    """Return the versions that a Debian forky root provides if the machine lacks them."""
    return [f"{major}.{minor}" for major, minor in versions() if (major, minor) >= (3, 14)]


# Every candidate runs this program. A pyenv shim prints the path of the interpreter that it starts.
DESCRIPTION_PROGRAM = """
import os, sys, sysconfig
header = os.path.join(sysconfig.get_path("include"), "Python.h")
print(sys.implementation.name, "%d.%d" % sys.version_info[:2], int(bool(sysconfig.get_config_var("Py_GIL_DISABLED"))),
      int(os.path.exists(header)), sys.executable, sep="\\t")
"""


def candidates() -> list[Path]:
    """Return every file named like a Python 3 interpreter, in order of preference."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders += sorted(pyenv.glob("versions/*/bin"))
    found = []
    for folder in folders:
        for path in sorted(folder.glob("python3*")):
            if re.fullmatch(r"python3(\.\d+)?", path.name) and os.access(path, os.X_OK):
                found.append(path)
    return found


def describe(path: Path) -> tuple[tuple[int, int], bool, str] | None:
    """Return version, presence of headers and real path of a supported interpreter; None for any other."""
    try:
        answer = subprocess.run(
            [str(path), "-c", DESCRIPTION_PROGRAM],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    words = answer.stdout.strip().split("\t")
    if answer.returncode != 0 or len(words) != 5:
        return None
    name, text, free_threaded, headers, executable = words
    major, minor = text.split(".")
    version = int(major), int(minor)
    if name != "cpython" or free_threaded == "1" or version not in versions():
        return None
    return version, headers == "1", executable


def supported() -> dict[tuple[int, int], str]:
    """Return the interpreter for each version: the first with headers, else the first found."""
    best: dict[tuple[int, int], tuple[bool, str]] = {}
    for path in candidates():
        answer = describe(path)
        if answer is None:
            continue
        version, headers, executable = answer
        if version not in best or (headers and not best[version][0]):
            best[version] = (headers, executable)
    return {version: best[version][1] for version in sorted(best)}


def main() -> int:
    """Print the interpreters; exit with 1 if there is none."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", action="store_true", help="print only the interpreter to use when any will do")
    parser.add_argument("--forky", action="store_true", help="print the versions that a Debian forky root provides")
    options = parser.parse_args()
    if options.forky:
        print("\n".join(forky_versions()))
        return 0
    found = supported()
    if not found:
        oldest, newest = (f"{major}.{minor}" for major, minor in (versions()[0], versions()[-1]))
        print(
            f"no CPython {oldest} to {newest} on PATH or in pyenv; install one, or name it with PYTHON=",
            file=sys.stderr,
        )
        return 1
    if options.first:
        default = describe(Path("python3"))
        print(found[default[0]] if default else list(found.values())[-1])
        return 0
    for (major, minor), path in found.items():
        print(f"{major}.{minor}\t{path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
