"""Tests the routes of the profiler on the port of a real Racetrack job."""

from __future__ import annotations

import concurrent.futures
import re
import urllib.request
from pathlib import Path

import pytest
from platform_support.browser import run_in_browser
from platform_support.environments import Environment
from platform_support.racetrack_job import MEMRAY, PREFIX, PROFILER, RacetrackJob
from support.commands import heaptide
from support.controlled_program import Answer, page_data

LEAK = re.compile(r"perform \(\S*memory-leak/job\.py:7\) holds most at the peak")
ROUTES = ["start", "stop", "report", "flamegraph", "stats"]


@pytest.fixture
def recorded(job: RacetrackJob) -> dict[str, object]:
    """Record a session with three calls, and return the response to `stop`."""
    job.post(f"{MEMRAY}/stop")
    job.post(f"{MEMRAY}/start")
    job.perform()
    stopped: dict[str, object] = job.post(f"{MEMRAY}/stop")
    return stopped


@pytest.mark.behaviour("start")
def test_fifty_parallel_starts_make_one_session_and_lose_nothing(job: RacetrackJob) -> None:
    job.post(f"{MEMRAY}/stop")
    before = len(job.get(f"{PROFILER}/sessions").json()["sessions"])
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: job.ask("POST", f"{MEMRAY}/start"), range(50)))
    assert {answer.status for answer in answers} == {200}
    bodies = [answer.json() for answer in answers]
    assert [body["result"] for body in bodies].count("started") == 1
    assert {body["result"] for body in bodies} == {"started", "already_running"}
    assert len({body["session"] for body in bodies}) == 1
    assert all(body["pids"] == [job.process.pid] and Path(body["output"]).exists() for body in bodies)
    assert len(job.get(f"{PROFILER}/sessions").json()["sessions"]) == before + 1
    job.perform(1)
    assert job.post(f"{MEMRAY}/start")["result"] == "already_running"
    job.perform(2)
    job.post(f"{MEMRAY}/stop")
    assert "24.000MB" in job.get(f"{MEMRAY}/stats").text


@pytest.mark.behaviour("stop")
def test_stop_returns_the_numbers_of_the_session(job: RacetrackJob, recorded: dict[str, object]) -> None:
    assert recorded["result"] == "stopped"
    assert isinstance(recorded["peak_bytes"], int) and recorded["peak_bytes"] >= 24_000_000
    assert isinstance(recorded["bytes"], int) and recorded["bytes"] > 0
    assert isinstance(recorded["duration_ms"], int) and recorded["duration_ms"] > 0
    links = recorded["links"]
    assert isinstance(links, dict) and job.ask("GET", links["flamegraph"]).status == 200
    assert job.post(f"{MEMRAY}/stop")["result"] == "already_stopped"


@pytest.mark.behaviour("report", "download")
@pytest.mark.usefixtures("recorded")
def test_report_is_served_whole_and_in_ranges(job: RacetrackJob) -> None:
    whole = job.get(f"{MEMRAY}/report")
    assert whole.body.startswith(b"memray\0")
    assert whole.headers["Content-Type"] == "application/octet-stream"
    assert whole.headers["Content-Disposition"] == 'inline; filename="memray-report.bin"'
    head = job.ask("HEAD", f"{MEMRAY}/report")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Length"] == str(len(whole.body))
    tag = whole.headers["Etag"]
    part = job.ask("GET", f"{MEMRAY}/report", Range="bytes=8-15", If_Range=tag)
    assert (part.status, part.body) == (206, whole.body[8:16])
    assert part.headers["Content-Range"] == f"bytes 8-15/{len(whole.body)}"
    assert job.ask("GET", f"{MEMRAY}/report", Range=f"bytes={len(whole.body)}-").status == 416
    assert job.ask("GET", f"{MEMRAY}/report", If_None_Match=tag).status == 304


@pytest.mark.behaviour("report")
def test_finished_session_is_converted_to_memrays_format_once(job: RacetrackJob, recorded: dict[str, object]) -> None:
    first = job.get(f"{MEMRAY}/report")
    (stored,) = job.folder.glob(f"**/sessions/*/{recorded['session']}/*.memray")
    modified = stored.stat().st_mtime_ns
    assert stored.read_bytes() == first.body and stored.stat().st_mode & 0o777 == 0o600
    assert job.get(f"{MEMRAY}/report").body == first.body
    assert stored.stat().st_mtime_ns == modified


@pytest.mark.behaviour("report")
def test_running_session_has_a_readable_partial_report(
    job: RacetrackJob, racetrack: Environment, tmp_path: Path
) -> None:
    job.post(f"{MEMRAY}/stop")
    job.post(f"{MEMRAY}/start")
    job.perform(2)
    (tmp_path / "partial.bin").write_bytes(job.get(f"{MEMRAY}/report").body)
    assert "job.py:7 -> 16.000MB" in racetrack.run("memray", "stats", "partial.bin", cwd=tmp_path).stdout
    job.post(f"{MEMRAY}/stop")


