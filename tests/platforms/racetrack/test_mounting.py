"""Tests other ways to serve the profiler's routes: the job's web view (WSGI or ASGI), another port, and a token."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from platform_support.environments import Environment
from platform_support.racetrack_job import EXAMPLE, MEMRAY, PREFIX, PROFILER, RacetrackJob, free_port
from support.controlled_program import BASE, ask

# Racetrack mounts the application that a job's `webview_app` returns. The job is the example with this method added.
WEBVIEW = """
import heaptide.{kind}
{example}
class WithWebview(JobEntrypoint):
    def webview_app(self, base_url):
        return heaptide.{kind}.App()
"""
# Two requests to a mounted application, in a process that cannot import FastAPI.
WITHOUT_FASTAPI = {
    "wsgi": """
import io, sys
sys.modules["fastapi"] = sys.modules["starlette"] = None
import heaptide.wsgi

def program(environment, start_response):
    start_response("200 OK", [])
    return [b"the program"]

mounted = heaptide.wsgi.mount(program)

def ask(path):
    environment = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "wsgi.input": io.BytesIO()}
    return b"".join(mounted(environment, lambda *_: None))

print(ask("/"), b'"state"' in ask("/api/v1/profiler/status"))
""",
    "asgi": """
import asyncio, sys
sys.modules["fastapi"] = sys.modules["starlette"] = None
import heaptide.asgi

async def program(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"the program"})

mounted = heaptide.asgi.mount(program)

def ask(path):
    body = []
    async def receive():
        return {"type": "http.request"}
    async def send(message):
        body.append(message.get("body", b""))
    scope = {"type": "http", "method": "GET", "path": path, "headers": []}
    asyncio.run(mounted(scope, receive, send))
    return b"".join(body)

print(ask("/"), b'"state"' in ask("/api/v1/profiler/status"))
""",
}


def leaked_by_example(json_stats: dict[str, list[dict[str, object]]]) -> object:
    """Return the bytes of the largest allocation site, which must be the leaking line of the example."""
    first = json_stats["top_allocations_by_size"][0]
    assert "perform" in str(first["location"]), first
    return first["size"]


@pytest.mark.behaviour("mounting")
@pytest.mark.parametrize("kind", ["wsgi", "asgi"])
def test_routes_work_in_the_web_view_of_a_job(serve: Callable[..., RacetrackJob], tmp_path: Path, kind: str) -> None:
    (tmp_path / "webview_job.py").write_text(WEBVIEW.format(kind=kind, example=EXAMPLE.read_text()))
    runner = 'exec racetrack_job_runner run webview_job.py WithWebview --port "$PORT"'
    job = serve("sh", "-c", runner)
    profiler = f"{PREFIX}/api/v1/webview{BASE}"
    assert job.post(f"{profiler}/start")["result"] == "started"
    job.perform()
    assert job.post(f"{profiler}/stop")["result"] == "stopped"
    assert leaked_by_example(job.get(f"{profiler}/stats?format=json").json()) == 24_000_000
    assert job.ask("GET", f"{MEMRAY}/stats").status == 404  # the job's own route needs MEMRAY_PROFILER


@pytest.mark.behaviour("mounting")
def test_second_port_serves_the_routes(serve: Callable[..., RacetrackJob]) -> None:
    port = free_port()
    job = serve(HEAPTIDE_CONTROL=str(port))
    second_address = f"http://127.0.0.1:{port}"
    assert ask(second_address, "POST", f"{BASE}/start").json()["pids"] == [job.process.pid]
    job.perform()
    assert ask(second_address, "POST", f"{BASE}/stop").status == 200
    assert leaked_by_example(ask(second_address, "GET", f"{BASE}/stats?format=json").json()) == 24_000_000
    assert job.ask("GET", f"{PROFILER}/status").status == 404


@pytest.mark.behaviour("mounting")
@pytest.mark.parametrize("kind", ["wsgi", "asgi"])
def test_mounted_routes_do_not_need_fastapi(racetrack: Environment, tmp_path: Path, kind: str) -> None:
    done = racetrack.run("python", "-c", WITHOUT_FASTAPI[kind], cwd=tmp_path, TMPDIR=str(tmp_path))
    assert done.stdout == "b'the program' True\n"


@pytest.mark.behaviour("token")
def test_token_is_required_by_the_routes_of_the_profiler_only(serve: Callable[..., RacetrackJob]) -> None:
    job = serve(MEMRAY_PROFILER="true", HEAPTIDE_TOKEN="a-token-of-the-tests")
    for method, path in [("POST", f"{MEMRAY}/stop"), ("GET", f"{MEMRAY}/stats"), ("GET", f"{PROFILER}/status")]:
        assert job.ask(method, path).status == 401, path
        assert job.ask(method, path, Authorization="Bearer a-token-of-the-tests").status == 200, path
    assert job.ask("POST", f"{PREFIX}/api/v1/perform", {}).status == 200
