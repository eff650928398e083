"""Runs all tasks once; the tests inspect the results and files of each task."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from platform_support.environments import Environment

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="session")
def flyte(installed: Callable[[str], Environment]) -> Environment:
    """The environment with flytekit, its plugin for memray, and Flyte 2."""
    return installed("flyte")


@pytest.fixture(scope="session")
def local(flyte: Environment, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results and files of all tasks of flytekit in a local execution; `folder` is their working directory."""
    folder = tmp_path_factory.mktemp("flytekit")
    done = flyte.run("python", PROGRAMS / "run_tasks.py", cwd=folder, TMPDIR=str(folder))
    return {**results(done.stdout), "folder": folder, "stderr": done.stderr}


@pytest.fixture(scope="session")
def flyte2(flyte: Environment, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The results of all tasks of Flyte 2 in a local execution; `reports` has their report files, by task."""
    folder = tmp_path_factory.mktemp("flyte2")
    done = flyte.run("python", PROGRAMS / "flyte2_tasks.py", folder / "metadata", cwd=folder, TMPDIR=str(folder))
    reports = {task.name: sorted(task.glob("**/report.html")) for task in (folder / "metadata").iterdir()}
    return {**results(done.stdout), "reports": reports}


def results(output: str) -> dict[str, Any]:
    """Return the results that a program printed as its last line."""
    decoded: dict[str, Any] = json.loads(output.rpartition("RESULTS ")[2])
    return decoded