@pytest.mark.behaviour("report")
def test_heaptide_format_is_the_capture_itself(job: RacetrackJob, recorded: dict[str, object]) -> None:
    body = job.get(f"{MEMRAY}/report?format=heaptide").body
    (capture,) = job.folder.glob(f"**/sessions/*/{recorded['session']}/*.tide")
    assert body == capture.read_bytes()
    assert job.ask("GET", f"{MEMRAY}/report?format=pickle").status == 400


@pytest.mark.behaviour("download")
def test_downloading_a_large_capture_does_not_grow_the_memory_of_the_job(
    job: RacetrackJob, recorded: dict[str, object]
) -> None:
    (capture,) = job.folder.glob(f"**/sessions/*/{recorded['session']}/*.tide")
    # A capture may end with zeros, which readers skip: 512 MB of them take no disk space.
    size = 512 << 20
    with capture.open("r+b") as file:
        file.truncate(size)
    before = job.get(f"{PROFILER}/status").json()["resident_bytes"]
    with urllib.request.urlopen(f"{job.address}{MEMRAY}/report?format=heaptide") as answer:
        assert sum(map(len, iter(lambda: answer.read(1 << 20), b""))) == size
    assert job.get(f"{PROFILER}/status").json()["resident_bytes"] - before <= 32 << 20


@pytest.mark.behaviour("flamegraph")
@pytest.mark.usefixtures("recorded")
def test_flame_graph_opens_offline_and_takes_parameters(job: RacetrackJob) -> None:
    page = job.get(f"{MEMRAY}/flamegraph")
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.headers["Content-Disposition"] == 'inline; filename="memray-flamegraph.html"'
    assert not re.search(r'(src|href)="https?:', page.text) and "default-src 'none'" in page.text
    assert LEAK.search(page_data(page.text))
    for query in ["leaks=1", "inverted=1", f"process={job.process.pid}", "native=0"]:
        assert job.ask("GET", f"{MEMRAY}/flamegraph?{query}").status == 200, query
    assert job.get(f"{MEMRAY}/flamegraph?leaks=1").body != page.body
    assert job.ask("GET", f"{MEMRAY}/flamegraph?leaks=perhaps").status == 400


@pytest.mark.behaviour("flamegraph")
@pytest.mark.usefixtures("recorded")
def test_flame_graph_can_be_limited_to_a_thread_and_a_time(job: RacetrackJob) -> None:
    def has_leak(query: str) -> bool:
        answer = job.ask("GET", f"{MEMRAY}/flamegraph?{query}")
        assert answer.status in (200, 404), answer.body  # 404: nothing matches
        return answer.status == 200 and LEAK.search(page_data(answer.text)) is not None

    # The job runner calls the job in a worker thread.
    assert has_leak("thread=AnyIO%20worker%20thread") and not has_leak("thread=main")
    assert has_leak("from=0ms&to=10m") and not has_leak("from=10m")


