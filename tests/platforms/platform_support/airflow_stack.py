"""The unmodified Airflow as a fixture: home folders, single commands, and a whole stack on loopback.

The stack has an API server with two workers, a scheduler with LocalExecutor, a DAG processor and a triggerer. There are
two teams with one bundle of DAG files each. Users of the simple auth manager must log in.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from support.waiting import NEVER, wait_until

from platform_support.environments import TESTS, Environment

PROGRAMS = TESTS / "airflow" / "programs"
USERS = {"ada": ("admin", "red|blue"), "rob": ("viewer", "red"), "bea": ("viewer", "blue")}


def free_ports(n: int) -> list[int]:
    """Return ports that are free at the moment."""
    sockets = [socket.socket() for _ in range(n)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait(poll: Callable[[], Any], event: str) -> Any:
    """Wait for a condition that is expensive to check: a request to another process."""
    return wait_until(lambda: poll() or time.sleep(0.3), event)


class Home:
    """A home folder of Airflow with a migrated database, and the environment variables of its processes."""

    def __init__(self, environment: Environment, folder: Path, profiling: dict[str, str]) -> None:
        self.environment = environment
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port, logs, trigger_logs, health = free_ports(4)
        self.address = f"http://127.0.0.1:{self.port}"
        users = ",".join(f"{name}:{role}:{teams}" for name, (role, teams) in USERS.items())
        bundles = [
            {
                "name": team,
                "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
                "kwargs": {"path": str(PROGRAMS / team), "refresh_interval": 5},
                "team_name": team,
            }
            for team in ("red", "blue")
        ]
        sections: dict[str, dict[str, str]] = {
            "core": {
                "load_examples": "False",
                "executor": "LocalExecutor",
                "parallelism": "2",
                "multi_team": "True",
                "simple_auth_manager_users": users,
                "simple_auth_manager_passwords_file": str(folder / "passwords.json"),
                "execution_api_server_url": f"{self.address}/execution/",
                "internal_api_secret_key": "secret-of-the-tests",
            },
            "api": {
                "host": "127.0.0.1",
                "port": str(self.port),
                "base_url": self.address,
                "secret_key": "of-the-tests",
            },
            # The scheduler ends if SQLite stays locked for longer than this timeout. The default of 5 seconds is
            # sometimes too short.
            "database": {"sql_alchemy_conn": f"sqlite:///{folder}/airflow.db?timeout={NEVER}"},
            "api_auth": {"jwt_secret": "0123456789abcdef0123456789abcdef"},
            "workers": {"execution_api_timeout": "60", "min_heartbeat_interval": "1"},
            "dag_processor": {
                "dag_bundle_config_list": json.dumps(bundles),
                "min_file_process_interval": "5",
                "parsing_processes": "1",
            },
            "scheduler": {
                "enable_health_check": "False",
                "scheduler_health_check_server_port": str(health),
                "scheduler_idle_sleep_time": "0.2",
                "task_instance_heartbeat_timeout": "30",
                "task_instance_heartbeat_timeout_detection_interval": "1",
                "task_instance_heartbeat_sec": "2",
                "use_job_schedule": "False",
            },
            "triggerer": {"job_heartbeat_sec": "1"},
            "logging": {
                "worker_log_server_port": str(logs),
                "trigger_log_server_port": str(trigger_logs),
                "worker_log_server_host": "127.0.0.1",
                "remote_base_log_folder": f"file://{folder / 'remote'}",
            },
            "profiling": profiling,
        }
        lines = [
            f"[{section}]\n" + "".join(f"{key} = {value.replace('%', '%%')}\n" for key, value in values.items())
            for section, values in sections.items()
        ]
        (folder / "airflow.cfg").write_text("\n".join(lines))
        (folder / "passwords.json").write_text(json.dumps({name: name for name in USERS}))
        # For tasks that run as another user.
        temporary = folder / "tmp"
        temporary.mkdir(exist_ok=True)
        temporary.chmod(0o1777)
        self.variables = {
            "AIRFLOW_HOME": str(folder),
            "NO_PROXY": "*",
            "PATH": os.pathsep.join([str(PROGRAMS / "bin"), str(environment.bin), os.environ["PATH"]]),
            "PYTHONWARNINGS": "ignore",
            "TEST_TMPDIR": str(temporary),
            "no_proxy": "*",
        }
        self._migrate()

    def _migrate(self) -> None:
        """Copy a migrated database; the first home of an installation migrates its own."""
        kept = self.environment.folder / ".migrated.db"
        if not kept.exists():
            self.run("db", "migrate")
            for team in ("red", "blue"):
                self.run("teams", "create", team)
            shutil.copy(self.folder / "airflow.db", kept)
        shutil.copy(kept, self.folder / "airflow.db")

    def run(self, *words: str, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        """Run an airflow command to its end."""
        return self.environment.run("airflow", *words, cwd=self.folder, check=check, **self.variables, **env)

    def heaptide(self, *words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a heaptide command."""
        return self.environment.run("heaptide", *words, cwd=self.folder, check=check)

    def captures(self) -> list[str]:
        """Return the names of component captures."""
        return sorted(path.name for path in self.folder.glob("*_memory*.bin*"))


