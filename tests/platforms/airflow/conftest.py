"""Fixtures of the tests with the real Airflow: one running stack for all tests that need one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from platform_support.airflow_celery import Broker, start_workers
from platform_support.airflow_stack import Home, Stack, wait
from platform_support.environments import Environment

PROFILING = {
    "memray_trace_components": "scheduler, dag_processor, api, triggerer",
    "heaptide_trace_components": "worker",
    "heaptide_trace_tasks": "memory_cases.case_*, celery_cases, left_behind, other_team.*",
    "heaptide_upload": "yes",
}


def have_results(stack: Stack) -> bool:
    """Return whether all task processes have written their results. A run may end earlier."""
    rows = [
        row
        for dag in ("memory_cases", "other_team", "celery_cases")
        for row in stack.json(f"/heaptide/dag?dag_id={dag}&format=json")
    ]
    has_far_log = any(row["labels"]["task_id"] == "far_grows" for row in rows)
    return has_far_log and all(row["outcome"] != "running" for row in rows)


@pytest.fixture(scope="session")
def stack(
    request: pytest.FixtureRequest,
    installed: Callable[[str], Environment],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stack]:
    """Return a stack in which one run of each DAG has ended."""
    home = Home(installed("airflow"), tmp_path_factory.mktemp("stack") / "home", PROFILING)
    broker = Broker(home)
    home.variables.update(broker.variables(home))
    stack = Stack(home)
    if request.config.getoption("--release") == "3.2":  # a triggerer of that release serves all teams
        stack.commands["triggerer"] = ("triggerer",)
    try:
        stack.start()
        start_workers(stack)
        for dag in ("left_behind", "memory_cases", "other_team", "celery_cases"):
            stack.trigger(dag, "one")
        with ThreadPoolExecutor(3) as pool:
            ended = pool.map(lambda dag: stack.wait_for_run(dag, "one"), ("memory_cases", "other_team", "celery_cases"))
            list(ended)
        wait(lambda: have_results(stack), "all task processes have written their results")
        yield stack
    finally:
        stack.stop()
        broker.stop()
