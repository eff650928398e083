"""Tests that all reports distinguish processes with the same ID, in two containers or after the kernel reused it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.commands import heaptide
from support.controlled_program import ControlledProgram, page_data

pytestmark = pytest.mark.once

# Isolates a program like a container, with its own host name and process IDs that start at 1.
UNSHARE = ["unshare", "--fork", "--pid", "--mount", "--mount-proc", "--uts", "--kill-child"]
JOB = """
import sys, heaptide
kept = bytearray(int(sys.argv[1]))
heaptide.heap_snapshot(sys.argv[2], overwrite=True)
"""
# Makes the kernel give the ID 100 to the next process.
SET_NEXT_ID = "echo 99 > /proc/sys/kernel/ns_last_pid; "


def run_isolated(host: str, command: str, folder: Path) -> None:
    done = subprocess.run([*UNSHARE, "sh", "-ec", f"hostname {host}; {command}"], cwd=folder, capture_output=True)
    assert done.returncode == 0, done.stderr


def record_command(name: str, n_bytes: int) -> str:
    return f"{sys.executable} -m heaptide run -q -o {name}.tide job.py {n_bytes} {name}.heap"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captures and heap snapshots of two containers, and of two processes of one host with the same ID."""
    if shutil.which("unshare") is None or subprocess.run([*UNSHARE, "true"], capture_output=True).returncode != 0:
        pytest.skip("namespaces cannot be created here")
    folder = tmp_path_factory.mktemp("identity")
    (folder / "job.py").write_text(JOB)
    run_isolated("web-1", f"exec {record_command('one', 5_000_000)}", folder)
    run_isolated("web-2", f"exec {record_command('two', 9_000_000)}", folder)
    both = (
        f"{SET_NEXT_ID} {record_command('first', 2_000_000)}; {SET_NEXT_ID} {record_command('second', 3_000_000)}; true"
    )
    run_isolated("web-1", both, folder)
    return folder


def stats(*arguments: str | Path) -> dict[str, Any]:
    numbers: dict[str, Any] = json.loads(heaptide("stats", "--json", *arguments).stdout)
    return numbers


