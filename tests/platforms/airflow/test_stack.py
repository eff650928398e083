"""Tests tasks, children, pages and access on a running Airflow. Before the tests, one run of each DAG has ended.

The last tests change or stop the stack, so the order of the tests matters.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from heaptide._native import size_text
from platform_support.airflow_stack import Stack, wait

HERE = Path(__file__).resolve().parent
RUN = ("memory_cases", "one")

# Task → outcome and bytes of its largest allocation, for each of its processes.
OUTCOMES = {
    "case_grows": [("ok", 20_000_033)],
    "case_fails": [("failed", 33_000_033)],
    "case_skips": [("skipped", 11_000_033)],
    "case_retried": [("retried", 13_000_033), ("ok", 13_000_033)],
    "case_killed": [("killed", 40_000_033)],
    "case_deferred": [("deferred", 15_000_033), ("ok", 5_000_033)],
    "case_rescheduled": [("deferred", 9_000_033), ("ok", 9_000_033)],
}


def allocated_by_the_task(record: dict[str, Any], n_bytes: int) -> bool:
    """Return whether a site of the DAG file held about this many bytes at the peak: sampled sizes are estimates."""
    found = [row["peak_bytes"] for row in record["sites"] if row["file"].endswith("memory_cases.py")]
    return any(abs(n - n_bytes) <= n_bytes / 50 for n in found)


@pytest.mark.behaviour("tasks", "task_outcomes")
@pytest.mark.parametrize("task", OUTCOMES)
def test_every_process_of_a_task_has_its_numbers(task: str, stack: Stack) -> None:
    records = stack.records(*RUN, task)
    assert [record["outcome"] for record in records] == [outcome for outcome, _ in OUTCOMES[task]]
    for record, (_, n_bytes) in zip(records, OUTCOMES[task], strict=True):
        assert allocated_by_the_task(record, n_bytes), record["sites"]
        assert record["peak_bytes"] >= n_bytes and record["seconds"] > 0
        assert record["retained_bytes"] is not None and record["resident_peak"] > n_bytes
    assert [record["labels"]["try_number"] for record in records][-1] == ("2" if task == "case_retried" else "1")


@pytest.mark.behaviour("tasks", "task_outcomes")
def test_mapped_instances_have_separate_records(stack: Stack) -> None:
    for index in (0, 1):
        (record,) = stack.records(*RUN, "case_mapped", index)
        assert allocated_by_the_task(record, (index + 1) * 3_000_000 + 33)
        model = json.loads(stack.home.heaptide("transform", "json", "-o", "-", record["capture"]).stdout)
        assert model["processes"][0]["command"] == [
            "airflow",
            "task",
            f"memory_cases.case_mapped[{index}]",
            "one",
            "try 1",
        ]


@pytest.mark.behaviour("tasks")
def test_retained_memory_is_the_memory_that_the_task_did_not_free(stack: Stack) -> None:
    (record,) = stack.records(*RUN, "case_grows")
    retained = {row["line"]: row["bytes"] for row in record["sites"] if row["function"] == "case_grows"}
    assert sorted(retained.values()) == [0, 20_000_033]
    model = json.loads(stack.home.heaptide("transform", "json", "-o", "-", record["capture"]).stdout)["processes"][0]
    assert (model["peak"]["bytes"], model["leaked"]["bytes"]) == (record["peak_bytes"], record["retained_bytes"])
    assert model["duration_ns"] / 1e9 == record["seconds"]
    assert model["labels"]["component"] == "task", "the process is a fork of the scheduler"
    (record,) = stack.records(*RUN, "case_fails")
    assert record["error"] == "ValueError"


@pytest.mark.behaviour("task_patterns")
def test_task_that_no_pattern_selects_is_not_recorded(stack: Stack) -> None:
    assert stack.records(*RUN, "plain") == []
    assert not (stack.home.folder / "heaptide" / "tasks" / "memory_cases" / "plain").exists()


@pytest.mark.behaviour("task_log")
def test_log_has_one_line_with_peak_and_link_and_xcom_is_untouched(stack: Stack) -> None:
    instance = f"/api/v2/dags/{RUN[0]}/dagRuns/{RUN[1]}/taskInstances/case_grows"
    events = [row["event"] for row in stack.json(f"{instance}/logs/1?full_content=true")["content"]]
    (line,) = [event for event in events if "Heaptide memory" in event]
    (record,) = stack.records(*RUN, "case_grows")
    assert f"peak {size_text(record['peak_bytes'])}, retained {size_text(record['retained_bytes'])}, " in line
    assert "case_grows (memory_cases.py:" in line
    assert f"{stack.home.address}/dags/memory_cases/runs/one/tasks/case_grows/plugin/memory" in line
    entries = stack.json(f"{instance}/xcomEntries")["xcom_entries"]
    assert [entry["key"] for entry in entries] == ["return_value"]


@pytest.mark.behaviour("parses")
def test_allocations_of_a_dag_file_are_recorded_under_its_name(stack: Stack) -> None:
    def parsed() -> Any:
        rows = stack.json("/heaptide/components?format=json")["parses"]
        found = {row["labels"]["dag_file"]: row for row in rows if row["peak_bytes"] is not None}
        return found if len(found) == 2 else None

    rows = wait(parsed, "parses of both DAG files are recorded")
    red = rows["memory_cases.py"]
    assert {"bundle": "red", "dag_file": "memory_cases.py"}.items() <= red["labels"].items()
    assert allocated_by_the_task(red, 7_000_033)
    captures = list((stack.home.folder / "heaptide" / "parses" / "red").glob("*.bin"))
    assert [path.name for path in captures] == ["memory_cases.py.bin"]
    others = [path.name for path in stack.home.folder.glob("dag_processor_memory.bin.*")]
    assert others == [], "a parse left a capture without a name"


@pytest.mark.behaviour("api_workers", "executor_workers")
def test_workers_of_api_server_and_local_executor_are_recorded(stack: Stack) -> None:
    rows = stack.json("/heaptide/components?format=json")["components"]
    roles = {row["component"]: sorted(entry["role"] for entry in row["processes"]) for row in rows}
    assert roles["api"] == ["main", "worker", "worker"]
    assert roles["scheduler"].count("LocalExecutor worker") >= 1
    captures = sorted(stack.home.folder.glob("api_memory.bin*"))
    assert len(captures) == 3
    model = json.loads(stack.home.heaptide("transform", "json", "-o", "-", *captures).stdout)
    assert len({process["pid"] for process in model["processes"]}) == 3
    assert all(process["peak"]["bytes"] > 10_000_000 for process in model["processes"][1:])


@pytest.mark.behaviour("documented_names", "no_misleading_warning")
def test_each_component_reports_where_it_is_recorded(stack: Stack) -> None:
    for component in Stack.COMMANDS:
        log = stack.log_of(component)
        path = stack.home.folder / f"{component}_memory.bin"
        assert path.exists() and f"Heaptide records {component} into {path}" in log
        assert "please check the memray is installed" not in log


@pytest.mark.behaviour("login")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/heaptide/task-instance?dag_id=memory_cases&run_id=one&task_id=case_grows"),
        ("GET", "/heaptide/task-instance/capture?dag_id=memory_cases&record=x"),
        ("GET", "/heaptide/dag?dag_id=memory_cases"),
        ("GET", "/heaptide/components"),
        ("GET", "/heaptide/components/flamegraph?name=scheduler_memory.bin"),
        ("POST", "/heaptide/components/stop"),
    ],
)
def test_every_route_requires_a_login(method: str, path: str, stack: Stack) -> None:
    form = {"component": "scheduler"} if method == "POST" else None
    assert stack.request(method, path, form=form)[0] == 401
    assert stack.request("GET", "/heaptide/docs")[0] == stack.request("GET", "/heaptide/openapi.json")[0] == 404


@pytest.mark.behaviour("teams")
def test_another_team_has_no_access(stack: Stack) -> None:
    (record,) = stack.records(*RUN, "case_grows", user="rob")
    identity = quote(f"{record['id']}/1", safe="")
    paths = [
        "/heaptide/task-instance?dag_id=memory_cases&run_id=one&task_id=case_grows",
        f"/heaptide/task-instance/flamegraph?dag_id=memory_cases&record={identity}",
        "/heaptide/dag?dag_id=memory_cases",
    ]
    for path in paths:
        assert stack.request("GET", path, user="rob")[0] == 200, path
        assert stack.request("GET", path, user="bea")[0] == 403, path
    # With permission for one DAG, a user cannot read the record of another DAG.
    own = f"/heaptide/task-instance/capture?dag_id=other_team&record={identity}"
    assert stack.request("GET", own, user="bea")[0] == 404
    twice = f"/heaptide/task-instance/capture?dag_id=other_team&dag_id=memory_cases&record={identity}"
    assert stack.request("GET", twice, user="bea")[0] in (403, 404)
    for path in ("/heaptide/components", "/heaptide/components/capture?name=scheduler_memory.bin"):
        assert stack.request("GET", path, user="rob")[0] == 403
        assert stack.request("GET", path, user="ada")[0] == 200
    assert stack.request("POST", "/heaptide/components/stop", user="rob", form={"component": "api"})[0] == 403


@pytest.mark.behaviour("teams")
def test_no_request_reaches_a_file_outside_the_captures(stack: Stack) -> None:
    for name in ("airflow.cfg", "../home/airflow.cfg", "/etc/hostname", "heaptide/control/api"):
        path = f"/heaptide/components/capture?name={quote(name, safe='')}"
        assert stack.request("GET", path, user="ada")[0] == 404
    folder = stack.home.folder / "heaptide" / "tasks" / "other_team"
    (record,) = stack.records("other_team", "one", "small")
    forged = {**record, "id": "forged/1", "capture": str(stack.home.folder / "airflow.cfg"), "v": 1, "time": 1.0}
    (folder / "jobs-forged.jsonl").write_text(json.dumps(forged) + "\n")
    path = f"/heaptide/task-instance/capture?dag_id=other_team&record={quote('forged/1/1', safe='')}"
    assert stack.request("GET", path, user="bea")[0] == 404
    (folder / "jobs-forged.jsonl").unlink()


@pytest.mark.behaviour("upload")
def test_captures_are_copied_to_the_remote_logging_location(stack: Stack) -> None:
    (record,) = stack.records(*RUN, "case_skips")
    address = record["labels"]["uploaded_to"]
    copied = Path(address.removeprefix("file://"))
    assert address.startswith("file://") and copied.read_bytes() == Path(record["capture"]).read_bytes()


@pytest.mark.behaviour("elsewhere")
def test_numbers_come_from_the_log_if_the_record_is_unreadable(stack: Stack) -> None:
    (before,) = stack.records(*RUN, "case_skips")
    folder = stack.home.folder / "heaptide" / "tasks" / "memory_cases"
    files = [path for path in folder.glob("*.jsonl") if '"case_skips"' in path.read_text()]
    hidden = [path.rename(path.with_suffix(".hidden")) for path in files]
    try:
        (record,) = stack.records(*RUN, "case_skips")
        for name in ("peak_bytes", "retained_bytes", "resident_peak"):
            assert abs(record[name] - before[name]) <= before[name] / 200, "a size has three digits"
        assert record["labels"]["uploaded_to"] == before["labels"]["uploaded_to"]
        path = "/heaptide/task-instance?dag_id=memory_cases&run_id=one&task_id=case_skips"
        status, page = stack.request("GET", path, user="rob")
        assert status == 200 and "not readable on this host; it is at" in page
    finally:
        for path in hidden:
            path.rename(path.with_suffix(".jsonl"))


@pytest.mark.behaviour("retention")
def test_tab_shows_that_a_capture_has_been_removed(stack: Stack) -> None:
    (record,) = stack.records(*RUN, "case_mapped", 0)
    path = "/heaptide/task-instance?dag_id=memory_cases&run_id=one&task_id=case_mapped&map_index=0"
    files = [stack.home.folder / "heaptide" / "tasks" / "memory_cases" / "jobs-forged.jsonl", Path(record["capture"])]
    del record["labels"]["uploaded_to"]
    files[0].write_text(json.dumps({**record, "id": "forged/1", "time": record["time"] + 1}) + "\n")
    hidden = files[1].rename(files[1].with_suffix(".hidden"))
    try:
        page = stack.request("GET", path, user="rob")[1]
        assert "The capture has been removed" in page and "it is at" not in page
    finally:
        hidden.rename(files[1])
        files[0].unlink()


@pytest.mark.behaviour("teams")
def test_folders_of_results_can_be_listed_only_by_their_user(stack: Stack) -> None:
    folder = stack.home.folder / "heaptide"
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    assert {"parses", "tasks", "memory_cases", "control"} <= {path.name for path in folders}
    assert {str(path): oct(path.stat().st_mode & 0o777) for path in folders if path.stat().st_mode & 0o077} == {}


@pytest.mark.behaviour("run_as_user", "elsewhere")
def test_task_that_runs_as_another_user_has_its_numbers(stack: Stack) -> None:
    instance = f"/api/v2/dags/{RUN[0]}/dagRuns/{RUN[1]}/taskInstances/case_other_user"
    # Only root can change the user. Otherwise the process keeps its user and only executes the program again.
    uid = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else os.getuid()
    assert stack.json(f"{instance}/xcomEntries/return_value")["value"] == uid
    (record,) = stack.records(*RUN, "case_other_user")
    assert allocated_by_the_task(record, 17_000_033) and record["airflow_state"] == "success"
    # The process that executed `sudo` has left no files.
    own = stack.home.folder / ("tmp" if uid != os.getuid() else "heaptide")
    assert [str(path) for path in stack.home.folder.glob("**/case_other_user/*.tide")] == [record["capture"]]
    assert Path(record["capture"]).is_relative_to(own)
    events = [row["event"] for row in stack.json(f"{instance}/logs/1?full_content=true")["content"]]
    assert len([event for event in events if event.startswith("Heaptide memory: ")]) == 1, events
    assert [event for event in events if event.startswith("heaptide: ")] == []


@pytest.mark.behaviour("zombies")
def test_task_that_airflow_gave_up_shows_the_state_of_its_process(stack: Stack) -> None:
    stack.wait_for_run("left_behind", "one")
    (record,) = stack.records("left_behind", "one", "case_zombie")
    assert (record["outcome"], record["airflow_state"]) == ("running", "failed")
    assert allocated_by_the_task(record, 12_000_033), "the numbers of a running process are those of this moment"
    page = stack.request(
        "GET", "/heaptide/task-instance?dag_id=left_behind&run_id=one&task_id=case_zombie", user="rob"
    )[1]
    assert "its process is still running" in page and "live now" in page and "No site was recorded" not in page
    (stack.home.folder / "marks" / "zombie may end").touch()

    def ended() -> Any:
        (record,) = stack.records("left_behind", "one", "case_zombie")
        return record if record["outcome"] == "killed" else None

    record = wait(ended, "the process of the task ends")
    assert allocated_by_the_task(record, 12_000_033)


def caller_environment() -> dict[str, str]:
    """Return the environment in which the tests were started, because npm may need the caller's configuration."""
    words = Path("/proc/self/environ").read_text(errors="replace").split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)


