"""Runs the Python tests against the built wheel, in a virtual environment of the interpreter that runs this file.

It works in the same way on a developer's machine and inside the Debian forky root. It reuses the environment: it
reinstalls the wheel only if the wheel changed, and the test requirements only if their list changed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from make_venv import make_venv

REPOSITORY = Path(__file__).resolve().parent.parent
REQUIREMENTS = REPOSITORY / "tests" / "python" / "requirements.txt"


def main() -> int:
    """Prepare the environment, run pytest and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, required=True, help="folder of the virtual environment, made if missing")
    parser.add_argument("--wheel", type=Path, required=True, help="the wheel under test")
    parser.add_argument("pytest", nargs="*", help="further arguments for pytest, after --")
    options = parser.parse_args()

    python = make_venv(options.venv)
    install_once(options.venv, "requirements", digest(REQUIREMENTS), lambda: install_requirements(python))
    install_once(options.venv, "wheel", digest(options.wheel), lambda: install_wheel(python, options.wheel))

    # Tests import the installed package, never the source tree, and leave nothing in the repository.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    os.environ.pop("PYTHONPATH", None)
    os.chdir(REPOSITORY)
    sys.stdout.flush()
    return subprocess.run([str(python), "-m", "pytest", *options.pytest]).returncode


def digest(path: Path) -> str:
    """Return a hash of the content, because a rebuilt wheel has the same name."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def install_once(venv: Path, step: str, fingerprint: str, install: Callable[[], None]) -> None:
    """Run `install` unless the environment already has this fingerprint."""
    marker = venv / f".{step}"
    if not marker.exists() or marker.read_text() != fingerprint:
        install()
        marker.write_text(fingerprint)


def install_requirements(python: Path) -> None:
    """Install the test requirements; report and skip packages without a wheel for this Python."""
    lines = (line.partition("#")[0].strip() for line in REQUIREMENTS.read_text().splitlines())
    names = [line for line in lines if line]
    if pip(python, *names):
        return
    for name in names:
        if not pip(python, name):
            if name.startswith("pytest"):
                sys.exit(f"pytest could not be installed for {sys.version.split()[0]}; pip's messages are above")
            print(f"NOTE: no {name} for Python {sys.version.split()[0]}: the tests that need it are skipped")


def install_wheel(python: Path, wheel: Path) -> None:
    """Install the wheel over an older one of the same version."""
    if not pip(python, "--force-reinstall", "--no-deps", str(wheel)):
        sys.exit(f"{wheel.name} could not be installed; pip's messages are above")


def pip(python: Path, *arguments: str) -> bool:
    """Run `pip install` and return whether it succeeded. Only installs wheels, because compiling takes too long."""
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    return subprocess.run([*command, *arguments]).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
