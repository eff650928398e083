"""Tests the profiler's routes mounted in a program's own web server, with one worker process and with several."""

from __future__ import annotations

import importlib.util
import io
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.commands import heaptide
from support.controlled_program import BASE, Answer, ask, connect, start_program
from support.waiting import NEVER, wait_until

pytestmark = pytest.mark.once

LEAK = """
    kept = []

    def leak():
        kept.append([None] * 1_000_000)
        return len(kept)
"""
FLASK = """
    import flask
    import heaptide.wsgi

    app = flask.Flask(__name__)
    app.wsgi_app = heaptide.wsgi.mount(app.wsgi_app)

    @app.post("/leak")
    def do():
        return str(leak())
"""
FASTAPI = """
    import fastapi
    import heaptide.asgi

    app = fastapi.FastAPI()
    app.mount("/memory", heaptide.asgi.app)

    @app.post("/leak")
    def do() -> int:
        return leak()
"""
DJANGO = """
    import django
    import heaptide.wsgi
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import HttpResponse
    from django.urls import path

    settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"], SECRET_KEY="x")
    urlpatterns = [path("leak", lambda request: HttpResponse(str(leak())))]
    app = heaptide.wsgi.mount(get_wsgi_application())
"""
PLAIN = """
    import heaptide.asgi

    async def job(scope, receive, send):
        await receive()
        leak()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    app = heaptide.asgi.mount(job)
"""


