"""Tests parts of the pages and of the log line that tests with a stack omit: units, many workers, unusual paths."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from heaptide.platforms.airflow.web import component_page, layout
from platform_support.airflow_stack import Home
from platform_support.environments import Environment


@pytest.mark.behaviour("ui")
def test_sizes_and_durations_have_the_style_of_all_reports() -> None:
    sizes = {608: "608 B", 71_600_000: "71.6 MB", 1_000: "1.00 kB", 0: "0 B", None: layout.NONE}
    assert {n: layout.size(n) for n in sizes} == sizes
    times = {0.0042: "4.2 ms", 0.38: "380 ms", 2.371: "2.37 s", 59.96: "60.0 s", 125.0: "2:05 min", 7265.0: "2:01:05 h"}
    assert {value: layout.seconds(value) for value in times} == times


@pytest.mark.behaviour("ui")
def test_times_name_their_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "EST5")
    time.tzset()
    try:
        assert layout.moment(86_400) == "1970-01-01 19:00:00 EST"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.behaviour("ui")
def test_many_workers_of_a_component_take_one_row() -> None:
    def process(pid: int, role: str) -> dict[str, object]:
        return {
            "role": role,
            "host": "h",
            "pid": pid,
            "capture": "" if pid == 9 else f"/srv/scheduler_memory.bin.{pid}",
        }

    processes = [process(1, "main"), *(process(pid, "LocalExecutor worker") for pid in range(2, 34))]
    names = ["scheduler_memory.bin", *(f"scheduler_memory.bin.{pid}" for pid in range(2, 34))]
    found = {
        "home": "/srv",
        "components": [{"component": "scheduler", "is_controlled": True, "processes": processes}],
        "captures": [{"name": name, "bytes": 1000, "time": 1.0, "is_parse": False} for name in names],
        "parses": [],
    }
    page = component_page.page(found)
    assert page.count("<tr>") == 2 + 2 + 1 + 1, "two headings, and two rows in each table"
    assert "32 \u00d7 LocalExecutor worker" in page and "31 recording, 1 on standby" in page
    assert "32 workers" in page and "32.0 kB" in page and "name=scheduler_memory.bin.33" in page


@pytest.mark.behaviour("ui")
def test_suggested_limit_is_that_of_the_jobs_report(installed: Callable[[str], Environment], tmp_path: Path) -> None:
    program = """
from heaptide.platforms.airflow.web import dag_page, layout

labels = {"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": "-1", "try_number": "1"}
row = {"labels": labels, "peak_bytes": 1, "retained_bytes": 0, "resident_peak": 200_000_000, "sites": []}
row["resident_after"] = 224_604_160
print(dag_page.page("d", [row]), layout.limit(2 << 30), layout.limit(None))
"""
    home = Home(installed("airflow"), tmp_path / "home", {})
    page = home.environment.run("python", "-c", program, cwd=home.folder, **home.variables).stdout
    record = {"v": 1, "event": "end", "id": "r/1", "pid": 1, "name": "d.t", "time": 2.0, "outcome": "ok"}
    sizes = {"resident_peak": 200_000_000, "resident_after": 224_604_160}
    (tmp_path / "jobs-h-1.jsonl").write_text(json.dumps({**record, **sizes}) + "\n")
    assert "272 MiB" in home.heaptide("jobs", tmp_path / "jobs-h-1.jsonl").stdout
    assert ">272 MiB<" in page and "plus 20%, rounded up to a multiple of 16 MiB" in page
    assert page.rstrip().endswith(f"2 GiB {layout.NONE}")


@pytest.mark.behaviour("ui")
def test_peak_of_a_deferred_task_is_that_of_its_largest_part(
    installed: Callable[[str], Environment], tmp_path: Path
) -> None:
    program = """
from heaptide.platforms.airflow.web import dag_page, task_page

def part(run, number, function, n_bytes):
    labels = {"dag_id": "d", "run_id": run, "task_id": "t", "map_index": "-1", "try_number": number}
    site = {"function": function, "file": "d.py", "line": 3, "peak_bytes": n_bytes, "bytes": n_bytes}
    return {"id": function, "labels": labels, "peak_bytes": n_bytes, "retained_bytes": n_bytes - 1_000_000,
            "resident_peak": 1, "seconds": 1.0, "outcome": "deferred", "sites": [site], "error": None, "host": "h",
            "capture": ""}

rows = [part("one", "1", "before", 30_000_000), part("two", "1", "fails", 28_000_000),
        part("two", "2", "execute", 24_700_000), part("two", "2", "resume", 12_500_000)]
print(dag_page.page("d", rows), "END OF DAG", task_page.page("d", "two", "t", -1, rows[1:], ""))
"""
    home = Home(installed("airflow"), tmp_path / "home", {})
    done = home.environment.run("python", "-c", program, cwd=home.folder, **home.variables)
    dag, _, instance = done.stdout.partition("END OF DAG")
    cells = [re.sub("<[^>]*>", "", cell) for cell in dag.split("<tbody>")[1].split("</td>")]
    assert cells[2:5] == ["24.7 MB", "30.0 MB", "23.7 MB"] and cells[6] == "execute d.py:3", cells
    choice = instance.split('<nav class="choice">')[1].split("</nav>")[0]
    assert re.findall(">([^<]+)</a>", choice) == [
        "try 1: 28.0 MB",
        "try 2, part 1: 24.7 MB",
        "try 2, part 2: 12.5 MB",
    ]


@pytest.mark.behaviour("elsewhere", "task_log")
def test_log_that_could_not_be_read_is_read_again_later(
    installed: Callable[[str], Environment], tmp_path: Path
) -> None:
    program = """
