"""Tests ``heaptide jobs``: its rows, formats, exit codes, and runs of several hosts."""

from __future__ import annotations

import json
import math
import os
import shutil
import stat
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.commands import heaptide
from support.job_records import files, lines, rows, run_jobs
from support.pages import data_of

pytestmark = pytest.mark.once

KEYS = [
    *("name", "runs", "failed", "killed", "retained_per_run", "peak_p50", "peak_p95", "peak_max", "seconds_p50"),
    *("verdict", "site", "suggested_limit_bytes"),
]

WORKER = """
from heaptide import leaks
tracer = leaks.JobTracer()
kept, cache = [None] * 100, {}

@tracer.job("leaks")
def leak(number):
    kept[number] = bytearray(100_000)

@tracer.job("warms up")
def warm(number):
    if number < 4:
        cache[number] = bytearray(50_000)

@tracer.job("clean")
def clean(number):
    return len(bytearray(2_000_000))

@tracer.job("fails")
def fail(number):
    raise ValueError(number)

for number in range(20):
    leak(number); warm(number); clean(number)
    if number < 3:
        try:
            fail(number)
        except ValueError:
            pass
tracer.close()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Job records of a worker with jobs of each verdict."""
    path = tmp_path_factory.mktemp("worker")
    run_jobs(path, WORKER)
    return path / "jobs"


def made_line(event: str, pid: int, number: int, name: str, time: float, **more: Any) -> str:
    """Return a line as a process on another host would have written it."""
    fields = {"host": "far-away", "boot_id": "b-1", "pid_namespace": "7", "pid": pid, "start": "1.00s"}
    fields |= {"v": 1, "event": event, "id": f"x/{pid}/{number}", "number": number, "name": name, "time": time}
    return json.dumps(fields | more)


def test_rows_have_the_documented_keys_first_and_judge_each_job(folder: Path) -> None:
    found = rows(folder)
    assert all(list(row)[: len(KEYS)] == KEYS for row in found.values())
    assert {name: row["verdict"] for name, row in found.items()} == {
        "leaks": "leaks", "warms up": "warms up", "clean": "clean", "fails": "unknown",
    }  # fmt: skip
    assert 100_000 <= found["leaks"]["retained_per_run"] <= 100_200
    assert found["leaks"]["confidence"] > 0.99
    assert found["clean"]["retained_per_run"] == 0
    assert 2_000_000 <= found["clean"]["peak_p50"] <= 2_100_000
    assert found["leaks"]["site"].startswith("leak at ")
    assert [found["fails"]["failed"], found["fails"]["error"]] == [3, "ValueError"]


