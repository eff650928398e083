"""Tests of jobs in captures: version, late recordings, kills, forks, sampled numbers, and reports by job."""

from __future__ import annotations

import gzip
import json
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import heaptide, python

Stats = Callable[..., dict[str, Any]]
Run = Callable[..., Any]


def version(capture: Path) -> int:
    """Return the version of the capture's format."""
    number: int = struct.unpack_from("<I", capture.read_bytes(), 8)[0]
    return number


def by_job(stats: Stats, capture: Path, *options: str) -> dict[str, dict[str, Any]]:
    """Return the jobs of a capture by name."""
    return {job["name"]: job for job in stats(capture, "--by", "job", *options)["heaptide"]["jobs"]}


@pytest.mark.once
def test_only_captures_with_jobs_need_a_newer_reader(heaptide_run: Run) -> None:
    assert version(heaptide_run("x = bytearray(100_000)").capture) == 1
    with_jobs = heaptide_run("import heaptide\nwith heaptide.job('a'): x = bytearray(100_000)").capture
    assert version(with_jobs) == 2


def test_job_that_runs_when_the_recording_starts_is_in_the_capture(
    heaptide_run: Run, stats: Stats, tmp_path: Path
) -> None:
    script = tmp_path / "late.py"
    script.write_text(
        "import heaptide\n"
        "with heaptide.job('early', key='k'):\n"
        "    before = bytearray(1_000_000)\n"
        f"    with heaptide.Tracker({str(tmp_path / 'late.tide')!r}):\n"
        "        during = bytearray(200_000)\n"
        "with heaptide.job('outside'): pass\n"
    )
    subprocess.run([sys.executable, script], check=True)
    jobs = by_job(stats, tmp_path / "late.tide")
    assert list(jobs) == ["early"]
    assert 200_000 <= jobs["early"]["allocated_bytes"] < 210_000
    assert jobs["early"]["running"] == 1


@pytest.mark.once
def test_killed_job_is_running_in_the_capture(heaptide_run: Run, stats: Stats) -> None:
    done = heaptide_run(
        """
        import heaptide, os
        with heaptide.job("done"): x = bytearray(100_000)
        with heaptide.job("killed"):
            y = bytearray(200_000)
            os.kill(os.getpid(), 9)
        """,
        check=False,
    )
    assert done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
    jobs = by_job(stats, done.capture)
    assert jobs["done"]["running"] == 0
    assert jobs["killed"]["running"] == 1
    assert jobs["killed"]["peak_bytes"] >= 200_000


def test_forked_children_have_their_own_jobs_and_continue_the_job_that_forked(
    heaptide_run: Run, stats: Stats, tmp_path: Path
) -> None:
    done = heaptide_run(
        """
        import heaptide, os
        def work(name, n):
            with heaptide.job(name):
                kept = [bytearray(100_000) for _ in range(3)]
                temporary = [bytearray(50_000) for _ in range(n)]
                del temporary
                return kept
        with heaptide.job("forks"):
            child = os.fork()
            if child == 0:
                inherited = bytearray(400_000)
        if child == 0:
            kept = work("in the child", 100)
        else:
            os.waitpid(child, 0)
            kept = work("in the parent", 50)
        """,
        "--follow-fork",
    )
    children = list(tmp_path.glob(f"{done.capture.name}.*"))
    assert len(children) == 1
    child = by_job(stats, children[0])
    assert 300_000 <= child["in the child"]["retained_bytes"] < 301_000
    # From Python 3.15 on, each bytearray has a bytes object for its data.
    assert 5_300_000 <= child["in the child"]["peak_bytes"] < 5_310_000
    assert child["forks"]["allocated_bytes"] >= 400_000
    parent = by_job(stats, done.capture)
    assert 2_800_000 <= parent["in the parent"]["peak_bytes"] < 2_810_000
    assert parent["forks"]["allocated_bytes"] < 100_000
    together = json.loads(heaptide("stats", "--json", "--by", "job", done.capture, *children).stdout)
    names = {job["name"]: job["jobs"] for job in together["heaptide"]["jobs"]}
    assert names == {"in the child": 1, "in the parent": 1, "forks": 2}


def test_spawned_workers_have_their_own_jobs(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "import heaptide, multiprocessing\n"
        "kept = []\n"
        "@heaptide.job('work')\n"
        "def work(n):\n"
        "    kept.extend(bytearray(100_000) for _ in range(3))\n"
        "    temporary = [bytearray(50_000) for _ in range(100)]\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(2) as pool:\n"
        "        pool.map(work, range(4), chunksize=1)\n"
        "        pool.close()\n"
        "        pool.join()\n"
    )
    python("program.py", cwd=tmp_path, HEAPTIDE="run", HEAPTIDE_LABELS="role=mail worker")
    captures = sorted(tmp_path.glob("*.tide*"))
    rows = json.loads(heaptide("jobs", "--json", "--by", "worker", *captures).stdout)
    assert sum(row["runs"] for row in rows) == 4
    for row in rows:
        assert 300_000 <= row["retained_per_run"] < 301_000
        assert 5_300_000 <= row["peak_p50"] <= row["peak_max"] < 5_310_000
    # The table names a worker by its role, not by its process ID alone.
    shown = heaptide("jobs", "--by", "worker", *captures).stdout
    assert all(f"work on {row['process']['pid']} (mail worker)" in shown for row in rows)


