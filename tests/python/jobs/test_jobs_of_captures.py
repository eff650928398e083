"""Tests ``heaptide jobs`` on captures, alone and together with the records of the same jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import Finished, heaptide
from support.controlled_program import page_data
from support.job_records import rows, run_jobs

pytestmark = pytest.mark.once

PROGRAM = """
import heaptide
kept = [None] * 100

@heaptide.job("leaky", key="k")
def leaky(number):
    kept[number] = [bytearray(100_000) for _ in range(3)]
    temporary = bytearray(5_000_000)

@heaptide.job("result")
def result():
    return bytearray(1_000_000)

for number in range(12):
    leaky(number)
    made = result()
    del made
"""


def test_capture_and_records_of_the_same_jobs_are_joined(tmp_path: Path, heaptide_run: Callable[..., Finished]) -> None:
    folder = tmp_path / "records"
    capture = heaptide_run(PROGRAM, env={"HEAPTIDE_JOBS": str(folder)}).capture
    of_capture, of_both = rows(capture), rows(folder, capture)
    for found in (of_capture, of_both):
        assert {name: [row["runs"], row["ok"]] for name, row in found.items()} == {
            "leaky": [12, 12],
            "result": [12, 12],
        }
        leaky = found["leaky"]
        assert 300_000 <= leaky["retained_per_run"] <= 310_000 and leaky["verdict"] == "leaks"
        assert 5_300_000 <= leaky["peak_max"] <= 5_400_000
        assert "leaky at " in leaky["site"] or "listcomp" in leaky["site"]
        assert [found["result"]["retained_per_run"], found["result"]["verdict"]] == [0, "clean"]
    assert of_capture["leaky"]["suggested_limit_bytes"] is None
    assert of_both["leaky"]["suggested_limit_bytes"] > 5_300_000
    assert heaptide("flamegraph", capture).returncode == 0
    page = tmp_path / "jobs.html"
    heaptide("jobs", "--html", "-o", page, folder, capture)
    assert page.stat().st_size > 10_000
    assert json.loads(heaptide("jobs", "--json", "--job", "leaky", folder).stdout)[0]["peak_of"] == "resident size"


def test_jobs_of_a_sampled_capture_have_the_errors_of_their_sizes(
    tmp_path: Path, heaptide_run: Callable[..., Finished]
) -> None:
    exact = heaptide_run(PROGRAM).capture
    assert rows(exact)["leaky"]["peak_max_error_bytes_95"] == 0
    sampled = heaptide_run(PROGRAM, "--sample=64k").capture
    leaky = rows(sampled)["leaky"]
    assert abs(leaky["peak_p50"] - 5_300_000) < 3 * leaky["peak_p50_error_bytes_95"]
    assert leaky["peak_max_error_bytes_95"] > 0
    page = tmp_path / "jobs.html"
    heaptide("jobs", "--html", "-o", page, sampled)
    assert '"peak_error":[' in page_data(page.read_text())
    stats = json.loads(heaptide("stats", "--json", "--by", "job", sampled).stdout)
    (leaky,) = (job for job in stats["heaptide"]["jobs"] if job["name"] == "leaky")
    for number, truth in (("allocated", 12 * 5_300_000), ("peak", 5_300_000), ("retained_now", 12 * 300_000)):
        assert abs(leaky[f"{number}_bytes"] - truth) < 3 * leaky[f"{number}_error_bytes_95"], number


def test_largest_site_states_how_many_runs_were_measured(tmp_path: Path) -> None:
    program = PROGRAM.partition("for number")[0] + (
        "for number in range(4): leaky(number)\n"
        "with heaptide.Tracker('part.tide'):\n"
        "    for number in range(4, 10): leaky(number)\n"
    )
    run_jobs(tmp_path, program)
    sources = (tmp_path / "jobs", tmp_path / "part.tide")
    leaky = rows(*sources)["leaky"]
    assert [leaky["runs"], leaky["site_runs"]] == [10, 6]
    assert 1_800_000 <= leaky["site_bytes"] < 1_801_000
    text = heaptide("jobs", *sources).stdout
    assert "1.80 MB left by the 6 measured runs, " in text
    assert "left by all runs, " in heaptide("jobs", tmp_path / "part.tide").stdout
