"""PySpark and Java for tests. Both are large: PySpark is downloaded once into `build/`, Java comes from the system."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from support.downloaded_packages import folder_of


def folder() -> Path:
    """Return the folder with PySpark, for the import path; downloads it if it is missing."""
    return folder_of("pyspark>=4,<5", "pyspark", "pyspark")


def ensure_java() -> None:
    """Install a Java runtime if there is none. Only root can."""
    if shutil.which("java"):
        return
    assert os.geteuid() == 0, "PySpark needs Java: install default-jre-headless"
    subprocess.run(["apt-get", "update"], check=True)
    subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", "default-jre-headless"], check=True)
