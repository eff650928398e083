"""Walks through Racetrack's documentation of its memory profiler, with the real job runner and the real memray."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import termios
from pathlib import Path

import pytest
from platform_support.environments import Environment
from platform_support.racetrack_job import EXAMPLE, PREFIX, RacetrackJob
from support.controlled_program import page_data
from support.waiting import wait_until


@pytest.mark.behaviour("document", "report")
def test_leak_is_found_step_by_step(job: RacetrackJob, racetrack: Environment, tmp_path: Path) -> None:
    api = f"{job.address}{PREFIX}/api/v1"

    def curl(*words: str) -> str:
        command = ["curl", "--silent", "--show-error", "--fail-with-body", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout

    # The job was started with MEMRAY_PROFILER=true. Call the perform endpoint a couple of times.
    for _ in range(3):
        curl("-X", "POST", f"{api}/perform", "-H", "Content-Type: application/json", "-d", "{}")
    # Stop the profiler session to make the job save the report file.
    curl("-X", "POST", f"{api}/profiler/memray/stop")
    # View the flame graph.
    page = page_data(curl(f"{api}/profiler/memray/flamegraph"))
    assert "perform" in page and "memory-leak/job.py" in page
    # Download the report, and analyse it with memray's reporters.
    curl(f"{api}/profiler/memray/report", "--output", "memray-report.bin")
    stats = racetrack.run("memray", "stats", "memray-report.bin", cwd=tmp_path).stdout
    largest = stats.partition("Top 5 largest allocating locations (by size):\n")[2].splitlines()[0]
    assert re.fullmatch(rf"\s*- perform:{re.escape(str(EXAMPLE))}:7 -> 24\.000MB", largest), stats
    assert re.search(r"get_data:<frozen importlib._bootstrap_external>:\d+ -> ", stats)
    program = (
        "import sys; from memray.reporters.tree import TreeReporter; from memray import FileReader;"
        "r = FileReader(sys.argv[1]); records = r.get_high_watermark_allocation_records(merge_threads=True);"
        "rows = sorted(((x.size, x.stack_trace(1)) for x in records), reverse=True); print(rows[0])"
    )
    first = racetrack.run("python", "-c", program, "memray-report.bin", cwd=tmp_path).stdout
    # Three times 8,000,000 bytes, and the list that holds them.
    assert first.startswith(f"(24000032, [('perform', '{EXAMPLE}', 7)])")
    assert re.search(r"24\.000MB \(\d+\.\d+ %\) +perform ", shown_by_tree(racetrack, tmp_path))


def shown_by_tree(racetrack: Environment, folder: Path) -> str:
    """Return the text that `memray tree` shows in a terminal. The key `q` quits it."""
    controller, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (60, 200))
    process = subprocess.Popen(
        [racetrack.bin / "memray", "tree", "memray-report.bin"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        cwd=folder,
        env=racetrack.variables({"TERM": "xterm"}),
        start_new_session=True,
    )
    os.close(terminal)
    os.set_blocking(controller, False)
    shown = bytearray()

    def read() -> bool:
        """Read the available output. Return whether the program has ended and closed its side of the terminal."""
        try:
            shown.extend(os.read(controller, 1 << 16))
        except BlockingIOError:
            return False
        except OSError:
            return True
        return False

    try:
        # `memray tree` first shows the heaviest path expanded. The innermost frame of this path is the leak's.
        wait_until(lambda: read() or b"perform" in shown, "memray's tree")
        assert process.poll() is None, shown.decode(errors="replace")
        os.write(controller, b"q")
        wait_until(read, "the end of memray's tree")
        assert process.wait() == 0
    finally:
        process.kill()
        process.wait()
        os.close(controller)
    return re.sub(r"\x1b\[[0-9;?<>=]*[a-zA-Z]", "", shown.decode(errors="replace"))
