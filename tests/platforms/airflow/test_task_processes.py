"""Tests task processes one at a time: inherited recordings, uploads, retention, and homes that cannot be written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from platform_support.airflow_stack import PROGRAMS, Home, free_ports, wait
from platform_support.environments import Environment

REPOSITORY = PROGRAMS.parents[3]


def run_tasks(home: Home, *words: str, **env: str) -> list[dict[str, Any]]:
    """Run task processes; return the last line of each result."""
    home.environment.run("python", PROGRAMS / "task_cases.py", *words, cwd=home.folder, **home.variables, **env)
    files = sorted(
        (home.folder / "heaptide" / "tasks" / "by_hand").glob("*.jsonl"), key=lambda path: path.stat().st_mtime
    )
    return [json.loads(path.read_text().splitlines()[-1]) for path in files]


@pytest.mark.behaviour("inherited_recording", "tasks")
def test_task_process_with_an_inherited_recording_gets_its_own(
    installed: Callable[[str], Environment], tmp_path: Path
) -> None:
    home = Home(installed("airflow"), tmp_path / "home", {"heaptide_trace_tasks": "by_hand.*"})
    (record,) = run_tasks(home, "1", "inherit")
    assert record["outcome"] == "ok" and record["peak_bytes"] >= 21_000_033
    assert Path(record["capture"]).name == "run_0.try1.tide"
    assert [path.name for path in home.folder.glob("parent.tide*")] == ["parent.tide"]


@pytest.mark.behaviour("task_outcomes")
def test_rescheduled_task_is_recorded_before_airflow_may_run_it_again(
    installed: Callable[[str], Environment], tmp_path: Path
) -> None:
    home = Home(installed("airflow"), tmp_path / "home", {"heaptide_trace_tasks": "by_hand"})
    (record,) = run_tasks(home, "1", "rescheduled")
    assert record["outcome"] == "deferred" and record["labels"]["state"] == "up_for_reschedule"
    assert record["peak_bytes"] >= 21_000_033
    lines = (home.folder / "when reported").read_text().splitlines()
    assert [json.loads(line)["outcome"] for line in lines] == ["running", "deferred"]
    date = float((home.folder / "reported date").read_text())
    assert date > 1_000_000_000, "the work of Heaptide shortens the pause of the task"


@pytest.mark.behaviour("upload")
def test_address_of_an_uploaded_capture_is_that_of_the_location(
    installed: Callable[[str], Environment], tmp_path: Path
) -> None:
    profiling = {"heaptide_trace_tasks": "by_hand", "heaptide_upload": "yes"}
    home = Home(installed("airflow"), tmp_path / "home", profiling)
    (record,) = run_tasks(home, "1", AIRFLOW__LOGGING__REMOTE_LOG_CONN_ID="store")
    copied = home.folder / "remote" / "heaptide" / "tasks" / "by_hand" / "t" / "run_0.try1.tide"
    assert record["labels"]["uploaded_to"] == f"file://{copied}"
    assert copied.read_bytes() == Path(record["capture"]).read_bytes()


@pytest.fixture
def s3(installed: Callable[[str], Environment], tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Run moto's S3 server with the bucket `logs`; return its address and the folder of the Amazon provider."""
    environment = installed("airflow")
    packages = environment.packages(PROGRAMS.parent / "requirements-s3.txt")
    (port,) = free_ports(1)
    server = ("python", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port))
    with (tmp_path / "s3.log").open("w") as log:
        process = environment.start(
            *server, cwd=tmp_path, env={"PYTHONPATH": str(packages)}, stdout=log, stderr=subprocess.STDOUT
        )

    def has_bucket() -> bool:
        assert process.poll() is None, (tmp_path / "s3.log").read_text()
        try:
            return request_of_s3(f"http://127.0.0.1:{port}/logs", "PUT")[0] == 200
        except OSError:
            return False

    try:
        wait(has_bucket, "the S3 server answers")
        yield f"http://127.0.0.1:{port}", packages
    finally:
        process.terminate()
        process.wait()


