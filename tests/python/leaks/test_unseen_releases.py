"""Tests jobs that release memory while another tool has removed Heaptide's hooks."""

from __future__ import annotations

from pathlib import Path

from support.job_program import run


def test_job_is_measured_after_tracemalloc_has_removed_the_hooks(tmp_path: Path) -> None:
    """`tracemalloc.stop()` restores the allocators that it replaced, so the hooks do not see the later releases."""
    kept = run(
        tmp_path,
        """
        import tracemalloc
        tracemalloc.start()
        tracer = leaks.JobTracer(collect=False)
        with tracer.job("frees unseen") as job:
            objects = [(number, str(number)) for number in range(200_000)]
            tracemalloc.stop()
            del objects
        print(json.dumps(job.retained_bytes))
        """,
    )
    # The blocks stay in the accounts, but their memory is unmapped and must not be read.
    assert kept > 0
