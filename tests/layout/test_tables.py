"""Tests that the layout tables of the agent match the headers of the interpreter that runs the tests."""

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
TABLES = HERE.parents[1] / "crates" / "agent" / "src" / "cpython" / "tables"
HEADERS = Path(sysconfig.get_path("include")) / "internal"


pytestmark = [
    pytest.mark.skipif(not HEADERS.is_dir(), reason="this interpreter has no internal headers installed"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]


def test_layout_table_of_this_version_matches_its_headers() -> None:
    table = TABLES / f"v{sys.version_info.major}_{sys.version_info.minor}.rs"
    printed = subprocess.run([HERE / "generate", sys.executable], check=True, capture_output=True, text=True).stdout
    assert without_spacing(printed) == without_spacing(table.read_text(encoding="utf-8"))


def test_heap_offsets_of_this_version_match_its_headers() -> None:
    # A Rust test compares the constants of the heap walk with these files, for all versions.
    table = TABLES / f"heap_v{sys.version_info.major}_{sys.version_info.minor}.txt"
    command = [HERE / "generate", sys.executable, "cc", "heap_offsets"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed.splitlines() == table.read_text(encoding="utf-8").splitlines()


def without_spacing(text: str) -> str:
    """Normalize white space, which differs if rustfmt is missing."""
    return re.sub(r"\s+", " ", text).strip()