@pytest.mark.once
def test_sampled_numbers_of_1000_jobs_are_within_their_stated_error(heaptide_run: Run, stats: Stats) -> None:
    done = heaptide_run(
        """
        import heaptide
        kept = []
        for number in range(1_000):
            with heaptide.job(f"job {number}"):
                kept.append([bytearray(100_000) for _ in range(3)])
                temporary = [bytearray(50_000) for _ in range(100)]
                del temporary
        """,
        "--sample=64k",
    )
    jobs = by_job(stats, done.capture)
    assert len(jobs) == 1_000
    for number, error, truth in (
        ("retained_bytes", "retained_error_bytes_95", 300_003),
        ("peak_bytes", "peak_error_bytes_95", 5_300_103),
    ):
        inside = sum(abs(job[number] - truth) <= job[error] + 1_000 for job in jobs.values())
        # The error bar is a 95% interval; with few samples it is approximate.
        assert inside >= 850, (number, inside)
        mean = sum(job[number] for job in jobs.values()) / len(jobs)
        assert abs(mean / truth - 1) < 0.03, (number, mean)


@pytest.fixture(scope="module")
def two_jobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The capture of a program with two jobs."""
    folder = tmp_path_factory.mktemp("jobs")
    script = folder / "program.py"
    script.write_text(
        "import heaptide\n"
        "def load(): return bytearray(1_000_000)\n"
        "def send(): return bytearray(200_000)\n"
        "with heaptide.job('import', key='2024-01'): a = load()\n"
        "with heaptide.job('mail'): b = send()\n"
        "c = bytearray(500_000)\n"
    )
    capture = folder / "program.tide"
    heaptide("run", "-q", "-o", capture, script)
    return capture


@pytest.mark.once
def test_every_report_can_be_restricted_to_a_job(two_jobs: Path, tmp_path: Path) -> None:
    for pattern in ("import", "import[2024-*]", "#1", "im*"):
        assert "load" in heaptide("summary", "--job", pattern, two_jobs).stdout
        assert "send" not in heaptide("summary", "--job", pattern, two_jobs).stdout
    tree = heaptide("tree", "--plain", "--job", "mail", two_jobs).stdout
    assert "send" in tree and "load" not in tree
    collapsed = heaptide("transform", "collapsed", "-o", "-", "--job", "mail", two_jobs).stdout
    assert "send" in collapsed and "load" not in collapsed
    for report in ("flamegraph", "table", "timeline"):
        page = tmp_path / f"{report}.html"
        heaptide(report, "--job", "mail", "-o", page, two_jobs)
        assert page.stat().st_size > 10_000
    refused = heaptide("stats", "--job", "export", two_jobs, check=False)
    assert refused.returncode == 3
    assert "no job has this name; there are import, mail" in refused.stderr


@pytest.mark.once
def test_every_report_can_be_grouped_by_job(two_jobs: Path) -> None:
    rows = heaptide("summary", "--by", "job", two_jobs).stdout
    assert "import" in rows and "mail" in rows and "<no job>" in rows
    assert "job import" in heaptide("tree", "--plain", "--by", "job", two_jobs).stdout
    collapsed = heaptide("transform", "collapsed", "-o", "-", "--by", "job", two_jobs).stdout
    assert any(line.startswith("job import (<job>);") for line in collapsed.splitlines())
    model = json.loads(heaptide("transform", "json", "-o", "-", two_jobs).stdout)
    assert model["jobs"] == ["import", "mail"]
    assert {site.get("job") for site in model["processes"][0]["sites"]} == {0, 1, None}
    difference = json.loads(heaptide("diff", "--json", "--total", "--job", "mail", two_jobs, two_jobs).stdout)
    assert difference


@pytest.mark.once
def test_pprof_samples_have_the_job_as_a_label(two_jobs: Path, tmp_path: Path) -> None:
    profile = tmp_path / "profile.pb.gz"
    heaptide("transform", "pprof", "-o", profile, two_jobs)
    content = gzip.decompress(profile.read_bytes())
    assert b"\x03job" in content and b"\x06import" in content


@pytest.mark.once
def test_parse_prints_jobs(two_jobs: Path) -> None:
    lines = heaptide("parse", two_jobs).stdout.splitlines()
    described = [line for line in lines if line.startswith("JOB ")]
    assert len(described) == 2
    assert "job=1" in described[0] and "name=import" in described[0] and "key=2024-01" in described[0]
    assert "outcome=ok" in described[0]
    current = [line.split()[-1] for line in lines if line.startswith("CURRENT_JOB ")]
    assert current == ["job=1", "job=2", "job=0"]
    assert sum(line.startswith("JOB_END ") for line in lines) == 2
