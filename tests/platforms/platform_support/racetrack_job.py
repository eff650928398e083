"""A job in Racetrack's job runner, driven over HTTP as its developer would."""

from __future__ import annotations

import http.client
import socket
import subprocess
from pathlib import Path
from typing import Any

from support.controlled_program import Answer, ask
from support.waiting import wait_until

from platform_support.environments import REPOSITORY, Environment

EXAMPLE = REPOSITORY / "examples" / "memory-leak" / "job.py"
PREFIX = "/pub/job/JOB_NAME/JOB_VERSION"
PERFORM = f"{PREFIX}/api/v1/perform"
PROFILER = f"{PREFIX}/api/v1/profiler"
MEMRAY = f"{PROFILER}/memray"


class RacetrackJob:
    """A served job. Only `env` configures it: no other variable names Heaptide or memray."""

    def __init__(self, environment: Environment, folder: Path, port: int, *command: str | Path, **env: str) -> None:
        self.folder = folder
        self.log = folder / "log.txt"
        self.address = f"http://127.0.0.1:{port}"
        words = command or ("racetrack_job_runner", "run", EXAMPLE, "--port", str(port))
        with self.log.open("a") as log:
            self.process = environment.start(
                *words,
                cwd=folder,
                # Files of the profiler go to the temporary folder by default.
                env={"TMPDIR": str(folder), "PORT": str(port), **env},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        wait_until(self._is_ready, "the job")

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return ask(self.address, "GET", "/ready").status == 200
        except (OSError, http.client.HTTPException):
            return False

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send one request."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return ask(self.address, method, path, body, named)

    def get(self, path: str) -> Answer:
        """Send a GET request that must be answered with 200."""
        answer = self.ask("GET", path)
        assert answer.status == 200, f"{path}: {answer.status} {answer.body[:2000]!r}\n{self.log.read_text()}"
        return answer

    def post(self, path: str, body: Any = None) -> Any:
        """Send a POST request that must be answered with 200, and return the JSON body."""
        answer = self.ask("POST", path, body)
        assert answer.status == 200, f"{path}: {answer.status} {answer.body[:2000]!r}\n{self.log.read_text()}"
        return answer.json()

    def perform(self, calls: int = 3) -> None:
        """Call the job; each call of the example leaks eight million bytes."""
        for _ in range(calls):
            assert self.ask("POST", PERFORM, {}).status == 200

    def stop(self) -> int:
        """End the job as a cluster does, and return its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait()


def free_port() -> int:
    """Return a port that is free at the moment; the job runner cannot choose one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
