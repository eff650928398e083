"""Tests a job of Racetrack, served over HTTP, whose developer starts and stops the profiler.

The example is the one in Racetrack's documentation: a job that leaks eight million bytes with each call.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from heaptide import settings
from heaptide.activation import config_files
from support.commands import REPOSITORY, heaptide
from support.controlled_program import BASE, Answer, ControlledProgram, ask, page_data
from support.served_job import EXAMPLE, MEMRAY, PERFORM, PREFIX, leak, serve

pytestmark = pytest.mark.once

REPORT = f"{MEMRAY}/report?format=heaptide"


@pytest.fixture
def leaking(tmp_path: Path) -> Iterator[ControlledProgram]:
    """The example, served with its profiler on."""
    job = serve(tmp_path, MEMRAY_PROFILER="true")
    yield job
    job.stop()


def test_every_spelling_of_yes_enables_the_profiler() -> None:
    for value in ["true", "T", "Yes", "y", "1", " on ", "TRUE"]:
        chosen = settings.resolve({"MEMRAY_PROFILER": value}, config_files.Configuration())
        assert chosen.profiler is True, value


@pytest.mark.parametrize("value", ["true", " On "])
def test_profiling_starts_before_the_job_is_imported(tmp_path: Path, value: str) -> None:
    script = tmp_path / "job.py"
    script.write_text("kept = [None] * 2_000_000\ndef perform(): return len(kept)\n")
    job = serve(tmp_path, script, MEMRAY_PROFILER=value)
    assert f"{script}:1 -> 16.0 MB" in job.get("stats").text
    assert job.stop() == 0


@pytest.mark.parametrize(("value", "is_warned"), [("false", False), ("maybe", True)])
def test_other_values_leave_the_profiler_off_and_unknown_ones_are_reported(
    tmp_path: Path, value: str, is_warned: bool
) -> None:
    job = serve(tmp_path, MEMRAY_PROFILER=value)
    for route in ["status", "memray/start", "memray/stats"]:
        assert job.ask("GET", route).status == 404
    assert ("MEMRAY_PROFILER" in job.stderr()) == is_warned
    assert job.stop() == 0


def test_heaptide_profiler_takes_precedence_over_memray_profiler(tmp_path: Path) -> None:
    job = serve(tmp_path, HEAPTIDE_PROFILER="true", MEMRAY_PROFILER="false")
    assert job.get("status").json()["state"] == "recording"
    assert job.stop() == 0


def test_start_is_idempotent_and_loses_nothing(leaking: ControlledProgram) -> None:
    running = leaking.get("status").json()["session"]
    leak(leaking, 1)
    again = leaking.post(f"{MEMRAY}/start")
    assert (again["result"], again["session"]) == ("already_running", running)
    assert again["pids"] == [leaking.process.pid] and Path(again["output"]).exists()
    leak(leaking, 2)
    leaking.post(f"{MEMRAY}/stop")
    assert "24.000MB" in leaking.get(f"{MEMRAY}/stats").text
    fresh = leaking.post(f"{MEMRAY}/start")
    assert fresh["result"] == "started" and fresh["session"] != running


def test_fifty_concurrent_starts_make_one_session(leaking: ControlledProgram) -> None:
    leaking.post(f"{MEMRAY}/stop")
    before = len(leaking.get("sessions").json()["sessions"])
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: leaking.ask("POST", f"{MEMRAY}/start"), range(50)))
    assert {answer.status for answer in answers} == {200}
    assert [answer.json()["result"] for answer in answers].count("started") == 1
    assert len({answer.json()["session"] for answer in answers}) == 1
    assert len(leaking.get("sessions").json()["sessions"]) == before + 1


def test_stop_completes_the_capture_and_returns_its_numbers(
    leaking: ControlledProgram, stats: Callable[..., dict[str, Any]]
) -> None:
    leak(leaking)
    stopped = leaking.post(f"{MEMRAY}/stop")
    assert stopped["result"] == "stopped"
    capture = Path(stopped["processes"][0]["output"])
    assert stopped["bytes"] == capture.stat().st_size
    assert stopped["peak_bytes"] == stats(capture)["metadata"]["peak_memory"] >= 24_000_000
    assert stopped["duration_ms"] > 0
    assert leaking.ask("GET", stopped["links"]["flamegraph"]).status == 200
    assert leaking.post(f"{MEMRAY}/stop")["result"] == "already_stopped"


def test_report_is_the_capture_whole_or_in_ranges(
    leaking: ControlledProgram, tmp_path: Path, stats: Callable[..., Any]
) -> None:
    leak(leaking)
    partial = leaking.get(REPORT)
    (tmp_path / "partial.tide").write_bytes(partial.body)
    assert stats(tmp_path / "partial.tide")["top_allocations_by_size"][0]["size"] == 24_000_000
    stopped = leaking.post(f"{MEMRAY}/stop")
    whole = leaking.get(REPORT)
    assert whole.body == Path(stopped["processes"][0]["output"]).read_bytes()
    assert whole.headers["Content-Type"] == "application/octet-stream"
    assert whole.headers["Content-Disposition"] == 'inline; filename="memray-report.bin"'
    head = leaking.ask("HEAD", REPORT)
    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Length"] == str(len(whole.body))
    tag = whole.headers["Etag"]
    part = leaking.ask("GET", REPORT, Range="bytes=8-15", If_Range=tag)
    assert (part.status, part.body) == (206, whole.body[8:16])
    assert part.headers["Content-Range"] == f"bytes 8-15/{len(whole.body)}"
    assert leaking.ask("GET", REPORT, Range="bytes=-4").body == whole.body[-4:]
    assert leaking.ask("GET", REPORT, Range=f"bytes={len(whole.body)}-").status == 416
    assert leaking.ask("GET", REPORT, If_None_Match=tag).status == 304


def test_downloading_a_large_capture_does_not_grow_the_memory_of_the_job(
    leaking: ControlledProgram, tmp_path: Path
) -> None:
    leak(leaking)
    stopped = leaking.post("stop")
    capture = Path(stopped["processes"][0]["output"])
    # A capture may end with zeros, which readers skip: 2 GB of them take no disk space.
    # Recording 2 GB of events would take minutes; sending them works the same.
    size = 2 << 30
    with capture.open("r+b") as file:
        file.truncate(size)
    before = leaking.get("status").json()["resident_bytes"]
    with urllib.request.urlopen(f"{leaking.address}{BASE}/report") as answer:
        assert sum(map(len, iter(lambda: answer.read(1 << 20), b""))) == size
    assert b"24.0 MB" in leaking.get("stats").body
    assert leaking.get("status").json()["resident_bytes"] - before <= 16 << 20


def test_flame_graph_opens_offline_and_shows_the_leaking_line(leaking: ControlledProgram) -> None:
    leak(leaking)
    leaking.post(f"{MEMRAY}/stop")
    page = leaking.get(f"{MEMRAY}/flamegraph")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert re.fullmatch(r'inline; filename="[^"]+\.html"', page.headers["Content-Disposition"])
    assert not re.search(r'(src|href)="https?:', page.text)
    assert "default-src 'none'" in page.text
    shown = page_data(page.text)
    assert "perform" in shown and "memory-leak/job.py" in shown
    for query in ["leaks=1", "leaks=0", "inverted=1", f"process={leaking.process.pid}"]:
        assert leaking.ask("GET", f"{MEMRAY}/flamegraph?{query}").status == 200
    assert leaking.ask("GET", f"{MEMRAY}/flamegraph?leaks=perhaps").status == 400


def test_leaks_can_be_the_default_view(tmp_path: Path) -> None:
    job = serve(tmp_path, MEMRAY_PROFILER="true", MEMRAY_LEAKS="true")
    leak(job, 1)
    job.post("stop")
    assert job.get("flamegraph").body == job.get("flamegraph?leaks=1").body
    assert job.get("flamegraph").body != job.get("flamegraph?leaks=0").body
    job.stop()


def test_stats_name_the_leaking_line_with_its_exact_bytes(leaking: ControlledProgram) -> None:
    leak(leaking)
    leaking.post(f"{MEMRAY}/stop")
    text = leaking.get(f"{MEMRAY}/stats")
    assert text.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert "Content-Disposition" not in text.headers
    largest = re.search(r"Top 5 largest allocating locations \(by size\):\n\t- (.*)", text.text)
    assert largest is not None
    assert re.fullmatch(r"perform:.*/memory-leak/job.py:7 -> 24.000MB", largest[1])
    numbers = leaking.get(f"{MEMRAY}/stats?format=json").json()
    first = numbers["top_allocations_by_size"][0]
    assert first["size"] == 24_000_000 and first["location"].endswith("memory-leak/job.py:7")


def error_of(answer: Answer) -> tuple[int, str, str]:
    """Check that an answer is an error in JSON, and return its status, its type and its sentence."""
    assert answer.headers["Content-Type"] == "application/json"
    body = answer.json()
    assert set(body) == {"error", "type"} and body["error"]
    return answer.status, body["type"], body["error"]


@pytest.mark.parametrize("route", ["memray/flamegraph", "memray/stats", "tree"])
def test_report_of_a_damaged_capture_is_answered_with_500_and_its_path(leaking: ControlledProgram, route: str) -> None:
    session = leaking.post("stop")["session"]
    capture = next((leaking.folder / "sessions" / session).glob("*.tide"))
    capture.write_bytes(b"this is no capture")
    status, type_, sentence = error_of(leaking.ask("GET", route))
    assert (status, type_) == (500, "CommandError")
    assert str(capture) in sentence


@pytest.mark.parametrize("route", ["report", "flamegraph", "stats"])
def test_reports_without_a_session_are_404_and_on_memrays_routes_400(leaking: ControlledProgram, route: str) -> None:
    session = leaking.post("stop")["session"]
    assert leaking.ask("DELETE", f"sessions/{session}", Authorization=leaking.bearer()).status == 200
    assert error_of(leaking.ask("GET", route))[0] == 404
    assert error_of(leaking.ask("GET", f"memray/{route}"))[:2] == (400, "ValueError")


@pytest.mark.parametrize(
    ("method", "route", "allowed"),
    [("GET", "memray/start", "POST, OPTIONS"), ("POST", "memray/report", "GET, HEAD, OPTIONS")],
)
def test_wrong_method_is_answered_with_405_and_the_allowed_methods(
    leaking: ControlledProgram, method: str, route: str, allowed: str
) -> None:
    answer = leaking.ask(method, route)
    assert error_of(answer)[0] == 405
    assert answer.headers["Allow"] == allowed


def test_route_with_a_trailing_slash_is_redirected(leaking: ControlledProgram) -> None:
    answer = leaking.ask("GET", f"{BASE}/memray/stats/")
    assert (answer.status, answer.headers["Location"]) == (307, f"{BASE}/memray/stats")


@pytest.mark.parametrize("prefix", ["", PREFIX, "/pub/fatman/x/y", "/a"])
def test_all_routes_work_below_any_prefix(leaking: ControlledProgram, prefix: str) -> None:
    assert leaking.ask("POST", f"{prefix}/api/v1/perform", {}).status == 200
    assert leaking.ask("GET", f"{prefix}{BASE}/memray/stats").status == 200
    document = leaking.ask("GET", f"{prefix}/openapi.json").json()
    assert document["servers"] == [{"url": prefix or "/"}]
    memray = {path: methods for path, methods in document["paths"].items() if "/memray/" in path}
    assert len(memray) == 5
    media_types = {
        path.rpartition("/")[2]: set(operation["responses"]["200"]["content"])
        for path, methods in memray.items()
        for operation in methods.values()
    }
    assert media_types["flamegraph"] == {"text/html"}
    assert media_types["stats"] == {"text/plain", "application/json"}
    assert "application/octet-stream" in media_types["report"]
    assert media_types["start"] == media_types["stop"] == {"application/json"}
    for methods in memray.values():
        for operation in methods.values():
            error = operation["responses"]["405"]["content"]["application/json"]["schema"]
            assert error == {"$ref": "#/components/schemas/Error"}
    perform = document["paths"]["/api/v1/perform"]["post"]
    assert perform["requestBody"]["content"]["application/json"]["example"] == {}
    page = leaking.ask("GET", f"{prefix}/docs")
    assert page.status == 200 and "http" not in re.sub(r"https?://www\.w3\.org", "", page.text)
    home = leaking.ask("GET", f"{prefix}/")
    assert (home.status, home.headers["Location"]) == (307, f"{prefix}/docs")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_complete_the_capture_and_the_next_start_keeps_it(
    tmp_path: Path, number: signal.Signals, stats: Callable[..., Any]
) -> None:
    job = serve(tmp_path, MEMRAY_PROFILER="true")
    leak(job)
    first = job.get("status").json()
    job.process.send_signal(number)
    assert job.process.wait() == 0, job.stderr()
    job.stop()
    done = heaptide("stats", first["output"])
    assert "damage" not in done.stderr and done.stderr == ""
    assert stats(Path(first["output"]))["top_allocations_by_size"][0]["size"] == 24_000_000
    again = serve(tmp_path, MEMRAY_PROFILER="true")
    listed = again.get("sessions").json()["sessions"]
    assert [session["id"] for session in listed][1:] == [first["session"]]
    assert "24.0 MB" in again.get(f"sessions/{first['session']}/stats").text
    again.stop()


def test_killed_job_leaves_a_readable_capture(tmp_path: Path, stats: Callable[..., Any]) -> None:
    job = serve(tmp_path, MEMRAY_PROFILER="true")
    leak(job)
    output = job.get("status").json()["output"]
    job.process.kill()
    job.process.wait()
    job.stop()
    assert stats(Path(output))["top_allocations_by_size"][0]["size"] == 24_000_000


def test_running_call_is_finished_before_the_job_ends(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import pathlib, sys\ndef perform():\n print('begun', flush=True)\n pathlib.Path('go').read_text()\n return 7\n"
    )
    os.mkfifo(tmp_path / "go")
    job = serve(tmp_path, script, MEMRAY_PROFILER="true")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        calling = pool.submit(lambda: job.ask("POST", PERFORM, {}))
        assert job.line() == "begun"
        job.process.terminate()
        (tmp_path / "go").write_text("on")
        assert calling.result().json() == 7
    assert job.process.wait() == 0
    job.stop()


@pytest.mark.parametrize("command", ["tree", "stats", "summary", "table", "flamegraph"])
def test_downloaded_report_works_with_every_command(leaking: ControlledProgram, tmp_path: Path, command: str) -> None:
    leak(leaking, 1)
    leaking.post(f"{MEMRAY}/stop")
    report = tmp_path / "elsewhere" / "memray-report.bin"
    report.parent.mkdir()
    report.write_bytes(leaking.get(f"{MEMRAY}/report").body)
    done = heaptide(command, report)
    pages = [page_data(page.read_text()) for page in report.parent.glob("*.html")]
    assert "perform" in (pages or [done.stdout])[0]


def test_status_other_reports_snapshot_and_diff_are_served(leaking: ControlledProgram) -> None:
    leak(leaking, 1)
    snapshot = leaking.post("snapshot")["id"]
    leak(leaking, 2)
    assert leaking.get("status").json()["state"] == "recording"
    for route, media_type in [
        ("table", "text/html"),
        ("summary", "text/plain"),
        ("tree", "text/plain"),
        ("timeline", "text/html"),
    ]:
        answer = leaking.get(route)
        assert answer.headers["Content-Type"].startswith(media_type)
    change = leaking.get(f"diff?base={snapshot}&format=json").json()
    assert "16000000" in json.dumps(change)
    assert leaking.ask("GET", "diff").status == 400


# Runs as the interpreter of the process that renders, and prints facts about this process before the report.
RENDERING_PYTHON = f"""#!{sys.executable} -IS
import os, resource, sys
code, packages = sys.argv[4:6]
sys.argv = ["-c", *sys.argv[5:]]
sys.path.insert(0, packages)
from heaptide import _native
render = _native.main
def print_facts_and_render(words):
    print(os.getpid(), os.getppid(), os.nice(0), resource.getrlimit(resource.RLIMIT_AS)[0], words[0], flush=True)
    return render(words)
