"""Packages that only a few tests use: downloaded once, each into its own folder of `build/`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from support.commands import REPOSITORY


def folder_of(requirement: str, package: str, name: str) -> Path:
    """Return a folder with a package, for the import path; downloads the package if it is missing."""
    folder = REPOSITORY / "build" / name
    if not (folder / package / "__init__.py").exists():
        partial = folder.with_name(f"{name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--target", str(partial), requirement], check=True)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    return folder