def request_of_s3(address: str, method: str = "GET") -> tuple[int, bytes]:
    """Return status and body of a request. moto does not check its signature."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(address, headers={"Authorization": "AWS key:unchecked"}, method=method)
    with opener.open(request) as answer:
        return answer.status, answer.read()


@pytest.mark.behaviour("upload")
def test_capture_is_uploaded_to_s3_with_the_packages_of_remote_logging(
    s3: tuple[str, Path], installed: Callable[[str], Environment], tmp_path: Path
) -> None:
    address, packages = s3
    profiling = {"heaptide_trace_tasks": "by_hand", "heaptide_upload": "yes"}
    home = Home(installed("airflow"), tmp_path / "home", profiling)
    (record,) = run_tasks(
        home,
        "1",
        PYTHONPATH=str(packages),
        AIRFLOW__LOGGING__REMOTE_BASE_LOG_FOLDER="s3://logs/prod",
        AIRFLOW__LOGGING__REMOTE_LOG_CONN_ID="store",
        AIRFLOW_CONN_STORE=f"aws://key:secret@/?region_name=us-east-1&endpoint_url={quote(address, safe='')}",
    )
    copied = "logs/prod/heaptide/tasks/by_hand/t/run_0.try1.tide"
    assert record["labels"].get("uploaded_to") == f"s3://{copied}"
    assert request_of_s3(f"{address}/{copied}")[1] == Path(record["capture"]).read_bytes()
    # The client of S3 takes more than 15 MB.
    assert record["resident_after"] - record["resident_peak"] < 5_000_000, "the upload counts as the task's"


@pytest.mark.behaviour("tasks")
def test_jobs_report_counts_each_process_of_a_task_once(
    installed: Callable[[str], Environment], tmp_path: Path
) -> None:
    home = Home(installed("airflow"), tmp_path / "home", {"heaptide_trace_tasks": "by_hand", "heaptide_upload": "yes"})
    records = run_tasks(home, "2")
    folder = home.folder / "heaptide" / "tasks" / "by_hand"
    for file, record in zip(
        sorted(folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime), records, strict=True
    ):
        begin, _ = (json.loads(line) for line in file.read_text().splitlines())
        assert abs(record["time"] - record["seconds"] - begin["time"]) < 1e-4
    report = home.heaptide("jobs", "--json", folder).stdout
    (job,) = json.loads(report)
    assert (job["name"], job["runs"], job["killed"]) == ("by_hand.t", 2, 0), report


@pytest.mark.behaviour("retention")
def test_captures_of_tasks_are_bounded_by_number_age_and_size(
    installed: Callable[[str], Environment], tmp_path: Path
) -> None:
    profiling = {"heaptide_trace_tasks": "by_hand", "heaptide_keep": "2"}
    home = Home(installed("airflow"), tmp_path / "home", profiling)
    assert len(run_tasks(home, "4")) == 4
    folder = home.folder / "heaptide" / "tasks" / "by_hand" / "t"
    assert sorted(path.name for path in folder.iterdir()) == ["run_2.try1.tide", "run_3.try1.tide"]
    (home.folder / "heaptide" / ".swept").unlink()
    old = [*folder.iterdir(), *folder.parent.glob("*.jsonl")]
    for path in old:
        os.utime(path, (time.time() - 40 * 86_400,) * 2)
    assert len(run_tasks(home, "1")) == 1
    assert not [path for path in old if path.exists()]
    (home.folder / "heaptide" / ".swept").unlink()
    run_tasks(home, "1", AIRFLOW__PROFILING__HEAPTIDE_KEEP_BYTES="0")
    assert list(folder.iterdir()) == []


@pytest.mark.behaviour("retention")
def test_each_instance_of_a_mapped_task_keeps_its_captures(
    installed: Callable[[str], Environment], tmp_path: Path
) -> None:
    profiling = {"heaptide_trace_tasks": "by_hand", "heaptide_keep": "1"}
    home = Home(installed("airflow"), tmp_path / "home", profiling)
    assert len(run_tasks(home, "3", "mapped")) == 3
    folder = home.folder / "heaptide" / "tasks" / "by_hand" / "t"
    assert sorted(path.name for path in folder.iterdir()) == [f"run.map{index}.try1.tide" for index in range(3)]
    run_tasks(home, "2", "mapped")
    latest = ["run.map0.try1-2.tide", "run.map1.try1-2.tide", "run.map2.try1.tide"]
    assert sorted(path.name for path in folder.iterdir()) == latest


@pytest.mark.behaviour("elsewhere")
def test_task_that_cannot_write_to_the_home_has_its_capture_in_the_temporary_folder(
    installed: Callable[[str], Environment], tmp_path: Path
) -> None:
    home = Home(
        installed("airflow"), tmp_path / "home", {"heaptide_trace_tasks": "by_hand", "heaptide_home": "/dev/null"}
    )
    (tmp_path / "tmp").mkdir()
    assert run_tasks(home, "1", TMPDIR=str(tmp_path / "tmp")) == []
    assert len(list((tmp_path / "tmp").glob("heaptide-*/airflow/tasks/by_hand/t/*.tide"))) == 1


@pytest.mark.behaviour("ui")
def test_pages_have_the_colours_of_the_other_pages() -> None:
    def values(path: str, first: str) -> dict[str, str]:
        text = (REPOSITORY / path).read_text()
        start = text.index(first)
        return dict(re.findall(r"(--[a-z-]+): ([^;]+);", text[start : text.index("}", start)]))

    for first in (":root {", ":root[data-theme='dark'] {"):
        own = values("python/heaptide/platforms/airflow/web/style.css", first)
        of_pages = values("web/src/style.css", first)
        assert len(own) > 10
        assert own == {name: of_pages.get(name) for name in own}