def needs(*names: str) -> None:
    """Skip the test if a package is missing."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")


@contextmanager
def served(folder: Path, program: str, command: list[str]) -> Iterator[str]:
    """Run a web server with an application on a Unix socket, and yield its address."""
    (folder / "application.py").write_text(textwrap.dedent(LEAK) + textwrap.dedent(program))
    environment = {
        **os.environ,
        "HEAPTIDE_RUNTIME_DIR": str(folder / "run"),
        "HEAPTIDE_SESSIONS": str(folder / "sessions"),
    }
    with (folder / "stderr.txt").open("w") as errors:
        server = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=folder, env=environment, stdout=errors, stderr=errors
        )
    address = f"unix:{folder / 'web.sock'}"

    def is_up() -> bool:
        assert server.poll() is None, (folder / "stderr.txt").read_text()
        try:
            return bool(ask(address, "GET", "/").status)
        except (FileNotFoundError, ConnectionError):
            return False

    try:
        wait_until(is_up, "the server's first answer")
        yield address
    finally:
        server.terminate()
        server.wait()


# Both servers kill workers that do not respond. The timeouts are long, because a worker may be slow on a busy machine.


def uvicorn(workers: int) -> list[str]:
    timeout = ["--timeout-worker-healthcheck", str(NEVER)]
    return ["uvicorn", "application:app", "--uds", "web.sock", "--workers", str(workers), *timeout]


def gunicorn(workers: int, *options: str) -> list[str]:
    timeout = ["--timeout", str(NEVER)]
    return ["gunicorn", "application:app", "-b", "unix:web.sock", "-w", str(workers), *timeout, *options]


@pytest.mark.parametrize(
    ("package", "program", "server", "prefix"),
    [
        ("flask", FLASK, gunicorn(1), ""),
        ("django", DJANGO, gunicorn(1), ""),
        ("fastapi", FASTAPI, uvicorn(1), "/memory"),
        ("uvicorn", PLAIN, uvicorn(1), ""),
    ],
)
def test_routes_are_served_by_the_programs_own_web_server(
    tmp_path: Path, package: str, program: str, server: list[str], prefix: str
) -> None:
    needs(package, server[0])
    with served(tmp_path, program, server) as address:

        def get(path: str) -> Answer:
            return ask(address, "GET", f"{prefix}{BASE}/{path}")

        assert ask(address, "POST", f"{prefix}{BASE}/start").json()["result"] == "started"
        for _ in range(3):
            assert ask(address, "GET" if package == "django" else "POST", "/leak").status == 200
        stopped = ask(address, "POST", f"{prefix}{BASE}/stop").json()
        assert stopped["peak_bytes"] >= 24_000_000
        assert stopped["links"]["stats"] == f"{prefix}{BASE}/stats"
        first = get("stats?format=json").json()["top_allocations_by_size"][0]
        assert first["size"] == 24_000_000 and "leak" in first["location"]
        assert "<html" in get("flamegraph").text
        report = get("report")
        assert len(report.body) == int(report.headers["Content-Length"]) > 0
        assert ask(address, "HEAD", f"{prefix}{BASE}/report").body == b""
        assert get("nothing").json()["type"] == "NotFound"
        assert ask(address, "POST", f"{prefix}{BASE}/start", b" " * 100_000).status == 413
        assert ask(address, "GET", f"{prefix}{BASE}/docs").status == 200
        assert "paths" in ask(address, "GET", f"{prefix}{BASE}/openapi.json").json()


# Replaces the interpreter that renders reports: it writes its pid, and never finishes a flame graph.
ENDLESS = """#!/bin/sh
case "$*" in
*flamegraph*) echo $$ > FOLDER/renderer.part && mv FOLDER/renderer.part FOLDER/renderer.pid && exec sleep 86400 ;;
*) exec PYTHON "$@" ;;
esac
"""


@pytest.mark.parametrize(("program", "server"), [(FLASK, gunicorn(1)), (PLAIN, uvicorn(1))], ids=["WSGI", "ASGI"])
def test_report_is_cancelled_when_the_client_leaves(tmp_path: Path, program: str, server: list[str]) -> None:
    needs("flask", server[0])
    endless = tmp_path / "python-endless"
    endless.write_text(ENDLESS.replace("FOLDER", str(tmp_path)).replace("PYTHON", sys.executable))
    endless.chmod(0o700)
    with served(tmp_path, f"    import sys; sys.executable = {str(endless)!r}\n" + program, server) as address:
        ask(address, "POST", f"{BASE}/start")
        ask(address, "POST", f"{BASE}/stop")
        connection = connect(address)
        connection.request("GET", f"{BASE}/flamegraph")
        wait_until((tmp_path / "renderer.pid").exists, "the process that makes the report")
        renderer = Path("/proc", (tmp_path / "renderer.pid").read_text().strip())
        assert renderer.exists()
        connection.close()
        wait_until(lambda: not renderer.exists(), "the end of the process that makes the report")
        assert ask(address, "GET", f"{BASE}/status").status == 200


def test_separate_port_needs_no_web_framework(tmp_path: Path) -> None:
    program = start_program(tmp_path)
    loaded = program.evaluate(
        "[name for name in ('fastapi', 'starlette', 'flask', 'asyncio', 'http') if name in sys.modules]"
    )
    assert loaded == "[]"
    assert program.get("status").json()["state"] == "stopped"
    program.stop()


UNUSABLE = """
    import asyncio
    import io
    import heaptide.asgi
    import heaptide.wsgi

    def job(environment, start_response):
        start_response("200 OK", [])
        return [environment["PATH_INFO"].encode()]

    async def async_job(scope, receive, send):
        await send({"type": "http.response.body", "body": scope["path"].encode()})

    async def receive():
        return {"type": "http.request"}

    sync_app, async_app = heaptide.wsgi.mount(job), heaptide.asgi.mount(async_job)
    for path in ("/api/v1/profilers", "/api/v1/profiler/status"):
        statuses, sent = [], []

        async def send(message):
            sent.append(message)

        environment = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "wsgi.input": io.BytesIO()}
        body = b"".join(sync_app(environment, lambda status, headers: statuses.append(status)))
        asyncio.run(async_app({"type": "http", "method": "GET", "path": path, "headers": []}, receive, send))
        print(statuses[0], body == sent[1 if len(sent) > 1 else 0]["body"], body.decode(), sep="|")
"""


def test_application_is_served_when_the_profiler_cannot_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "app.py").write_text(textwrap.dedent(UNUSABLE))
    env = {**os.environ, "HEAPTIDE_RUNTIME_DIR": str(tmp_path / "file" / "run")}
    done = subprocess.run([sys.executable, "app.py"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    other, own = done.stdout.splitlines()
    assert other == "200 OK|True|/api/v1/profilers"
    assert own.startswith('503 Service Unavailable|True|{"error": "the profiler cannot be used in this process: ')
    assert done.stderr.count("its routes answer with 503") == 2


SPAWNING = """
    import multiprocessing
    import sys

    def work(pipe):
        for _ in iter(pipe.recv, None):
            pass

    if __name__ == "__main__":
        context = multiprocessing.get_context("spawn")
        sender, receiver = context.Pipe()
        workers = [context.Process(target=work, args=(receiver,)) for _ in range(2)]
        for worker in workers:
            worker.start()
        sys.stdin.read()
        for worker in workers:
            sender.send(None)
        for worker in workers:
            worker.join()
