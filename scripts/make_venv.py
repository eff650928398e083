"""Creates a virtual environment of the interpreter that runs this file, or keeps an existing one of the same version.

On Debian and Ubuntu, the module that installs pip in an environment is in a separate package. As root, this script
installs it; otherwise it prints the package's name.
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
    """Return whether the environment exists and belongs to this interpreter, which may have been replaced meanwhile."""
    program = "import sys, pip; print(sys.version, sys.base_prefix)"
    try:
        answer = subprocess.run([str(python), "-c", program], capture_output=True, text=True)
    except OSError:
        return False
    return answer.returncode == 0 and answer.stdout.strip() == f"{sys.version} {sys.base_prefix}".strip()


def ensure_venv_support() -> None:
    """Install Debian's package for virtual environments, or exit with its name."""
    if importlib.util.find_spec("ensurepip") and importlib.util.find_spec("venv"):
        return
    package = f"python3.{sys.version_info.minor}-venv"
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        sys.exit(f"{sys.executable} cannot create a virtual environment; install {package} and try again")
    subprocess.run(["apt-get", "update"], check=True)
    subprocess.run(["apt-get", "install", "-y", package], check=True)


if __name__ == "__main__":
    print(make_venv(Path(sys.argv[1])))
