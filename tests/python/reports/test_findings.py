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


def test_filters_restrict_the_numbers_of_a_report(recorded: list[Path], stats: Callable[..., dict[str, Any]]) -> None:
    everything = stats(recorded[0])
    part = stats(recorded[0], "--include", "job.py", "--thread", "main")
    assert 0 < part["total_bytes_allocated"] <= everything["total_bytes_allocated"]
    assert part["heaptide"]["filters"] == ["--include job.py", "--thread main"]
    assert part["heaptide"]["processes"][0]["ledger"] is None


def test_findings_name_a_child_that_wrote_to_shared_pages(
    recorded: list[Path], stats: Callable[..., dict[str, Any]]
) -> None:
    parent, child = recorded
    findings = stats(child, str(parent))["heaptide"]["findings"]
    [unshared] = [finding["numbers"] for finding in findings if finding["kind"] == "unshared"]
    copied = unshared["inherited_bytes"] - unshared["shared_bytes"]
    assert copied >= 20 * MIB
    assert unshared["shared_bytes"] <= unshared["inherited_bytes"]