"""


def test_spawned_workers_form_one_group_without_configuration(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(textwrap.dedent(SPAWNING))
    socket = f"unix:{tmp_path / 'control.sock'}"
    env = {**os.environ, "HEAPTIDE_RUNTIME_DIR": str(tmp_path / "run"), "TMPDIR": str(tmp_path)}
    program = subprocess.Popen(
        [sys.executable, "job.py"], cwd=tmp_path, env={**env, "HEAPTIDE_CONTROL": socket}, stdin=subprocess.PIPE
    )

    def pids() -> set[int]:
        try:
            processes = ask(socket, "GET", f"{BASE}/status").json()["processes"]
        except (FileNotFoundError, ConnectionError):
            return set()
        return {process["pid"] for process in processes}

    wait_until(lambda: len(pids()) == 3, "the control socket of each worker")
    started = ask(socket, "POST", f"{BASE}/start").json()
    assert (started["result"], started["warnings"]) == ("started", [])
    assert set(started["pids"]) == pids()
    stopped = ask(socket, "POST", f"{BASE}/stop").json()
    assert len(stopped["processes"]) == 3 and stopped["warnings"] == []
    status = ask(socket, "GET", f"{BASE}/status").json()
    # The folder is named after the program, with a suffix that separates programs of the same name.
    assert status["name"] == "job.py" and Path(status["directory"]).name.startswith("job.py-")
    program.communicate(b"")
    assert program.returncode == 0


@pytest.mark.parametrize(
    ("program", "server", "prefix"),
    [
        (FLASK, gunicorn(2), ""),
        (FLASK, gunicorn(2, "--preload"), ""),
        (PLAIN, uvicorn(2), ""),
    ],
    ids=["gunicorn", "gunicorn-preload", "uvicorn"],
)
def test_request_to_any_worker_acts_on_all(tmp_path: Path, program: str, server: list[str], prefix: str) -> None:
    needs(server[0], *(["flask"] if program is FLASK else []))
    with served(tmp_path, program, server) as address:

        def workers() -> set[int]:
            status = ask(address, "GET", f"{prefix}{BASE}/status").json()
            return {process["pid"] for process in status["processes"]}

        n_expected = 3 if "--preload" in server else 2
        wait_until(lambda: len(workers()) >= n_expected, "all workers")
        started = ask(address, "POST", f"{prefix}{BASE}/start").json()
        assert started["warnings"] == []
        assert set(started["pids"]) == workers()
        # Any worker may answer a request. While the first one is stopped, another one must answer.
        ask(address, "POST", "/leak")
        first = ask(address, "GET", f"{prefix}{BASE}/status?scope=process").json()["pid"]
        os.kill(first, signal.SIGSTOP)
        try:
            ask(address, "POST", "/leak")
            second = ask(address, "GET", f"{prefix}{BASE}/status?scope=process").json()["pid"]
        finally:
            os.kill(first, signal.SIGCONT)
        assert second != first and {first, second} <= set(started["pids"])
        again = ask(address, "POST", f"{prefix}{BASE}/start").json()
        assert (again["result"], again["session"]) == ("already_running", started["session"])
        stopped = ask(address, "POST", f"{prefix}{BASE}/stop").json()
        assert stopped["session"] == started["session"] and stopped["warnings"] == []
        assert {process["pid"] for process in stopped["processes"]} == set(started["pids"])
        status = ask(address, "GET", f"{prefix}{BASE}/status").json()
        assert {process["state"] for process in status["processes"]} == {"stopped"}
        report = ask(address, "GET", f"{prefix}{BASE}/report")
        with tarfile.open(fileobj=io.BytesIO(report.body)) as archive:
            assert len(archive.getnames()) == n_expected
            archive.extractall(tmp_path / "elsewhere", filter="data")
        captures = sorted((tmp_path / "elsewhere").rglob("*.tide"))
        assert "leak" in heaptide("stats", *captures).stdout
        stats = ask(address, "GET", f"{prefix}{BASE}/stats").text
        assert "leak" in stats and "different runs" not in stats
        (only,) = ask(address, "GET", f"{prefix}{BASE}/sessions").json()["sessions"]
        assert only["id"] == started["session"]


DROPPING = """
    import json
    import os
    import sys
    import heaptide
    import heaptide.control

    # Like servers that start as root: workers switch to another user before they start their control API. Modules are
    # imported here because that user may not be able to read them.
    with heaptide.Tracker("before.tide"):
        pass
    os.environ["HEAPTIDE_GROUP"] = "before"
    heaptide.control.start_as_set().stop()
    del os.environ["HEAPTIDE_GROUP"]
    pipes = []
    for _ in range(2):
        order_out, order_in = os.pipe()
        answer_out, answer_in = os.pipe()
        if os.fork() == 0:
            os.close(order_in)
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            control = heaptide.control.start_as_set()
            os.write(answer_in, b"\\n")
            for line in os.fdopen(order_out):
                method, path = line.split()
                answer = control.handle(method, heaptide.control.BASE + path, trusted=method == "DELETE")
                body = b"".join(iter(answer.read, b""))
                os.write(answer_in, json.dumps([answer.status, json.loads(body)]).encode() + b"\\n")
            os._exit(0)
        os.close(order_out)
        pipes.append((order_in, os.fdopen(answer_out)))
    for _, answers in pipes:
        answers.readline()

    def ask(worker, method, path):
        order, answers = pipes[worker]
        os.write(order, f"{method} {path}\\n".encode())
        return json.loads(answers.readline())

    _, started = ask(0, "POST", "/start")
    print(len(started["pids"]), started["warnings"])
    session = started["session"]
    for worker in (0, 1):
        _, listed = ask(worker, "GET", "/sessions")
        print([[one["id"] == session, one["state"]] for one in listed["sessions"]])
        status, _ = ask(worker, "DELETE", f"/sessions/{session}")
        print(status)
    _, stopped = ask(1, "POST", "/stop")
    print(stopped["result"], stopped["session"] == session, stopped["warnings"])
    _, listed = ask(0, "GET", "/sessions")
    print([one["state"] for one in listed["sessions"]])