@pytest.mark.behaviour("ui", "run_time_control")
def test_memory_is_shown_in_the_ui(stack: Stack) -> None:
    web = HERE.parents[2] / "web"
    if not (web / "node_modules" / "playwright-core").exists():
        npm = ["npm", "install", "--no-save", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(npm, cwd=web, env=caller_environment(), check=True)
    shots = HERE.parents[2] / "build" / "platforms" / "airflow-screenshots"
    shutil.rmtree(shots, ignore_errors=True)  # pictures of earlier runs
    done = subprocess.run(
        ["node", str(HERE / "ui.mjs")],
        env={**os.environ, "ADDRESS": stack.home.address, "SHOTS": str(shots)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    # Three pages: in two themes, in windows of two widths; in the narrow one also without Airflow's menu.
    assert len(list(shots.glob("*.png"))) == 18


@pytest.mark.behaviour("run_time_control")
def test_components_and_their_workers_stop_and_start_on_request(stack: Stack) -> None:
    # The triggerer forks the process that runs triggers; its log server may be a second one.
    components = ("scheduler", "api", "triggerer")
    assert len(stack.processes_of("triggerer", is_recorded=True)) >= 2
    first = (stack.home.folder / "scheduler_memory.bin").stat().st_ino
    for action, is_recorded in (("stop", False), ("start", True)):
        for component in components:
            stack.ask_component(action, component)
        for component in components:

            def have_obeyed(component: str = component, is_recorded: bool = is_recorded) -> bool:
                return not stack.processes_of(component, is_recorded=not is_recorded)

            wait(have_obeyed, f"{component} and its workers {action}")
    assert (stack.home.folder / "scheduler_memory.bin").stat().st_ino != first
    assert stack.request("POST", "/heaptide/components/start", user="ada", form={"component": "unknown"})[0] == 404


@pytest.mark.behaviour("documented_names", "reports")
def test_components_exit_with_code_0_and_leave_readable_captures(stack: Stack) -> None:
    assert stack.stop() == dict.fromkeys([*Stack.COMMANDS, "worker", "far_worker"], 0)
    for component in Stack.COMMANDS:
        capture = stack.home.folder / f"{component}_memory.bin"
        stack.home.heaptide("flamegraph", "-f", capture)
        assert (stack.home.folder / f"heaptide-flamegraph-{component}_memory.html").exists()
        assert "peak" in stack.home.heaptide("stats", capture).stdout
    earlier = next(stack.home.folder.glob("scheduler_memory.20*.bin"))
    stack.home.heaptide("diff", earlier, stack.home.folder / "scheduler_memory.bin")
    for report in ("table", "summary", "tree"):
        stack.home.heaptide(report, earlier)
