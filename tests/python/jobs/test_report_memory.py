"""Tests the memory of reports on 100,000 jobs: 64 MB, and 48 bytes for each live block of a capture."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once

N_JOBS = 100_000
BUDGET = 64_000_000
BUDGET_PER_LIVE_BLOCK = 48

# Each job keeps a block and frees a larger one.
PROGRAM = f"""
import heaptide
kept = [None] * {N_JOBS}
def work(number):
    temporary = bytearray(3_000)
    kept[number] = bytearray(600)
for number in range({N_JOBS}):
    with heaptide.job(("import", "mail", "render")[number % 3], key=f"order-{{number}}", queue="nightly"):
        work(number)
"""

# A small process starts the command. Until a child executes its program, the kernel counts the parent's memory as the
# child's, and the test process is larger than a report.
MEASURE = """
import resource, subprocess, sys
done = subprocess.run([sys.executable, "-m", "heaptide", *sys.argv[1:]], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
sys.exit(done.returncode)
"""


def max_resident_bytes(*arguments: str | Path) -> int:
    """Run the heaptide command and return its highest resident size."""
    command = [sys.executable, "-c", MEASURE, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The capture of a program with 100,000 jobs."""
    folder = tmp_path_factory.mktemp("jobs")
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "heaptide", "run", "-q", "-o", "jobs.tide", "program.py"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "jobs.tide"


@pytest.mark.parametrize(
    "report", [("stats", "--by", "job"), ("jobs",), ("jobs", "--json"), ("summary", "--by", "job")]
)
def test_report_on_a_capture_with_100_000_jobs_stays_within_its_budget(capture: Path, report: tuple[str, ...]) -> None:
    assert max_resident_bytes(*report, capture) <= BUDGET + BUDGET_PER_LIVE_BLOCK * N_JOBS


def test_jobs_of_a_large_capture_have_exact_numbers(capture: Path) -> None:
    # The command replays the capture several times, each time for some of the jobs.
    command = [sys.executable, "-m", "heaptide", "jobs", "--json", str(capture)]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert sorted(row["runs"] for row in rows) == [33_333, 33_333, 33_334]
    for row in rows:
        assert row["failed"] == row["killed"] == 0
        assert 3_600 <= row["peak_p50"] <= row["peak_max"] < 4_000, row
        assert 600 <= row["retained_per_run"] < 700, row


def record(event: str, number: int) -> str:
    """Return a line about a job; the end of a run has more facts than its beginning."""
    is_end = event == "end"
    started = 1_794_962_000 + number * 0.25
    return (
        f'{{"v":1,"event":"{event}","id":"nightly/web-1/4711/83456.12s/{number}","run":"nightly","host":"web-1",'
        f'"boot_id":"b","pid_namespace":"4026531836","pid":{4711 + number % 8},"start":"83456.12s","program":"worker.py",'
        f'"process_labels":{{"role":"celery worker"}},"number":{number},"name":"job {number % 5}",'
        f'"key":"order-{number}","labels":{{"queue":"mail","request":"{number}"}},"thread":4713,'
        f'"time":{started + 0.125 * is_end},"seconds":{0.125 if is_end else "null"},'
        f'"outcome":"{"ok" if is_end else "running"}","error":null,"resident_before":{50_000_000 + number},'
        f'"resident_after":{50_010_000 + number if is_end else "null"},"resident_peak":null,"allocated_bytes":null,'
        f'"peak_bytes":null,"retained_bytes":null,"name_bytes":null,"sites":null,"types":null,"capture":null}}\n'
    )


@pytest.mark.parametrize("options", [(), ("--by", "label:queue"), ("--html", "-o", "jobs.html")])
def test_report_on_100_000_job_records_stays_within_its_budget(tmp_path: Path, options: tuple[str, ...]) -> None:
    with open(tmp_path / "jobs-web-1-4711-83456.12s.jsonl", "w") as file:
        for number in range(N_JOBS):
            file.write(record("begin", number) + record("end", number))
    if "-o" in options:
        options = (*options[:-1], str(tmp_path / options[-1]))
    assert max_resident_bytes("jobs", *options, tmp_path) <= BUDGET
