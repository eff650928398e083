"""Tests when the profiler of a Racetrack job starts and stops: environment variable, job runner functions, signals."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from platform_support.racetrack_job import MEMRAY, PROFILER, RacetrackJob
from support.commands import heaptide

SERVED_CLASS = """
import os, racetrack_job_wrapper.standalone as standalone
original = standalone.serve_asgi_app
standalone.serve_asgi_app = lambda app, http_addr, http_port, on_shutdown: original(
    app, http_addr="127.0.0.1", http_port=int(os.environ["PORT"]), on_shutdown=on_shutdown)
class Job:
    def __init__(self):
        self.kept = [None] * 2_000_000
    def perform(self):
        return len(self.kept)
standalone.{call}
"""


@pytest.mark.behaviour("spellings", "before_import")
@pytest.mark.parametrize(
    "env",
    [
        *({"MEMRAY_PROFILER": value} for value in ("true", "t", "yes", "y", "1", "on", "TRUE", "Yes", " On ")),
        {"HEAPTIDE_PROFILER": "yes"},
    ],
    ids=lambda env: " ".join(f"{name}={value!r}" for name, value in env.items()),
)
def test_every_true_value_of_the_variable_records_the_import_of_the_job(
    serve: Callable[..., RacetrackJob], tmp_path: Path, env: dict[str, str]
) -> None:
    script = tmp_path / "job.py"
    script.write_text("kept = [None] * 2_000_000\nclass Job:\n    def perform(self): return len(kept)\n")
    runner = ("sh", "-c", 'exec racetrack_job_runner run job.py --port "$PORT"')
    job = serve(*runner, **env)
    assert f"{script}:1 -> 16.000MB" in job.get(f"{MEMRAY}/stats").text
    assert job.stop() == 0


@pytest.mark.behaviour("spellings", "inert")
@pytest.mark.parametrize(
    ("env", "warning"),
    [
        ({"MEMRAY_PROFILER": "false"}, ""),
        ({"MEMRAY_PROFILER": "maybe"}, "MEMRAY_PROFILER is 'maybe', which is invalid"),
        ({}, ""),
    ],
    ids=["false", "maybe", "unset"],
)
def test_other_values_disable_the_profiler_routes(
    serve: Callable[..., RacetrackJob], env: dict[str, str], warning: str
) -> None:
    job = serve(**env)
    for path in (f"{MEMRAY}/stats", f"{PROFILER}/status"):
        assert job.ask("GET", path).status == 404
    assert warning in job.log.read_text()
    assert ("heaptide:" in job.log.read_text()) == bool(warning)


@pytest.mark.behaviour("inert")
def test_job_runner_uses_memray_if_heaptide_is_disabled(serve: Callable[..., RacetrackJob]) -> None:
    job = serve(MEMRAY_PROFILER="true", HEAPTIDE_PROFILER="no")
    assert job.ask("GET", f"{PROFILER}/status").status == 404
    assert job.ask("POST", f"{MEMRAY}/stop").body == b"null"


@pytest.mark.behaviour("before_import")
@pytest.mark.parametrize("call", ["serve_job_class(Job)", "serve_job_instance(Job())"])
def test_served_classes_and_instances_are_recorded(
    serve: Callable[..., RacetrackJob], tmp_path: Path, call: str
) -> None:
    # Both functions start the profiler. `Job()` runs before that, so only the class has its memory recorded.
    (tmp_path / "served.py").write_text(SERVED_CLASS.format(call=call))
    job = serve("python", "served.py", MEMRAY_PROFILER="true")
    assert job.get(f"{PROFILER}/status").json()["state"] == "recording"
    assert ("16.000MB" in job.get(f"{MEMRAY}/stats").text) == ("class" in call)


@pytest.mark.behaviour("flamegraph")
def test_leaks_can_be_the_default_view(serve: Callable[..., RacetrackJob]) -> None:
    job = serve(MEMRAY_PROFILER="true", MEMRAY_LEAKS="true")
    job.perform(1)
    job.post(f"{MEMRAY}/stop")
    assert job.get(f"{MEMRAY}/flamegraph").body == job.get(f"{MEMRAY}/flamegraph?leaks=1").body
    assert job.get(f"{MEMRAY}/flamegraph").body != job.get(f"{MEMRAY}/flamegraph?leaks=0").body


@pytest.mark.behaviour("signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_ended_job_leaves_a_capture_and_the_next_start_keeps_it(
    serve: Callable[..., RacetrackJob], number: signal.Signals
) -> None:
    job = serve(MEMRAY_PROFILER="true")
    job.perform()
    first = job.get(f"{PROFILER}/status").json()
    job.process.send_signal(number)
    assert job.process.wait() == (-number if number == signal.SIGKILL else 0), job.log.read_text()
    done = heaptide("stats", first["output"])
    assert "job.py:7 -> 24.0 MB" in done.stdout
    assert ("did not end its recording" in done.stdout) == (number == signal.SIGKILL)
    again = serve(MEMRAY_PROFILER="true")
    listed = again.get(f"{PROFILER}/sessions").json()["sessions"]
    assert [session["id"] for session in listed][1:] == [first["session"]]
    assert "24.0 MB" in again.get(f"{PROFILER}/sessions/{first['session']}/stats").text


@pytest.mark.behaviour("errors")
def test_missing_report_is_400_on_memrays_routes_and_404_on_others(serve: Callable[..., RacetrackJob]) -> None:
    job = serve(MEMRAY_PROFILER="true")
    stopped = job.post(f"{MEMRAY}/stop")
    shutil.rmtree(Path(stopped["processes"][0]["output"]).parent)
    for route in ("report", "flamegraph", "stats"):
        missing = job.ask("GET", f"{MEMRAY}/{route}")
        assert missing.status == 400 and missing.json()["type"] == "ValueError"
        assert job.ask("GET", f"{PROFILER}/{route}").status == 404


@pytest.mark.behaviour("signals")
def test_number_of_kept_sessions_can_be_limited(serve: Callable[..., RacetrackJob]) -> None:
    job = serve(MEMRAY_PROFILER="true", HEAPTIDE_KEEP_SESSIONS="2")
    made = [job.post(f"{MEMRAY}/stop")["session"]]
    for _ in range(3):
        made.append(job.post(f"{MEMRAY}/start")["session"])
        job.post(f"{MEMRAY}/stop")
    kept = [session["id"] for session in job.get(f"{PROFILER}/sessions").json()["sessions"]]
    assert kept == [made[3], made[2]]
