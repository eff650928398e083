"""Creates a virtual environment of the interpreter that runs this file, or keeps an existing one that still fits.

Debian and Ubuntu package the module that installs pip in an environment separately. As root this script installs it;
otherwise it prints what to install.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path


def make_venv(folder: Path) -> Path:
    """Return the environment's interpreter."""
    python = folder / "bin" / "python"
    if not fits(python):
        ensure_venv_support()
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    return python


def fits(python: Path) -> bool:
    """Return whether the environment exists and belongs to this interpreter: a venv outlives its Python."""
    program = "import sys, pip; print(sys.version, sys.base_prefix)"
    try:
        answer = subprocess.run([str(python), "-c", program], capture_output=True, text=True)
    except OSError:
        return False
    return answer.returncode == 0 and answer.stdout.strip() == f"{sys.version} {sys.base_prefix}".strip()


def ensure_venv_support() -> None:
    """Install the package that Debian separates, or exit with its name."""
    if importlib.util.find_spec("ensurepip") and importlib.util.find_spec("venv"):
        return
    package = f"python3.{sys.version_info.minor}-venv"
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        sys.exit(f"{sys.executable} cannot create a virtual environment; install {package} and try again")
    subprocess.run(["apt-get", "update"], check=True)
    subprocess.run(["apt-get", "install", "-y", package], check=True)


if __name__ == "__main__":
    print(make_venv(Path(sys.argv[1])))
