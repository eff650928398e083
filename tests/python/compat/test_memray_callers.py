"""Tests that programs which use memray run unchanged on Heaptide: pytest-memray, distributed and notebooks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import heaptide

pytestmark = pytest.mark.once


def run(folder: Path, *words: str, code: int = 0, **environment: str) -> str:
    """Run Python under HEAPTIDE_COMPAT=memray and return everything it prints."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "HEAPTIDE_COMPAT": "memray", "HEAPTIDE_CONFIG": "off", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


TESTS = """
import threading
import pytest

kept = []

@pytest.mark.limit_memory("2 MB")
def test_small():
    bytearray(1_000_000)

@pytest.mark.limit_memory("2 MB")
def test_large():
    bytearray(5_000_000)

@pytest.mark.limit_leaks("1 MB")
def test_leak():
    kept.append(bytearray(3_000_000))

@pytest.mark.limit_leaks("1 MB", filter_fn=lambda stack: "allowed" not in [f.function for f in stack.frames])
def test_allowed_leak():
    def allowed():
        kept.append(bytearray(3_000_000))
    allowed()
"""


def test_pytest_memray_runs_unchanged(tmp_path: Path) -> None:
    pytest.importorskip("pytest_memray")
    (tmp_path / "test_limits.py").write_text(TESTS)
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_limits.py"]
    printed = run(tmp_path, *words, "--memray", "--stacks", "3", code=1)
    assert "2 failed, 2 passed" in printed
    assert "Test was limited to" in printed and "but allocated" in printed
    assert "test_large:" in printed and "List of leaked allocations" in printed
    assert "Allocation results for test_limits.py::test_large" in printed
    assert "Total memory allocated" in printed or "📦" in printed


def test_distributed_records_its_workers_with_default_arguments(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    (tmp_path / "bin").mkdir()
    heaptide("compat", "install", "memray", "--to", tmp_path / "bin")
    program = """
if __name__ == "__main__":
    from distributed import Client, LocalCluster
    from distributed.diagnostics.memray import memray_workers
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        with memray_workers():
            print(client.submit(lambda: len(bytearray(5_000_000))).result())
"""
    (tmp_path / "cluster.py").write_text(program)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    assert "5000000" in run(tmp_path, "cluster.py", PATH=path, DASK_TEMPORARY_DIRECTORY=str(tmp_path))
    (page,) = tmp_path.glob("memray-profiles/**/*.html")
    assert page.read_text().startswith("<!doctype html>")


def test_notebook_magic_shows_a_flame_graph(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    program = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "memray")
def cell(line, text):
    shell.run_cell_magic("memray_flamegraph", line, text)
cell("--trace-python-allocators --leaks --inverted --split-threads", "x = bytearray(3_000_000)\\nif x:\\n    y = 1\\n")
cell("--temporal --native --follow-fork --max-memory-records 10", "z = bytearray(3_000_000)")
cell("--temporary-allocations", "for i in range(10): bytearray(3_000_000)")
cell("--unknown", "w = 1")
try:
    cell("--temporal --temporary-allocations", "w = 1")
except Exception as error:
    print(type(error).__name__)
print(len(shell.user_ns["x"]), shell.user_ns["y"], "w" in shell.user_ns)
"""
    (tmp_path / "notebook.py").write_text(program)
    printed = run(tmp_path, "notebook.py")
    assert printed.count("Results saved to memray-results/") == 3 and "unrecognized arguments: --unknown" in printed
    assert printed.rstrip().endswith("UsageError\n3000000 1 False")
    assert len(list(tmp_path.glob("memray-results/*/flamegraph.html"))) == 3
    assert not list(tmp_path.glob("memray-results/*/memray.dump"))