"""


def test_workers_that_switched_to_another_user_form_one_group() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    # Other users cannot enter the folders of pytest.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for below in ("run", "sessions"):
            (folder / below).mkdir()
            os.chown(folder / below, 65534, 65534)
        (folder / "job.py").write_text(textwrap.dedent(DROPPING))
        env = {
            **os.environ,
            "HEAPTIDE_RUNTIME_DIR": str(folder / "run"),
            "HEAPTIDE_SESSIONS": str(folder / "sessions"),
        }
        done = subprocess.run([sys.executable, "job.py"], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert printed[:1] == ["2 []"], done.stderr
    assert printed[1:5] == ["[[True, 'recording']]", "409"] * 2
    assert printed[5:] == ["stopped True []", "['finished']"]


def test_responses_conform_to_the_openapi_document(tmp_path: Path) -> None:
    """Generate requests for every route with schemathesis, and check the responses against the document."""
    needs("schemathesis")
    program = start_program(tmp_path, "'0', requests_per_second=100000")
    program.post("start")
    program.evaluate("leak(1)")
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{program.address}/openapi.json"]
    # Each report starts a process, so only one of each type is requested.
    others = "(flamegraph|table|summary|tree|timeline)$|sessions/.*/|memray/stats$"
    options = ["--max-examples", "2", "--seed", "1", "--phases", "coverage,fuzzing", "--workers", "2"]
    # The time of a response is not tested.
    options += ["--exclude-path-regex", others, "--request-timeout", str(NEVER), "--suppress-health-check", "all"]
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    done = subprocess.run(
        [*command, *options, "--checks", checks, "--no-color"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert program.get("status").json()["pid"] == program.process.pid
    program.stop()
