"""Tests the API server's workers, which gunicorn forks, and the Celery worker, which is a component of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from platform_support.airflow_stack import Home, Stack, wait
from platform_support.environments import Environment


@pytest.mark.behaviour("api_workers", "run_time_control")
def test_forked_workers_of_gunicorn_are_recorded_and_controlled(
    installed: Callable[[str], Environment], tmp_path: Path
) -> None:
    home = Home(installed("airflow"), tmp_path / "home", {"heaptide_trace_components": "api"})
    stack = Stack(home)
    stack.start_component("api", AIRFLOW__API__SERVER_TYPE="gunicorn")
    try:
        wait(stack.is_healthy, "the API server answers")
        wait(lambda: len(stack.processes_of("api", is_recorded=True)) == 3, "both workers are recorded")
        for action, is_recorded in (("stop", False), ("start", True)):
            stack.ask_component(action, "api")
            wait(
                lambda state=is_recorded: len(stack.processes_of("api", is_recorded=state)) == 3,
                f"all processes {action}",
            )
    finally:
        assert stack.stop() == {"api": 0}
    (first,) = home.folder.glob("api_memory.20*.bin")
    for name in (first.name, "api_memory.bin"):
        workers = list(home.folder.glob(f"{name}.*"))
        assert len(workers) == 2
        assert "3 processes" in home.heaptide("stats", home.folder / name, *workers).stdout


@pytest.mark.behaviour("celery_worker")
def test_celery_worker_that_python_starts_as_a_module_is_a_component(
    installed: Callable[[str], Environment], tmp_path: Path
) -> None:
    home = Home(installed("airflow"), tmp_path / "home", {"heaptide_trace_components": "worker"})
    stack = Stack(home)
    command = (
        "python",
        "-m",
        "airflow",
        "celery",
        "worker",
        "--concurrency",
        "1",
        "--skip-serve-logs",
        "--without-mingle",
        "--without-gossip",
    )
    stack.start_component(
        "worker",
        *command,
        AIRFLOW__CORE__EXECUTOR="CeleryExecutor",
        AIRFLOW__CELERY__BROKER_URL="memory://",
        AIRFLOW__CELERY__RESULT_BACKEND=f"db+sqlite:///{home.folder}/celery.db",
        AIRFLOW__CELERY__WORKER_ENABLE_REMOTE_CONTROL="False",
    )
    try:
        wait(lambda: " ready" in stack.log_of("worker"), "the worker is ready")
    finally:
        assert stack.stop() == {"worker": 0}
    assert f"Heaptide records worker into {home.folder}/worker_memory.bin" in stack.log_of("worker")
    assert "celery" in home.heaptide("tree", home.folder / "worker_memory.bin").stdout
