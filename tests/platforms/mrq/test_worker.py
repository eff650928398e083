"""Tests the worker class in MRQ's real worker: exact bytes per job, reports, graphs, limits."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import CLASS, Worked

Work = Callable[..., Worked]


@pytest.mark.behaviour("worker_class", "report", "starts")
def test_report_after_each_job_lists_types_and_lines(work: Work) -> None:
    worked = work(["tasks.LeakDocuments"] * 2, *CLASS)
    first, second = worked.output.split("job tasks.LeakDocuments left ")[1:]
    for report, count in ((first, 3), (second, 6)):
        rows = [line.split() for line in report.splitlines()]
        assert ["tasks.Document", str(count), "+3"] in [row[:3] for row in rows]
        assert ["bytearray", str(count), "+3"] in [row[:3] for row in rows]
        assert "tasks.py:25 LeakDocuments.run" in report
    # The first job has a baseline: its report does not list objects that existed before.
    types = first.partition("bytes in")[0].splitlines()[2:-1]
    assert len(types) <= 6, first


@pytest.mark.behaviour("worker_class")
def test_setting_in_the_configuration_file_is_enough(work: Work, folder: Path) -> None:
    with (folder / "mrq-config.py").open("a") as file:
        file.write('\nWORKER_CLASS = "heaptide.platforms.mrq.Worker"\n')
    (difference,) = work(["tasks.Leak"]).differences("tasks.Leak")
    assert abs(difference - 300_000) <= 1000


@pytest.mark.behaviour("exact", "greenlets")
def test_differences_are_within_1000_bytes_in_297_of_300_runs(work: Work) -> None:
    jobs = ["tasks.Leak", "tasks.Quiet 100"] * 150
    worked = work(jobs, *CLASS, "--greenlets", "5", "--log_level", "ERROR")
    leaking, quiet = worked.differences("tasks.Leak"), worked.differences("tasks.Quiet")
    assert len(leaking) == len(quiet) == 150
    wrong = [each for each in leaking if abs(each - 300_000) > 1000] + [each for each in quiet if abs(each) > 1000]
    assert len(wrong) <= 3, wrong


@pytest.mark.behaviour("greenlets")
@pytest.mark.parametrize(("greenlets", "pairs"), [(5, 10), (100, 50)])
def test_jobs_that_take_turns_are_measured_separately(work: Work, greenlets: int, pairs: int) -> None:
    worked = work(["tasks.Waiting", "tasks.Quiet 50"] * pairs, *CLASS, "--greenlets", str(greenlets))
    waiting, quiet = worked.differences("tasks.Waiting"), worked.differences("tasks.Quiet")
    assert len(waiting) == len(quiet) == pairs
    assert all(abs(each - 300_000) <= 1000 for each in waiting), waiting
    assert all(abs(each) <= 1000 for each in quiet), quiet


@pytest.mark.behaviour("failed_jobs")
def test_failed_job_is_measured_without_the_memory_of_its_exception(work: Work) -> None:
    worked = work(["tasks.Failing"] * 2, *CLASS)
    assert [each["status"] for each in worked.documents] == ["failed"] * 2
    assert all(abs(each - 50_000) <= 1000 for each in worked.differences("tasks.Failing")[1:])
    assert "left" in worked.output and "and failed" in worked.output


@pytest.mark.behaviour("failed_jobs")
def test_job_that_timed_out_is_measured_without_the_memory_of_its_frames(work: Work) -> None:
    worked = work(["tasks.TimingOut"] * 3, *CLASS)
    assert [each["status"] for each in worked.documents] == ["timeout"] * 3
    differences = worked.differences("tasks.TimingOut")
    assert all(abs(each - 50_000) <= 1000 for each in differences[1:]), differences


@pytest.mark.behaviour("graph")
def test_graph_of_the_chosen_type_is_written_for_each_job(work: Work, folder: Path) -> None:
    options = ("--trace_memory_type", "Document", "--trace_memory_output_dir", "memdbg")
    graphs = []
    for _ in range(2):  # a worker that is started again keeps the graphs of the first
        worked = work(["tasks.LeakDocuments"] * 2, *CLASS, *options)
        stems = [f"Document-tasks.LeakDocuments-{document['_id']}" for document in worked.documents]
        for stem in stems:
            assert f"graph: {folder}/memdbg/{stem}.svg" in worked.output
            assert (folder / "memdbg" / f"{stem}.html").exists()
        graphs.append([(folder / "memdbg" / f"{stem}.dot").read_text() for stem in stems])
    assert len(list((folder / "memdbg").glob("*.svg"))) == 4
    # Three objects, each with its shortest path from the module; the same jobs give the same graphs.
    assert graphs[0] == graphs[1]
    for number, dot in enumerate(graphs[0]):
        edges = re.findall(r"-> \w+ \[label=\"([^\"]*)\"", dot)
        assert edges == ["__dict__", "kept", *(f"[{3 * number + index}]" for index in range(3))]
        assert dot.count('label="tasks.Document"') == 3
    svg = (folder / "memdbg" / f"{stems[0]}.svg").read_text()
    assert svg.startswith("<svg") and all(f">[{index}]<" in svg for index in range(3))


@pytest.mark.behaviour("absent_type")
def test_absent_type_gives_a_message(work: Work, folder: Path) -> None:
    worked = work(["tasks.Leak"], *CLASS, "--trace_memory_type", "Unicorn", "--trace_memory_output_dir", "memdbg")
    assert "job tasks.Leak left no objects of type Unicorn, so there is no graph" in worked.output
    assert [each["status"] for each in worked.documents] == ["success"]
    assert abs(worked.differences("tasks.Leak")[0] - 300_000) <= 1000


@pytest.mark.behaviour("max_memory")
def test_worker_stops_above_max_memory_and_writes_a_report_of_the_growth(work: Work, folder: Path) -> None:
    worked = work(["tasks.Grow"] * 30, *CLASS, "--max_memory", "250", "--trace_memory_output_dir", "grown")
    assert "Max memory reached, shutdown..." in worked.output
    assert 3 <= len(worked.documents) < 30
    (report,) = (folder / "grown").glob("heaptide-grown.*.txt")
    text = report.read_text()
    assert "more than max_memory = 250 MiB" in text and "Grow.run" in text and "bytearray" in text


@pytest.mark.behaviour("environment")
def test_false_in_the_environment_disables_the_measurements(work: Work) -> None:
    worked = work(["tasks.Leak"], *CLASS, MRQ_TRACE_MEMORY="False")
    assert [each["status"] for each in worked.documents] == ["success"]
    assert "memory_diff" not in worked.documents[0] and "left" not in worked.output


@pytest.mark.behaviour("inert")
def test_worker_is_unchanged_without_the_setting(work: Work) -> None:
    worked = work(["tasks.Leak"], MRQ_PLAIN_WORKER="yes")
    assert "memory_diff" not in worked.documents[0] and "heaptide" not in worked.output