def processes(*captures: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stats(*captures)["heaptide"]["processes"]
    return found


def test_containers_with_the_same_process_id_have_two_identities(folder: Path) -> None:
    one, two = processes(folder / "one.tide", folder / "two.tide")
    assert (one["pid"], two["pid"]) == (1, 1)
    assert (one["process"], two["process"]) == ("1@web-1", "1@web-2")
    assert one["identity"]["boot_id"] == two["identity"]["boot_id"] is not None
    assert one["identity"]["pid_namespace"] != two["identity"]["pid_namespace"]
    assert re.fullmatch(r"\d+\.\d\ds", one["identity"]["start"])
    [alone] = processes(folder / "one.tide")
    assert alone["process"] == "1"


def test_start_time_distinguishes_processes_with_a_recycled_id(folder: Path) -> None:
    first, second = processes(folder / "first.tide", folder / "second.tide")
    assert (first["pid"], second["pid"]) == (100, 100)
    start = second["identity"]["start"]
    assert first["identity"]["start"] != start
    assert second["process"] == f"100@{start}"
    only = stats(folder / "first.tide", folder / "second.tide", "--process", f"100@{start}")
    assert 3_000_000 <= only["metadata"]["peak_memory"] < 5_000_000


def test_ambiguous_process_filter_lists_the_processes_and_accepts_their_names(folder: Path) -> None:
    captures = [folder / "one.tide", folder / "two.tide"]
    for command in (["stats"], ["tree"], ["summary"], ["parse"], ["transform", "json"], ["flamegraph", "-f"]):
        refused = heaptide(*command, "--process", "1", *captures, check=False, cwd=folder)
        assert refused.returncode != 0
        assert "process 1 matches 2 processes; use one of: 1@web-1, 1@web-2" in refused.stderr, command
    only = stats(*captures, "--process", "1@web-2")
    assert 9_000_000 <= only["metadata"]["peak_memory"] < 11_000_000
    invalid = heaptide("stats", "--process", "@web-1", *captures, check=False)
    assert invalid.returncode == 2
    assert "must be a process ID" in invalid.stderr


def test_reports_show_two_containers_as_two_processes(folder: Path) -> None:
    captures = [folder / "one.tide", folder / "two.tide"]
    names = ["1@web-1", "1@web-2"]
    # `--total`, because the programs ran one after the other: at the common peak, only one of them has memory.
    rows = heaptide("summary", "--total", "--by", "process", *captures).stdout
    assert all(f"process {name}" in rows for name in names), rows
    text = heaptide("stats", *captures).stdout
    assert all(f"in process {name}" in text for name in names), text
    for page in ("flamegraph", "table", "timeline"):
        data = json.loads(page_data(heaptide(page, "-o", "-", *captures).stdout))
        assert [process["name"] for process in data["head"]["processes"]] == names
    heaptide("transform", "-f", "-o", folder / "model.json", "json", *captures)
    model = json.loads((folder / "model.json").read_text())
    assert [process["process"] for process in model["processes"]] == names
    heaptide("transform", "-f", "-o", folder / "trace.json", "chrome", *captures)
    trace = json.loads((folder / "trace.json").read_text())["traceEvents"]
    named = {event["pid"]: event["args"]["name"] for event in trace if event["name"] == "process_name"}
    assert [name.split(" ")[0] for name in named.values()] == names
    compared = json.loads(heaptide("diff", "--json", *captures).stdout)
    assert compared["before"]["processes"][0]["pid"] == compared["after"]["processes"][0]["pid"] == 1


def test_heap_snapshots_of_two_containers_are_of_different_processes(folder: Path) -> None:
    compared = heaptide("heap", "diff", folder / "one.heap", folder / "two.heap").stdout
    assert "The snapshots are of different processes" in compared
    recycled = heaptide("heap", "diff", folder / "first.heap", folder / "second.heap").stdout
    assert "The snapshots are of different processes" in recycled
    mixed = heaptide("heap", "types", folder / "one.heap", "--recording", folder / "two.tide", check=False)
    assert "is a recording of another process" in mixed.stdout + mixed.stderr


def test_timeline_stores_the_identity_of_its_processes(folder: Path) -> None:
    command = f"exec {sys.executable} -m heaptide record -q -o watched.timeline sleep 0.3"
    run_isolated("web-3", command, folder)
    lines = (folder / "watched.timeline").read_text().splitlines()
    assert "host web-3" in lines
    facts = dict(line.removeprefix("fact ").split("=") for line in lines if line.startswith("fact "))
    assert set(facts) == {"boot_id", "pid_namespace"}
    assert any(re.fullmatch(r"start 0 \d+\.\d\ds", line) for line in lines), lines
    assert "lines are invalid" not in heaptide("peak", folder / "watched.timeline").stderr


def test_control_api_refuses_an_ambiguous_process_and_accepts_its_name(
    folder: Path, program: ControlledProgram, tmp_path: Path
) -> None:
    status = program.get("status").json()
    assert status["identity"]["pid"] == status["pid"]
    assert status["processes"][0]["identity"] == status["identity"]
    session = program.post("start")["session"]
    program.post("stop")
    # The session then has captures of two processes with the ID 1, of different containers.
    shutil.copy(folder / "one.tide", tmp_path / "sessions" / session / "1.tide")
    shutil.copy(folder / "two.tide", tmp_path / "sessions" / session / "2.tide.1")
    described = program.get(f"sessions/{session}").json()["processes"]
    assert {process["process"] for process in described} >= {"1@web-1", "1@web-2"}
    for route in ("stats", "report"):
        refused = program.ask("GET", f"sessions/{session}/{route}?process=1")
        assert refused.status == 400
        assert "1@web-1, 1@web-2" in refused.json()["error"]
    chosen = program.get(f"sessions/{session}/stats?process=1@web-2&format=json").json()
    assert [process["process"] for process in chosen["heaptide"]["processes"]] == ["1"]
    assert chosen["metadata"]["peak_memory"] >= 9_000_000
