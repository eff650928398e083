"""Tests that a recording of a program with a `JobTracer` attributes the tracer's memory to Heaptide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

N_JOBS = 100
PROGRAM = f"""
import heaptide.leaks
held = []
tracer = heaptide.leaks.JobTracer()
@tracer.traced
def work():
    held.append(bytearray(100_000))
for _ in range({N_JOBS}):
    work()
    with tracer.job("block") as job:
        held.append(bytearray(50_000))
    job.retained_bytes
"""


@pytest.mark.parametrize("options", [[], ["--objects"], ["--native"]])
def test_memory_of_a_job_tracer_is_attributed_to_heaptide(
    heaptide_run: Run, stats: Run, tmp_path: Path, options: list[str]
) -> None:
    report = stats(heaptide_run(PROGRAM, *options).capture, "-n", "10000")
    by_size = {found["location"]: found["size"] for found in report["top_allocations_by_size"]}
    counts = {found["location"]: found["count"] for found in report["top_allocations_by_count"]}
    script = f"{tmp_path}/program1.py"
    own = [name for name in by_size if name.startswith("Heaptide itself:<heaptide>")]
    assert len(own) == 1
    # Lines of jobs show exactly the bytes that they allocated, plus those of the list that holds the blocks.
    assert 0 <= by_size[f"work:{script}:7"] - N_JOBS * 100_001 < 30_000
    assert 0 <= by_size[f"<module>:{script}:11"] - N_JOBS * 50_001 < 20_000
    # The calls of the tracer allocate at most the arguments and the iterator of the loop.
    for line in (8, 9, 10, 12):
        assert counts.get(f"<module>:{script}:{line}", 0) <= 4 * N_JOBS
    shown = [name for name in by_size if "leaks/" in name or "<string>" in name]
    assert shown == []
    assert "JobTracer" not in str(report["heaptide"].get("findings", ""))
    # Shares are shares of the peak that the report shows, which includes the tracer's memory.
    for found in report["heaptide"]["findings"]:
        if found["kind"] == "holds_most":
            assert found["numbers"]["whole_peak_bytes"] == report["metadata"]["peak_memory"]
