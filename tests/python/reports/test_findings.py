"""Tests the findings, the ledger of resident memory and the filters of reports on a real program."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.once

MIB = 1 << 20

PROGRAM = """
import os

def hold(n):
    return [bytearray(20_000) for _ in range(n)]

kept = hold(3_000)
# Holes that are too small for libc to return to the kernel.
del kept[::2]
for _ in range(3_000):
    bytes(5_000)
if os.fork() == 0:
    # Writing to a page copies it.
    for block in kept:
        block[::4096] = bytes(len(block[::4096]))
else:
    os.wait()
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The captures of the program and of its child."""
    folder = tmp_path_factory.mktemp("findings")
    (folder / "job.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "heaptide", "run", "--follow-fork", "-o", "job.tide", "job.py"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    parent = folder / "job.tide"
    return [parent, *(path for path in sorted(folder.glob("job.tide*")) if path != parent)]


def test_ledger_explains_most_of_the_resident_size(recorded: list[Path], stats: Callable[..., dict[str, Any]]) -> None:
    [process] = stats(recorded[0])["heaptide"]["processes"]
    ledger = process["ledger"]
    others = ("pid", "resident_bytes", "not_resident_bytes")
    rows = [bytes_ for name, bytes_ in ledger.items() if name not in others]
    assert sum(rows) == ledger["resident_bytes"]
    assert ledger["native_bytes"] >= 1_500 * 20_000
    assert ledger["libc_free_bytes"] >= 20 * MIB
    assert ledger["unexplained_bytes"] < ledger["resident_bytes"] / 2


def test_findings_name_the_largest_site_free_memory_and_churn(
    recorded: list[Path], stats: Callable[..., dict[str, Any]]
) -> None:
    findings = {finding["kind"]: finding for finding in stats(recorded[0])["heaptide"]["findings"]}
    most = findings["holds_most"]
    assert most["place"]["line"] == 5
    assert most["numbers"]["peak_bytes"] >= 3_000 * 20_000
    assert findings["kept_free"]["numbers"]["libc_free_bytes"] >= 20 * MIB
    churns = findings["churns"]
    assert churns["numbers"]["temporary_count"] >= 3_000


@pytest.fixture(scope="module")
def filtered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture of a program with large blocks in two modules and two threads."""
    folder = tmp_path_factory.mktemp("filters")
    (folder / "source.py").write_text("def fetch(): return bytes(3_000_000)\n")
    (folder / "job.py").write_text(
        "import threading, source\n"
        "def compute(): return bytes(5_000_000)\n"
        "def compress(): kept.append(bytes(7_000_000))\n"
        "kept = [source.fetch(), compute()]\n"
        "thread = threading.Thread(target=compress, name='helper')\n"
        "thread.start()\n"
        "thread.join()\n"
    )
    command = [sys.executable, "-m", "heaptide", "run", "-q", "-o", "job.tide", "job.py"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "job.tide"


def test_filters_restrict_the_numbers_of_a_report(filtered: Path, stats: Callable[..., dict[str, Any]]) -> None:
    def numbers(*filters: str) -> tuple[set[str], tuple[int, int]]:
        """Return the functions with large blocks, and the number and size of all allocations."""
        part = stats(filtered, *filters)
        assert part["heaptide"]["filters"] == [" ".join(filters[at : at + 2]) for at in range(0, len(filters), 2)]
        assert (part["heaptide"]["processes"][0]["ledger"] is None) == bool(filters)
        large = [site["location"] for site in part["top_allocations_by_size"] if site["size"] > MIB]
        totals = part["total_num_allocations"], part["total_bytes_allocated"]
        return {location.partition(":")[0] for location in large}, totals

    functions, (count, size) = numbers()
    assert functions == {"fetch", "compute", "compress"}
    for one, other, functions_of_one in (
        (("--include", "source.py"), ("--exclude", "source.py"), {"fetch"}),
        (("--thread", "helper"), ("--thread", "main"), {"compress"}),
    ):
        found, (count_of_one, size_of_one) = numbers(*one)
        assert found == functions_of_one
        # The two filters divide the allocations among themselves.
        assert numbers(*other) == (functions - functions_of_one, (count - count_of_one, size - size_of_one))
    assert numbers("--include", "job.py", "--thread", "main")[0] == {"fetch", "compute"}
    assert numbers("--exclude", "source.py", "--thread", "main")[0] == {"compute"}


def test_findings_name_a_child_that_wrote_to_shared_pages(
    recorded: list[Path], stats: Callable[..., dict[str, Any]]
) -> None:
    parent, child = recorded
    findings = stats(child, str(parent))["heaptide"]["findings"]
    [unshared] = [finding["numbers"] for finding in findings if finding["kind"] == "unshared"]
    copied = unshared["inherited_bytes"] - unshared["shared_bytes"]
    assert copied >= 20 * MIB
    assert unshared["shared_bytes"] <= unshared["inherited_bytes"]
