"""Tests ``heaptide worker``: reports and graphs of each job, its limits, and its options."""

from __future__ import annotations

import importlib.util
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import python

pytestmark = pytest.mark.once

TASKS = """
import sys

class Document:
    def __init__(self, text):
        self.text = text

REGISTRY = {"documents": []}

def leak(n=1):
    for _ in range(n):
        REGISTRY["documents"].append(Document(bytes(10_000)))  # the line

def clean():
    return [Document(bytes(10_000)) for _ in range(3)]

def fails():
    leak()
    raise ValueError("of the job's own")

def exits():
    leak()
    sys.exit(7)

async def leak_later():
    import asyncio
    await asyncio.sleep(0)
    leak()
    await asyncio.sleep(0)

class Later:
    async def __call__(self):
        await leak_later()

call_later = Later()

class Task:
    def run(self, params):
        leak(params["n"])
"""


def worker(folder: Path, *arguments: str, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `heaptide worker` in a folder with a module of tasks."""
    (folder / "tasks.py").write_text(TASKS)
    return python("-m", "heaptide", "worker", *arguments, cwd=folder, check=check, **env)


def retained(output: str) -> list[int]:
    """Return the retained bytes of each job from the output."""
    return [int(number.replace(",", "")) for number in re.findall(r"^job .* left (-?[\d,]+) byte", output, re.M)]


def test_each_job_is_reported_with_its_grown_types_on_standard_output(tmp_path: Path) -> None:
    output = worker(tmp_path, "--trace_memory", "--greenlets", "1", "--max_jobs", "4", "tasks:leak").stdout
    assert [number for number in retained(output) if not 10_000 < number < 13_000] == []
    rows = re.findall(r"^  tasks\.Document +(\d+) +\+(\d+) ", output, re.M)
    assert rows[:4] == [("1", "1"), ("2", "1"), ("3", "1"), ("4", "1")]
    line = TASKS.splitlines().index('        REGISTRY["documents"].append(Document(bytes(10_000)))  # the line') + 1
    assert f"tasks.py:{line} leak" in output
    assert "runpy" not in output, "the frames that started the worker do not belong to the job"


def test_report_shows_that_a_job_retains_nothing(tmp_path: Path) -> None:
    output = worker(tmp_path, "--trace_memory", "--max_jobs", "3", "tasks.clean").stdout
    assert retained(output)[1:] == [0, 0]
    assert "no objects left" in output


def test_each_job_has_a_graph_in_a_folder_that_is_created(tmp_path: Path) -> None:
    options = ["--trace_memory", "--trace_memory_type=Document", "--trace_memory_output_dir=memdbg/graphs"]
    worker(tmp_path, *options, "--max_jobs", "2", "tasks:leak", "--params", '{"n": 5}')
    folder = tmp_path / "memdbg" / "graphs"
    names = sorted(path.name for path in folder.iterdir())
    assert names == [f"Document-tasks_leak-{n}.{ending}" for n in (1, 2) for ending in ("dot", "html", "svg")]
    dot = (folder / names[0]).read_text()
    assert dot.count("tasks.Document") == 3, "several examples"
    for step in ('label="__dict__"', 'label="REGISTRY"', 'label="documents"', 'label="[0]"', 'label="[2]"'):
        assert step in dot, dot
    assert "tasks.Document" in (folder / names[2]).read_text()


def test_same_run_draws_the_same_graph(tmp_path: Path) -> None:
    drawn = []
    for name in ("one", "two"):
        options = ["--trace_memory_type=tasks.Document", f"--trace_memory_output_dir={name}"]
        worker(tmp_path, *options, "--max_jobs", "1", "tasks:leak", "--params", '{"n": 20}')
        (path,) = (tmp_path / name).glob("*.svg")
        drawn.append(path.read_text())
    assert drawn[0] == drawn[1]


def test_type_without_retained_objects_is_reported(tmp_path: Path) -> None:
    done = worker(tmp_path, "--trace_memory", "--trace_memory_type=Nowhere", "--max_jobs", "1", "tasks:leak")
    assert "job tasks:leak left no objects of type Nowhere, so there is no graph" in done.stderr
    assert list(tmp_path.glob("memory_traces/*")) == []


def test_failed_job_is_reported_and_the_worker_continues(tmp_path: Path) -> None:
    done = worker(tmp_path, "--trace_memory", "--max_jobs", "3", "tasks:fails", check=False)
    assert done.returncode == 1
    assert [number for number in retained(done.stdout) if not 10_000 < number < 13_000] == []
    assert done.stdout.count("and failed") == 3
    assert done.stderr.count("ValueError: of the job's own") == 3


@pytest.mark.parametrize("at_once", ["1", "2"])
def test_job_that_exits_fails_and_the_worker_continues(tmp_path: Path, at_once: str) -> None:
    options = ["--trace_memory", "--greenlets", at_once, "--max_jobs", "3"]
    done = worker(tmp_path, *options, "tasks:exits", check=False)
    assert done.returncode == 1
    assert done.stdout.count("and failed") == 3
    assert done.stderr.count("SystemExit: 7") == 3


def test_max_memory_stops_the_worker_after_the_current_job_with_a_report(tmp_path: Path) -> None:
    (tmp_path / "grows.py").write_text("kept = []\ndef perform():\n    kept.append(b'x' * 20_000_000)\n")
    done = python("-m", "heaptide", "worker", "--max_memory", "200", "--max_jobs", "100", "grows.py", cwd=tmp_path)
    (report,) = tmp_path.glob("memory_traces/heaptide-grown.*.txt")
    text = report.read_text()
    assert f"what grew is in {report}" in done.stderr
    assert "more than max_memory = 200 MiB" in text
    # The message states the same size as the report.
    (size,) = re.findall(r"The process has (\S+) MiB", text)
    assert f"heaptide: the process has {size} MiB, more than max_memory" in done.stderr
    assert "bytes" in text and "grows.py:3 perform" in text
    n_jobs = int(re.findall(r"^(\d+) jobs left", text, re.M)[0])
    assert 1 < n_jobs < 12


@pytest.mark.parametrize(
    ("value", "is_on"), [("False", False), ("0", False), ("no", False), ("True", True), ("1", True)]
)
def test_booleans_in_the_environment_turn_tracing_on_and_off(tmp_path: Path, value: str, is_on: bool) -> None:
    output = worker(tmp_path, "--max_jobs", "1", "tasks:leak", MRQ_TRACE_MEMORY=value).stdout
    assert (len(retained(output)) == 1) is is_on


def test_command_line_overrides_the_environment_and_invalid_values_are_reported(tmp_path: Path) -> None:
    done = worker(tmp_path, "--max_jobs", "1", "--trace_memory=no", "tasks:leak", HEAPTIDE_TRACE_MEMORY="yes")
    assert retained(done.stdout) == []
    done = worker(tmp_path, "--trace_memory", "tasks:leak", HEAPTIDE_MAX_JOBS="2", MRQ_GREENLETS="many")
    assert len(retained(done.stdout)) == 2
    assert "MRQ_GREENLETS is 'many', which is invalid" in done.stderr


@pytest.mark.parametrize("job", ["tasks:leak_later", "tasks:call_later"])
def test_concurrent_jobs_have_separate_numbers(tmp_path: Path, job: str) -> None:
    worker(tmp_path, "--max_jobs", "1", "tasks:leak")
    output = worker(tmp_path, "--trace_memory", "--greenlets", "4", "--max_jobs", "8", job).stdout
    assert len(retained(output)) == 8
    assert all(number > 10_000 for number in retained(output))


@pytest.mark.skipif(importlib.util.find_spec("gevent") is None, reason="gevent is not installed")
def test_greenlets_run_on_gevent(tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text(
        "import time, gevent\nkept = []\n"
        "def perform():\n    time.sleep(0.001)\n    kept.append(bytes(10_000))\n    time.sleep(0.001)\n"
        "    assert isinstance(gevent.getcurrent(), gevent.Greenlet)\n"
    )
    options = ["--trace_memory", "--greenlets", "3", "--max_jobs", "9", "waits.py"]
    output = python("-m", "heaptide", "worker", *options, cwd=tmp_path).stdout
    assert len(retained(output)) == 9
    assert all(number > 10_000 for number in retained(output))


def test_file_of_jobs_is_run_line_by_line(tmp_path: Path) -> None:
    lines = ['{"path": "tasks:leak", "params": {"n": 2}}', "", '{"path": "tasks:Task", "params": {"n": 3}}']
    (tmp_path / "jobs.jsonl").write_text("\n".join(lines))
    output = worker(tmp_path, "--trace_memory", "jobs.jsonl").stdout
    assert re.findall(r"^job (\S+) left", output, re.M) == ["tasks:leak", "tasks:Task"]
    assert re.findall(r"^  tasks\.Document +(\d+) +\+(\d+) ", output, re.M)[:2] == [("2", "2"), ("5", "3")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere:job"], "nowhere cannot be imported"),
        (["tasks:nobody"], "tasks has no nobody"),
        (["tasks"], "names no job"),
        (["missing.py"], "is not a Python file"),
        (["missing.jsonl"], "cannot be read"),
        (["tasks:leak", "--params", "["], "--params is not JSON"),
    ],
)
def test_job_that_cannot_be_loaded_is_reported_without_a_traceback(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = worker(tmp_path, *arguments, check=False)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_signal_ends_the_worker_after_the_current_job(tmp_path: Path) -> None:
    # The job polls: Python would handle a signal that arrives just before one long read only after that read.
    (tmp_path / "long.py").write_text(
        "import select, sys\ndef perform():\n    print('begun', flush=True)\n"
        "    while not select.select([sys.stdin], [], [], 0.1)[0]:\n        pass\n    print('ended', flush=True)\n"
    )
    command = [sys.executable, "-m", "heaptide", "worker", "--max_jobs", "50", "long.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=-1, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        assert "stopping after the current jobs" in process.stderr.readline()
        output, _ = process.communicate("go on\n")
    assert output == "ended\n"
    assert process.returncode == 0
