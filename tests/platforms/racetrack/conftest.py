"""Serves the job of Racetrack's documentation in the real job runner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from platform_support.environments import Environment
from platform_support.racetrack_job import RacetrackJob, free_port


@pytest.fixture(scope="session")
def racetrack(installed: Callable[[str], Environment]) -> Environment:
    """The environment with the job runner and memray."""
    return installed("racetrack")


@pytest.fixture(scope="module")
def job(racetrack: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RacetrackJob]:
    """The example with its profiler enabled, shared by the tests of a module."""
    job = RacetrackJob(racetrack, tmp_path_factory.mktemp("job"), free_port(), MEMRAY_PROFILER="true")
    yield job
    job.stop()


@pytest.fixture
def serve(racetrack: Environment, tmp_path: Path) -> Iterator[Callable[..., RacetrackJob]]:
    """Serve the example or another command, with these variables. All use one port, as a restarted job does."""
    jobs: list[RacetrackJob] = []
    port = free_port()

    def start(*command: str | Path, **env: str) -> RacetrackJob:
        jobs.append(RacetrackJob(racetrack, tmp_path, port, *command, **env))
        return jobs[-1]

    yield start
    for each in jobs:
        each.stop()