@pytest.mark.behaviour("rendering")
@pytest.mark.usefixtures("recorded")
def test_reports_are_rendered_in_another_process(job: RacetrackJob) -> None:
    def cpu_ticks_of_children() -> int:
        fields = Path(f"/proc/{job.process.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[13]) + int(fields[14])  # cutime and cstime

    before = cpu_ticks_of_children()
    job.get(f"{MEMRAY}/flamegraph?temporary-allocations=1")
    assert cpu_ticks_of_children() > before


@pytest.mark.behaviour("stats")
@pytest.mark.usefixtures("recorded")
def test_stats_name_the_leaking_line_with_its_exact_bytes(job: RacetrackJob) -> None:
    text = job.get(f"{MEMRAY}/stats")
    assert text.headers["Content-Type"] == "text/plain; charset=utf-8" and "Content-Disposition" not in text.headers
    assert re.search(
        r"Top 5 largest allocating locations \(by size\):\n\t- perform:.*/job\.py:7 -> 24\.000MB", text.text
    )
    first = job.get(f"{MEMRAY}/stats?format=json").json()["top_allocations_by_size"][0]
    # Three times 8,000,000 bytes, and the list that holds them: Racetrack also records Python's own allocators.
    assert 24_000_000 <= first["size"] < 24_001_000 and first["location"].endswith("memory-leak/job.py:7")


@pytest.mark.behaviour("analysis")
@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("command", ["tree", "stats", "summary", "table", "flamegraph"])
def test_downloaded_report_works_without_the_job(job: RacetrackJob, tmp_path: Path, command: str) -> None:
    report = tmp_path / "memray-report.bin"
    report.write_bytes(job.get(f"{MEMRAY}/report").body)
    done = heaptide(command, report, cwd=tmp_path)
    pages = [page_data(page.read_text()) for page in tmp_path.glob("*.html")]
    assert "perform" in (pages or [done.stdout])[0]


@pytest.mark.behaviour("other_routes")
def test_heaptides_own_routes_are_served(job: RacetrackJob) -> None:
    job.post(f"{MEMRAY}/stop")
    job.post(f"{PROFILER}/start", {"mode": "exact"})
    job.perform(1)
    snapshot = job.post(f"{PROFILER}/snapshot")["id"]
    job.perform(2)
    assert job.get(f"{PROFILER}/status").json()["state"] == "recording"
    for route in ["table", "summary", "tree", "timeline", f"diff?base={snapshot}", "sessions"]:
        assert job.ask("GET", f"{PROFILER}/{route}").status == 200, route
    assert job.ask("POST", f"{PROFILER}/heap").status == 200
    job.post(f"{PROFILER}/stop")


def error_of(answer: Answer) -> tuple[int, str]:
    """Check that an answer is an error in JSON, and return its status and type."""
    assert answer.headers["Content-Type"] == "application/json"
    assert set(answer.json()) == {"error", "type"} and answer.json()["error"]
    return answer.status, answer.json()["type"]


@pytest.mark.behaviour("errors")
def test_wrong_method_is_rejected_with_the_allowed_methods(job: RacetrackJob) -> None:
    for method, route, allowed in [("GET", "start", "POST"), ("POST", "report", "GET, HEAD")]:
        answer = job.ask(method, f"{MEMRAY}/{route}")
        assert error_of(answer) == (405, "MethodNotAllowed")
        assert answer.headers["Allow"].startswith(allowed)
    assert job.ask("GET", f"{MEMRAY}/nothing").status == 404


@pytest.mark.behaviour("errors")
def test_damaged_capture_is_an_error_with_a_reason(job: RacetrackJob, recorded: dict[str, object]) -> None:
    (capture,) = job.folder.glob(f"**/sessions/*/{recorded['session']}/*.tide")
    capture.write_bytes(b"this is no capture")
    for route in ("flamegraph", "stats", "report"):
        assert error_of(job.ask("GET", f"{MEMRAY}/{route}")) == (500, "CommandError"), route


@pytest.mark.behaviour("prefixes")
@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("prefix", ["", PREFIX, "/pub/fatman/x/y"])
def test_routes_work_below_every_prefix(job: RacetrackJob, prefix: str) -> None:
    assert job.ask("GET", f"{prefix}/api/v1/profiler/memray/stats").status == 200
    assert job.ask("GET", f"{prefix}/api/v1/profiler/sessions/latest/tree").status == 200
    redirected = job.ask("GET", f"{prefix}/api/v1/profiler/memray/stats/")
    assert redirected.status == 307 and redirected.headers["Location"].endswith("/memray/stats")


@pytest.mark.behaviour("swagger")
def test_openapi_document_of_the_job_lists_all_profiler_routes(job: RacetrackJob) -> None:
    document = job.get(f"{PREFIX}/openapi.json").json()
    paths = {path.removeprefix("/api/v1/profiler"): value for path, value in document["paths"].items()}
    assert {"/memray/" + route for route in ROUTES} <= set(paths)
    assert {"/status", "/sessions", "/sessions/{session}/stats", "/diff", "/heap"} <= set(paths)
    assert "/api/v1/perform" in document["paths"]
    flamegraph = paths["/memray/flamegraph"]["get"]
    assert set(paths["/memray/flamegraph"]) == {"get"}
    assert set(flamegraph["responses"]["200"]["content"]) == {"text/html"}
    assert "leaks" in {parameter["name"] for parameter in flamegraph["parameters"]}
    assert set(paths["/memray/stats"]["get"]["responses"]["200"]["content"]) == {"text/plain", "application/json"}
    assert "application/octet-stream" in paths["/memray/report"]["get"]["responses"]["200"]["content"]
    error = flamegraph["responses"]["404"]["content"]["application/json"]["schema"]
    assert set(error["properties"]) == {"error", "type"}
    assert "$ref" not in str([value for path, value in paths.items() if path.startswith("/memray")])
    assert "swagger" in job.get(f"{PREFIX}/docs").text
    page = job.get(f"{PROFILER}/docs").text
    assert "http" not in re.sub(r"https?://www\.w3\.org", "", page)


@pytest.mark.behaviour("flamegraph", "swagger", "prefixes")
@pytest.mark.usefixtures("recorded")
def test_browser_draws_the_pages_below_the_prefix_without_a_network(job: RacetrackJob, racetrack: Environment) -> None:
    (swagger,) = racetrack.folder.glob("lib/*/site-packages/fastapi_offline/static")
    run_in_browser(Path(__file__).with_name("pages.mjs"), ADDRESS=job.address + PREFIX, SWAGGER=str(swagger))