class Stack:
    """The running components of a home."""

    COMMANDS: ClassVar = {
        "api": ("api-server", "--workers", "2"),
        # The API server reads the logs of LocalExecutor's tasks in the home.
        "scheduler": ("scheduler", "--skip-serve-logs"),
        "dag_processor": ("dag-processor",),
        "triggerer": ("triggerer", "--team-name", "red"),
    }

    def __init__(self, home: Home) -> None:
        self.home = home
        self.commands: dict[str, tuple[str, ...]] = dict(self.COMMANDS)
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self._tokens: dict[str, str] = {}

    def start_without_scheduler(self) -> None:
        """Start the other components and wait for the API server.

        Call `trigger` before the scheduler starts. A request that changes a DAG writes in the event loop of the API
        server. With SQLite, it blocks the loop for ever if a request of a task holds the lock and waits for the loop.
        """
        for component in self.COMMANDS:
            if component != "scheduler":
                self.start_component(component)
        wait(self.is_healthy, "the API server answers")

    def start_component(self, component: str, *command: str, **env: str) -> None:
        """Start one component, by default with its usual command. Its output goes to a file in the home."""
        log = (self.home.folder / f"{component}.log").open("a")
        self.processes[component] = self.home.environment.start(
            *(command or ("airflow", *self.commands[component])),
            cwd=self.home.folder,
            env={**self.home.variables, **env},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def log_of(self, component: str) -> str:
        """Return the output of a component so far."""
        return (self.home.folder / f"{component}.log").read_text(errors="replace")

    def stop(self) -> dict[str, int]:
        """Send SIGTERM to all components, and wait; return their exit codes."""
        processes = dict(self.processes)
        for process in processes.values():
            if process.poll() is None:
                process.terminate()
        codes = {}
        for component, process in processes.items():
            try:
                codes[component] = process.wait(NEVER)
            except subprocess.TimeoutExpired:
                codes[component] = -9
        for process in processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # workers that outlive their component
        return codes

    def check_processes(self) -> None:
        """Fail if a component has ended."""
        for component, process in list(self.processes.items()):
            assert process.poll() is None, f"{component} ended:\n{self.log_of(component)[-5000:]}"

    def is_healthy(self) -> bool:
        """Return whether the API server answers; a component that has ended is an error."""
        self.check_processes()
        try:
            return self.request("GET", "/api/v2/monitor/health")[0] == 200
        except OSError:
            return False

    def request(
        self, method: str, path: str, *, user: str = "", body: Any = None, form: dict[str, str] | None = None
    ) -> tuple[int, str]:
        """Send a request as a user, or without a login; return status and body. Redirects are not followed."""
        data = None
        headers = {}
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        if form is not None:
            data = urllib.parse.urlencode(form).encode()
        if user:
            headers["Authorization"] = f"Bearer {self.token(user)}"
        request = urllib.request.Request(self.home.address + path, data, headers, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())
        try:
            with opener.open(request, timeout=120) as answer:
                return answer.status, answer.read().decode(errors="replace")
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")

    def json(self, path: str, user: str = "ada") -> Any:
        """Return the JSON of a route that must respond with 200."""
        status, body = self.request("GET", path, user=user)
        assert status == 200, f"{path}: {status} {body}"
        return json.loads(body)

    def token(self, user: str) -> str:
        """Return the token of a user, who logs in once."""
        if user not in self._tokens:
            status, body = self.request("POST", "/auth/token", body={"username": user, "password": user})
            assert status == 201, body
            self._tokens[user] = json.loads(body)["access_token"]
        return self._tokens[user]

    def trigger(self, dag_id: str, run_id: str) -> None:
        """Start a run once the DAG is known."""

        def is_known() -> bool:
            return self.request("GET", f"/api/v2/dags/{dag_id}", user="ada")[0] == 200

        wait(is_known, f"the DAG {dag_id} is parsed")
        status, body = self.request("PATCH", f"/api/v2/dags/{dag_id}", user="ada", body={"is_paused": False})
        assert status == 200, body
        status, body = self.request(
            "POST", f"/api/v2/dags/{dag_id}/dagRuns", user="ada", body={"dag_run_id": run_id, "logical_date": None}
        )
        assert status == 200, body

    def states(self, dag_id: str, run_id: str) -> dict[str, str]:
        """Return the state of each task instance; mapped ones have their index in brackets."""
        rows = self.json(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
        return {
            row["task_id"] + (f"[{row['map_index']}]" if row["map_index"] >= 0 else ""): row["state"] for row in rows
        }

    def wait_for_run(self, dag_id: str, run_id: str) -> str:
        """Wait until a run has ended; return its state."""

        def state() -> str:
            self.check_processes()
            return str(self.json(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}")["state"])

        try:
            wait(lambda: state() in ("success", "failed"), f"the run of {dag_id} ends")
        except BaseException as error:
            raise AssertionError(f"{error}: {self.states(dag_id, run_id)}") from error
        return state()

    def processes_of(self, component: str, *, is_recorded: bool) -> list[Any]:
        """Return the processes that the page of components lists for a component, recorded ones or others."""
        rows = self.json("/heaptide/components?format=json")["components"]
        (row,) = [row for row in rows if row["component"] == component]
        return [entry for entry in row["processes"] if bool(entry["capture"]) is is_recorded]

    def ask_component(self, action: str, component: str) -> None:
        """Press a button on the page of components."""
        status, body = self.request("POST", f"/heaptide/components/{action}", user="ada", form={"component": component})
        assert status == 303, body

    def records(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1, user: str = "ada") -> list[Any]:
        """Return the records that the Memory tab of a task instance shows."""
        query = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "map_index": map_index, "format": "json"}
        found: list[Any] = self.json(f"/heaptide/task-instance?{urllib.parse.urlencode(query)}", user)
        return found


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None