def test_numbers_agree_with_those_computed_from_the_lines(folder: Path) -> None:
    ends = [line for line in lines(folder) if line["event"] == "end" and line["peak_bytes"] is not None]
    for name, row in rows(folder).items():
        own = [line for line in ends if line["name"] == name]
        peaks = sorted(line["peak_bytes"] for line in own)
        assert row["runs"] == len({line["id"] for line in own})
        outcomes = ("ok", "failed", "killed", "skipped", "deferred", "retried", "running")
        assert row["runs"] == sum(row[outcome] for outcome in outcomes)
        assert row["peak_max"] == peaks[-1]
        assert row["peak_p95"] == peaks[math.ceil(0.95 * len(peaks)) - 1]
        assert row["peak_p50"] == statistics.median_low(peaks)
        assert row["seconds_p50"] == pytest.approx(statistics.median_low(line["seconds"] for line in own))
        resident = max(
            max(line["resident_before"], line["resident_after"] or 0, line["resident_before"] + line["peak_bytes"])
            for line in own
        )
        step = 16 << 20
        assert row["suggested_limit_bytes"] == -(-(resident + resident // 5) // step) * step


def test_text_names_the_verdict_the_limit_and_the_site(folder: Path) -> None:
    text = heaptide("jobs", folder).stdout
    assert "leaks (>99.9%)" in text and "warms up" in text and "MiB" in text
    assert "63 runs in 1 process on 1 host" in text
    assert "leaks: " in text and "leak at " in text
    narrow = heaptide("jobs", folder, env={**os.environ, "COLUMNS": "80"}).stdout
    assert max(map(len, narrow.splitlines()[:8])) <= 80


def test_patterns_select_jobs_and_groups_split_rows(folder: Path) -> None:
    assert sorted(rows("--job", "cl*", "--job", "fails", folder)) == ["clean", "fails"]
    [row] = json.loads(heaptide("jobs", "--json", "--by", "worker", "--job", "clean", folder).stdout)
    assert row["process"]["pid"] == lines(folder)[0]["pid"]
    [row] = json.loads(heaptide("jobs", "--json", "--by", "host", "--job", "clean", folder).stdout)
    assert row["host"] == lines(folder)[0]["host"]
    assert heaptide("jobs", "--job", "nothing", folder, check=False).returncode == 3


def test_fail_above_compares_the_peaks(folder: Path, tmp_path: Path) -> None:
    assert heaptide("jobs", "--fail-above", "10MB", folder, check=False).returncode == 0
    failed = heaptide("jobs", "--fail-above", "1MB", "--job", "clean", folder, check=False)
    assert failed.returncode == 1 and "job clean reached 2." in failed.stderr
    (tmp_path / "jobs-x-1-1.jsonl").write_text(made_line("begin", 1, 1, "mail", 1000.0) + "\n")
    unknown = heaptide("jobs", "--fail-above", "1MB", tmp_path, check=False)
    assert unknown.returncode == 4 and "cannot judge" in unknown.stderr


def test_invalid_lines_are_skipped_with_a_note(folder: Path, tmp_path: Path) -> None:
    [file] = files(folder)
    damaged = tmp_path / "jobs-damaged.jsonl"
    damaged.write_bytes(b"\xff\n{}\n" + file.read_bytes()[:-20])
    done = heaptide("jobs", "--json", damaged)
    assert "3 of " in done.stderr and "skipped" in done.stderr
    assert sum(row["runs"] for row in json.loads(done.stdout)) == 63


def test_missing_and_empty_sources_are_explained(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "missing", "cannot read"), (tmp_path, "no job records")):
        done = heaptide("jobs", path, check=False)
        assert done.returncode == 1 and reason in done.stderr


def test_page_is_private_and_links_to_flame_graphs_next_to_captures(tmp_path: Path) -> None:
    capture = tmp_path / "work.tide"
    (tmp_path / "heaptide-flamegraph-work.html").write_text("")
    end = {"seconds": 1.5, "outcome": "ok", "capture": str(capture), "resident_after": 5}
    text = [made_line("begin", 1, 1, "mail", 1000.0), made_line("end", 1, 1, "mail", 1001.5, **end)]
    (tmp_path / "jobs-x-1-1.jsonl").write_text("\n".join(text) + "\n")
    page = tmp_path / "out.html"
    heaptide("jobs", "--html", "-o", page, tmp_path)
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    data = data_of(page)
    assert data["captures"][0]["page"] == "heaptide-flamegraph-work.html"
    assert data["captures"][0]["command"] == f"heaptide flamegraph --job JOB {capture}"
    assert data["spans"]["to"][0] - data["spans"]["from"][0] == 1.5
    assert [data["rows"][0]["title"], data["spans"]["capture"]] == ["mail", [0]]


def test_job_on_another_host_counts_as_killed_an_hour_after_its_last_record(tmp_path: Path) -> None:
    file = tmp_path / "jobs-x-1-1.jsonl"
    now = time.time()
    file.write_text("\n".join([made_line("begin", 1, 1, "old", now - 7200), made_line("begin", 2, 1, "new", now)]))
    found = rows(file)
    assert [found["old"]["killed"], found["new"]["running"]] == [1, 1]


def test_two_hosts_with_the_same_process_ids_are_one_table(tmp_path: Path) -> None:
    flags = ["--uts", "--pid", "--net", "--fork", "--mount", "--mount-proc", "--kill-child"]
    if shutil.which("unshare") is None or subprocess.run(["unshare", *flags, "true"]).returncode != 0:
        pytest.skip("namespaces cannot be created here")
    script = tmp_path / "program.py"
    script.write_text(
        "import heaptide, os, signal\n"
        "for _ in range(3):\n    with heaptide.job('mail'): pass\n"
        "heaptide.job('killed').begin()\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    env = {**os.environ, "HEAPTIDE_JOBS": str(tmp_path / "jobs")}
    for host in ("web-1", "web-2"):
        # The shell is process 1, so that the program, process 2, can be killed.
        inside = 'hostname "$0" && { "$@"; exit 0; }'
        command = ["unshare", *flags, "sh", "-c", inside, host, sys.executable, script]
        subprocess.run(command, env=env, check=True, timeout=60, stderr=subprocess.DEVNULL)
    assert {line["pid"] for line in lines(tmp_path / "jobs")} == {lines(tmp_path / "jobs")[0]["pid"]}
    found = rows(tmp_path / "jobs")
    assert [found["mail"][key] for key in ("runs", "ok", "processes", "hosts")] == [6, 6, 2, 2]
    by_host = json.loads(heaptide("jobs", "--json", "--by", "host", "--job", "mail", tmp_path / "jobs").stdout)
    assert sorted((row["host"], row["runs"]) for row in by_host) == [("web-1", 3), ("web-2", 3)]
    assert found["killed"]["killed"] == 2, "their PID namespaces have ended, and so have their processes"


def test_runs_of_recycled_workers_share_one_row(tmp_path: Path) -> None:
    run_jobs(
        tmp_path,
        """
        import multiprocessing
        def work(number):
            with heaptide.job("mail", key=number):
                if number == 7:
                    open("begun", "w").close()
                    os.kill(os.getpid(), 9)
            return number
        if __name__ == "__main__":
            import time
            with multiprocessing.get_context("fork").Pool(2, maxtasksperchild=2) as pool:
                results = [pool.apply_async(work, [number]) for number in range(12)]
                for number, result in enumerate(results):
                    if number != 7:
                        result.get(60)
                # Leaving the block ends the workers, also one that has not begun its job yet.
                while not os.path.exists("begun"):
                    time.sleep(0.01)
        """,
    )
    row = rows(tmp_path / "jobs")["mail"]
    assert [row["runs"], row["ok"], row["killed"]] == [12, 11, 1]
    assert row["processes"] >= 6