import datetime, time, types
from airflow.utils.log.log_reader import TaskLogReader
from heaptide.platforms.airflow import profiling
from heaptide.platforms.airflow.web import task_logs

ended = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)
key = {"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": -1, "try_number": 1}
instance = types.SimpleNamespace(**key, start_date=ended, end_date=ended)
line = "Heaptide memory: peak 608 B, retained 0 B, resident 1.23 GB, 12.3 s; capture h:/x.tide; http://h"
logs = [OSError("no route"), ["Could not read served logs: no route"], ["begins", line]]
now = time.monotonic()

def read_log_chunks(*_):
    log = logs.pop(0)
    if isinstance(log, OSError):
        raise log
    return [types.SimpleNamespace(event=text) for text in log], {}

TaskLogReader.read_log_chunks = read_log_chunks
task_logs._ended_instances = lambda dag_id: [instance]
task_logs.time = types.SimpleNamespace(time=time.time, monotonic=lambda: now)
profiling.current = lambda: types.SimpleNamespace(selects_task=lambda *_: True)
seen = []
for _ in range(3):
    for _ in range(2):
        seen.append((len(task_logs.of_dag("d", set())), len(logs)))
    now += 3600
print(seen)
"""
    home = Home(installed("airflow"), tmp_path / "home", {})
    done = home.environment.run("python", "-c", program, cwd=home.folder, **home.variables)
    assert done.stdout.splitlines()[-1] == "[(0, 2), (0, 2), (0, 1), (0, 1), (1, 0), (1, 0)]"


@pytest.mark.behaviour("elsewhere", "task_log")
def test_page_reads_every_line_that_a_task_can_log(installed: Callable[[str], Environment], tmp_path: Path) -> None:
    program = """
import json
from heaptide.platforms.airflow import tasks
from heaptide.platforms.airflow.web import task_logs

key = {"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": "-1", "try_number": "1"}
arena = {"function": "Python objects (arena)", "file": "<pymalloc>", "line": 0, "peak_bytes": 608}
site = {"function": "A.f.<locals>.<lambda>", "file": "/a b/c.py", "line": 7, "peak_bytes": 1_230_000_000}
for capture, n_bytes, sites in (("/a b/c;d.tide", 608, [arena]), ("/x.tide", 12_300, [site]), ("/x.tide", None, [])):
    record = {"peak_bytes": n_bytes, "retained_bytes": 0, "resident_peak": 1_230_000_000, "seconds": 12.34,
              "sites": sites, "labels": key, "host": "h", "capture": capture}
    read = task_logs.from_line(tasks.line(record), key)
    assert read is not None, tasks.line(record)
    for name in ("peak_bytes", "retained_bytes", "resident_peak", "host", "capture", "labels"):
        assert read[name] == record[name], (name, read)
    assert read["seconds"] == 12.3
    assert [(row["function"], row["line"], row["peak_bytes"]) for row in read["sites"]] == [
        (row["function"], row["line"], row["peak_bytes"]) for row in sites
    ]
    print(json.dumps(tasks.line(record)))
"""
    home = Home(installed("airflow"), tmp_path / "home", {})
    done = home.environment.run("python", "-c", program, cwd=home.folder, **home.variables)
    first, second, _ = (json.loads(line) for line in done.stdout.splitlines()[-3:])
    assert "largest site Python objects (arena) 608 B; capture h:/a b/c;d.tide; http" in first
    assert "peak 12.3 kB, retained 0 B, resident 1.23 GB, 12.3 s" in second


@pytest.mark.behaviour("run_time_control")
def test_capture_can_be_downloaded_while_it_grows_or_shrinks(
    installed: Callable[[str], Environment], tmp_path: Path
) -> None:
    program = """
import asyncio, os
from heaptide.platforms.airflow.web import app

for change in (-50_000, 50_000):
    with open("scheduler_memory.bin", "wb") as file:
        file.write(bytes(200_000))
    response = app._report("capture", "scheduler_memory.bin")
    sent = []

    async def send(message):
        sent.append(message)
        if message["type"] == "http.response.start":
            os.truncate("scheduler_memory.bin", 200_000 + change)

    async def receive():
        await asyncio.Event().wait()

    scope = {"type": "http", "method": "GET", "headers": [], "asgi": {"spec_version": "2.4"}}
    asyncio.run(response(scope, receive, send))
    headers = dict(sent[0]["headers"])
    n_sent = sum(len(message.get("body", b"")) for message in sent[1:])
    assert n_sent == 200_000 + change, n_sent
    assert int(headers.get(b"content-length", n_sent)) == n_sent, headers
    assert b"scheduler_memory.bin" in headers[b"content-disposition"], headers
"""
    home = Home(installed("airflow"), tmp_path / "home", {"heaptide_trace_components": "scheduler"})
    home.environment.run("python", "-c", program, cwd=home.folder, **home.variables)


@pytest.mark.behaviour("run_time_control", "retention")
def test_each_component_keeps_its_latest_snapshots(installed: Callable[[str], Environment], tmp_path: Path) -> None:
    program = """
from pathlib import Path
from heaptide.platforms.airflow import profiling
from heaptide.platforms.airflow.web import component_list

chosen = profiling.current()
for component in ("scheduler", "api"):
    Path(chosen.home, f"{component}_memory.bin").write_bytes(component.encode())
earlier = [component_list.snapshot("scheduler", chosen, "") for _ in range(12)]
first = component_list.snapshot("api", chosen, "")
left = sorted(str(path) for path in Path(chosen.folder, "snapshots").iterdir())
assert left == sorted([*earlier[-2:], first]), left
assert Path(first).read_bytes() == b"api"
"""
    home = Home(installed("airflow"), tmp_path / "home", {"heaptide_keep": "2"})
    home.environment.run("python", "-c", program, cwd=home.folder, **home.variables)
