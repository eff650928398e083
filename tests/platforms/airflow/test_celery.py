"""Tests tasks on Celery workers with different host names: `near` shares the home folder, `far` shares nothing."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from platform_support.airflow_celery import FAR, NEAR, far_folder
from platform_support.airflow_stack import Stack

RUN = ("celery_cases", "one")


def page_of(stack: Stack, task: str) -> str:
    """Return the Memory tab of a task instance, as a user of its team gets it."""
    path = f"/heaptide/task-instance?dag_id={RUN[0]}&run_id={RUN[1]}&task_id={task}"
    status, page = stack.request("GET", path, user="rob")
    assert status == 200, page
    return page


@pytest.mark.behaviour("celery_tasks", "other_hosts", "inherited_recording")
def test_task_of_a_celery_worker_that_shares_the_home_has_its_numbers_and_reports(stack: Stack) -> None:
    (record,) = stack.records(*RUN, "near_grows")
    assert (record["host"], record["outcome"], record["airflow_state"]) == (NEAR, "ok", "success")
    assert record["sites"][0]["function"] == "grows" and record["sites"][0]["peak_bytes"] == 14_000_033
    assert "not readable on this host" not in page_of(stack, "near_grows")
    identity = quote(f"{record['id']}/1", safe="")
    path = f"/heaptide/task-instance/flamegraph?dag_id={RUN[0]}&record={identity}"
    assert stack.request("GET", path, user="rob")[0] == 200


@pytest.mark.behaviour("celery_tasks", "other_hosts", "task_outcomes")
def test_task_that_was_killed_on_another_host_is_shown_as_killed(stack: Stack) -> None:
    (record,) = stack.records(*RUN, "near_killed")
    assert (record["host"], record["outcome"], record["airflow_state"]) == (NEAR, "killed", "failed")
    assert record["sites"][0]["peak_bytes"] == 14_000_033
    assert f"The process on {NEAR} did not report its end" in page_of(stack, "near_killed")
    rows = {row["labels"]["task_id"]: row for row in stack.json("/heaptide/dag?dag_id=celery_cases&format=json")}
    assert rows["near_killed"]["outcome"] == "killed" and rows["near_killed"]["peak_bytes"] > 14_000_000


@pytest.mark.behaviour("celery_tasks", "elsewhere")
def test_task_of_a_host_that_shares_nothing_shows_the_numbers_of_its_log(stack: Stack) -> None:
    (record,) = stack.records(*RUN, "far_grows")
    capture = Path(record["capture"])
    assert record["host"] == FAR and capture.is_relative_to(far_folder(stack.home))
    model = json.loads(stack.home.heaptide("transform", "json", "-o", "-", capture).stdout)["processes"][0]
    for name, exact in (("peak_bytes", model["peak"]), ("retained_bytes", model["leaked"])):
        assert abs(record[name] - exact["bytes"]) <= exact["bytes"] / 200, "a size has three digits"
    assert f"The capture is not readable on this host; it is at {FAR}:{capture}" in page_of(stack, "far_grows")
    rows = {row["labels"]["task_id"]: row for row in stack.json("/heaptide/dag?dag_id=celery_cases&format=json")}
    assert rows["far_grows"]["peak_bytes"] == record["peak_bytes"]


@pytest.mark.behaviour("elsewhere")
def test_tab_names_the_location_of_an_unreadable_capture_of_a_killed_task(stack: Stack) -> None:
    assert stack.records(*RUN, "far_killed") == []
    page = page_of(stack, "far_killed")
    assert "No record of this task instance can be read" in page and "heaptide/tasks/celery_cases" in page
    assert list((far_folder(stack.home) / "heaptide/tasks/celery_cases/far_killed").glob("*.tide"))


@pytest.mark.behaviour("celery_worker", "other_hosts")
def test_celery_worker_of_another_host_is_listed_and_recorded(stack: Stack) -> None:
    (main,) = [entry for entry in stack.processes_of("worker", is_recorded=True) if entry["role"] == "main"]
    assert main["host"] == NEAR and main["capture"] == str(stack.home.folder / "worker_memory.bin")
