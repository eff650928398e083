"""Tests that interpreters of distributions, which are linked differently, are recorded like any other."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import REPOSITORY, heaptide

BYTES_HEAD = sys.getsizeof(b"")
# Nothing else allocates blocks of these sizes.
BY_MALLOC, BY_CALLOC = 1_234_567, 2_345_678
SUPPORTED = re.findall(r":: Python :: (3\.\d+)", (REPOSITORY / "pyproject.toml").read_text())


@pytest.mark.parametrize("interpreter", [sys.executable, "/usr/bin/python3"])
def test_blocks_of_the_interpreter_are_recorded_from_malloc_to_free(tmp_path: Path, interpreter: str) -> None:
    # Distributions link the interpreter at a fixed address, which gives malloc and free a second address.
    package = Path(
        subprocess.check_output(
            [sys.executable, "-c", "import heaptide; print(heaptide.__path__[0])"], text=True
        ).strip()
    )
    shutil.copytree(package, tmp_path / "heaptide")
    code = f"import heaptide, sys\nwith heaptide.Tracker('block.tide'): x = b'x' * {BY_MALLOC}; del x; y = bytes({BY_CALLOC}); del y"
    known = f"import sys; sys.exit('%d.%d' % sys.version_info[:2] not in {SUPPORTED})"
    if not Path(interpreter).exists() or subprocess.run([interpreter, "-c", known]).returncode != 0:
        pytest.skip(f"{interpreter} is missing, or of another version")
    env = {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([interpreter, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines = heaptide("parse", tmp_path / "block.tide").stdout.splitlines()
    for size, allocator in ((BY_MALLOC, "malloc"), (BY_CALLOC, "calloc")):
        (made,) = [line for line in lines if line.endswith(f" size={size + BYTES_HEAD} allocator={allocator}")]
        address = made.split("address=")[1].split()[0]
        assert any(line.startswith("FREE ") and line.endswith(f"address={address}") for line in lines)
