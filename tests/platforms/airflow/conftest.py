"""Fixtures of the tests with the real Airflow: one running stack for all tests that need one.

The stack mostly waits, so it starts and runs its DAGs while the tests that do not need it run. These tests run first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests that use the stack last, in their order."""
    items.sort(key=_uses_stack)


def _uses_stack(item: pytest.Item) -> bool:
    return "stack" in getattr(item, "fixturenames", ())


def run_dags(stack: Stack) -> None:
    """Start the stack and wait until one run of each DAG has ended."""
    stack.start_without_scheduler()
    start_workers(stack)
    for dag in ("left_behind", "memory_cases", "other_team", "celery_cases"):
        stack.trigger(dag, "one")
    stack.start_component("scheduler")
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda dag: stack.wait_for_run(dag, "one"), ("memory_cases", "other_team", "celery_cases")))
    wait(lambda: have_results(stack), "all task processes have written their results")


@pytest.fixture(scope="session", autouse=True)
def starting_stack(
    request: pytest.FixtureRequest,
    installed: Callable[[str], Environment],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Stack, Future[None]] | None]:
    """Start the stack in a thread, if a selected test uses it. Returns it with the result of its start."""
    if not any(_uses_stack(item) for item in request.session.items):
        yield None
        return
    home = Home(installed("airflow"), tmp_path_factory.mktemp("stack") / "home", PROFILING)
    broker = Broker(home)
    home.variables.update(broker.variables(home))
    stack = Stack(home)
    if request.config.getoption("--release") == "3.2":  # a triggerer of that release serves all teams
        stack.commands["triggerer"] = ("triggerer",)
    pool = ThreadPoolExecutor(1)
    started = pool.submit(run_dags, stack)
    try:
        yield stack, started
    finally:
        stack.stop()
        pool.shutdown()  # a start that is still waiting fails now, because its components have ended
        stack.stop()  # components that this start has started in between
        (home.folder / "marks").mkdir(exist_ok=True)
        (home.folder / "marks" / "zombie may end").touch()  # if a failed start left the task behind
        broker.stop()


@pytest.fixture(scope="session")
def stack(starting_stack: tuple[Stack, Future[None]]) -> Stack:
    """Return a stack in which one run of each DAG has ended."""
    stack, started = starting_stack
    started.result()
    return stack
