"""Tests pytest-memray's marker `limit_leaked_objects` on Heaptide, from Python 3.14 on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

kept = []

class Thing:
    pass

@pytest.mark.limit_leaked_objects()
def test_clean():
    Thing()

@pytest.mark.limit_leaked_objects(filter_fn=lambda item: isinstance(item, Thing))
def test_leak():
    kept.append(Thing())
"""


@pytest.mark.skipif(
    sys.version_info < (3, 14),
    reason="the marker needs Python 3.13.3; requirements.txt installs the plugin from 3.14 on",
)
def test_pytest_memray_finds_leaked_objects(tmp_path: Path) -> None:
    (tmp_path / "test_objects.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_objects.py"],
        cwd=tmp_path,
        env={**os.environ, "HEAPTIDE_COMPAT": "memray", "HEAPTIDE_CONFIG": "off"},
        capture_output=True,
        text=True,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "Test leaked 1 objects" in done.stdout and "1 Thing instance(s)" in done.stdout
    assert done.returncode == 1