_native.main = print_facts_and_render
exec(code)
"""


def test_report_is_rendered_in_a_child_with_low_priority_and_limited_memory_that_ends(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    python = tmp_path / "bin" / "python-that-renders"
    python.parent.mkdir()
    python.write_text(RENDERING_PYTHON)
    python.chmod(0o700)
    (tmp_path / "sitecustomize.py").write_text(f"import sys; sys.executable = {str(python)!r}\n")
    job = serve(tmp_path, MEMRAY_PROFILER="true", PYTHONPATH=str(tmp_path))
    request.addfinalizer(job.stop)
    leak(job)
    facts, _, report = job.get("stats").text.partition("\n")
    pid, parent, nice, limit, command = facts.split()
    assert int(pid) != int(parent) == job.process.pid
    assert (int(nice), int(limit), command) == (min(os.nice(0) + 10, 19), 4 << 30, "stats")
    assert "memory-leak/job.py:7 -> 24.0 MB" in report
    assert not Path(f"/proc/{pid}").exists()


def test_token_protects_the_profiler_but_not_the_job(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    job = serve(tmp_path, EXAMPLE, MEMRAY_PROFILER="true", HEAPTIDE_TOKEN_FILE=str(tmp_path / "token"))
    assert job.ask("POST", PERFORM, {}).status == 200
    assert job.ask("GET", "status").status == 401
    assert job.ask("GET", "status", Authorization="Bearer s3cret").status == 200
    assert "heaptide_sessions 1" in job.ask("GET", "/metrics").text
    # A chosen token also protects Racetrack's routes.
    assert job.ask("GET", "memray/stats").status == 401
    job.stop()


def test_example_of_racetracks_documentation_works_unchanged(tmp_path: Path) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("no curl")
    job = serve(tmp_path, EXAMPLE, MEMRAY_PROFILER="true")
    url = f"{job.address}{PREFIX}"

    def run(*words: str) -> str:
        return subprocess.run([curl, "-q", "-sS", "--fail", *words], check=True, capture_output=True, text=True).stdout

    for n in (1, 2, 3):
        done = run("-X", "POST", f"{url}/api/v1/perform", "-H", "Content-Type: application/json", "-d", "{}")
        assert done == str(n)
    run("-X", "POST", f"{url}/api/v1/profiler/memray/stop")
    assert "<html" in run(f"{url}/api/v1/profiler/memray/flamegraph")
    report = tmp_path / "memray-report.bin"
    run(f"{url}/api/v1/profiler/memray/report", "--output", str(report))
    assert "perform" in heaptide("tree", report).stdout
    top = heaptide("stats", report).stdout.partition("(by size):")[2]
    assert re.match(r"\n\t- perform:.*/memory-leak/job.py:7 -> 24.0 MB", top)
    assert run(f"{job.address}/live") and run(f"{job.address}/ready") and run(f"{job.address}/health")
    numbers = run(f"{job.address}/metrics")
    assert 'job_requests_total{route="/api/v1/perform",status="200"} 3' in numbers
    resident = re.search(r"^process_resident_memory_bytes (\d+)", numbers, re.MULTILINE)
    heap = re.search(r"^heaptide_heap_bytes (\d+)", numbers, re.MULTILINE)
    assert resident and int(resident[1]) > 24_000_000
    assert heap and int(heap[1]) > 24_000_000
    assert "heaptide_sessions 1" in numbers
    assert job.stop() == 0


def test_functions_and_classes_are_served_and_their_errors_returned(tmp_path: Path) -> None:
    script = tmp_path / "adder.py"
    script.write_text(
        "async def add(a: int, b: int = 2):\n    if a < 0:\n        raise ValueError('negative')\n    return a + b\n"
    )
    job = serve(tmp_path, script)
    assert job.ask("POST", "/api/v1/perform", {"a": 1}).json() == 3
    assert job.ask("POST", "/api/v1/perform", {"a": 1, "c": 1}).status == 422
    assert job.ask("POST", "/api/v1/perform", [1]).status == 422
    assert job.ask("POST", "/api/v1/perform", b"{").status == 400
    failed = job.ask("POST", "/api/v1/perform", {"a": -1})
    assert failed.status == 500 and failed.json() == {"error": "negative", "type": "ValueError"}
    assert job.ask("GET", "/api/v1/perform").headers["Allow"] == "POST"
    assert job.ask("GET", "/nothing").status == 404
    schema = job.ask("GET", "/openapi.json").json()["paths"]["/api/v1/perform"]["post"]["requestBody"]
    assert schema["content"]["application/json"]["schema"]["required"] == ["a"]
    assert job.stop() == 0
    script.write_text("class A:\n    def perform(self): return 'a'\nclass B:\n    def perform(self): return 'b'\n")
    done = heaptide("serve", "--port", "0", script, check=False)
    assert done.returncode == 1 and "--entrypoint" in done.stderr
    chosen = serve(tmp_path, script, "--entrypoint", "B")
    assert chosen.ask("POST", "/api/v1/perform").json() == "b"
    chosen.stop()


def test_busy_job_loses_no_request_and_no_session_while_profiling_restarts(tmp_path: Path) -> None:
    """Run bench/load.py briefly: many concurrent callers while profiling is started and stopped twice."""
    sys.path.insert(0, str(REPOSITORY / "bench"))
    try:
        import load
    finally:
        sys.path.pop(0)
    figures = load.measure(n_callers=50, seconds=2, folder=tmp_path)
    print(figures)
    assert figures["failed"] == 0
    assert figures["calls"] > 0
    assert figures["sessions"] == 2


def test_heaptide_ctl_finds_the_job_and_offers_the_same_actions_as_the_routes(
    leaking: ControlledProgram, tmp_path: Path
) -> None:
    env = {**os.environ, "HEAPTIDE_RUNTIME_DIR": str(leaking.folder / "run")}

    def ctl(*words: str, check: bool = True) -> Any:
        return heaptide("ctl", *words, check=check, env=env, cwd=tmp_path)

    assert f"pid {leaking.process.pid}" in ctl("list").stdout
    leak(leaking)
    assert json.loads(ctl("status").stdout)["state"] == "recording"
    snapshot = json.loads(ctl("snapshot").stdout)["id"]
    assert json.loads(ctl("stop").stdout)["result"] == "stopped"
    assert "24.0 MB" in ctl("stats").stdout
    assert json.loads(ctl("--pid", str(leaking.process.pid), "stats", "format=json").stdout)
    assert "wrote" in ctl("flamegraph", "leaks=1").stdout.lower()
    assert (tmp_path / "heaptide-flamegraph.html").exists()
    assert ctl("flamegraph", check=False).returncode == 1
    assert "perform" in ctl("--session", snapshot, "tree").stdout
    assert json.loads(ctl("start", "mode=sampled", "sample_bytes=4096").stdout)["result"] == "started"
    assert json.loads(ctl("--url", f"{leaking.address}{PREFIX}", "status").stdout)["state"] == "recording"
    wrong = ctl("tree", "depth=x", check=False)
    assert wrong.returncode == 1 and "depth" in wrong.stderr
    assert ctl("--pid", "1", "status", check=False).returncode == 1
    assert ask(leaking.address, "GET", f"{BASE}/status").json()["state"] == "recording"
