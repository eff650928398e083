"""Tests reports of memory pressure: at a size, and at a share of a real control group's limit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import python
from support.waiting import wait_until

pytestmark = pytest.mark.once

# Grows to a number of bytes, and waits for the last line of the report.
GROW = """
import glob, os, sys, time

class Row:
    def __init__(self):
        self.data = bytearray(20_000)

rows = []

def load(n_bytes):
    while len(rows) * 20_000 < n_bytes:
        rows.append(Row())
        # Touch the memory slowly enough for the report to be started.
        time.sleep(0.0002)

def wait_for_report(count=1):
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        texts = [open(name).read() for name in glob.glob("pressure-*.txt")]
        if len(texts) == count and all("End of the report" in text for text in texts):
            return texts
        time.sleep(0.02)
    raise SystemExit("no report")
"""


def reports(folder: Path) -> list[Path]:
    """Return the reports in a folder."""
    return sorted(folder.glob("pressure-*.txt"))


def grow(folder: Path, program: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a program that grows, recorded with settings."""
    script = folder / "grow.py"
    script.write_text(GROW + program)
    env = {f"HEAPTIDE_{name.upper()}": value for name, value in settings.items()}
    return python(script, cwd=folder, HEAPTIDE="run", HEAPTIDE_QUIET="yes", **env)


def test_report_at_a_size_names_sites_and_types_and_runs_the_command(tmp_path: Path) -> None:
    command = 'echo "$HEAPTIDE_PID $HEAPTIDE_LIMIT_BYTES" >"$HEAPTIDE_REPORT.ran"'
    done = grow(tmp_path, "load(60_000_000); wait_for_report()", act_at="50MB", act_command=command, sample="yes")
    assert "memory use is 5" in done.stderr and "live memory by site: " in done.stderr
    [report] = reports(tmp_path)
    assert report.stat().st_mode & 0o777 == 0o600
    text = report.read_text()
    assert "of 50.0 MB are in use" in text
    assert "__init__ at" in text and "grow.py:6" in text
    assert re.search(r"Live memory by site at \d\d:\d\d:\d\d, from ", text)  # the program may have grown meanwhile
    assert "Python objects by type" in text and "bytearray" in text and "__main__.Row" in text
    ran = Path(f"{report}.ran")
    wait_until(lambda: ran.exists() and ran.read_text(), "the command")
    assert ran.read_text().split()[1] == "50000000"


def test_program_under_heaptide_run_is_reported(tmp_path: Path) -> None:
    (tmp_path / "grow.py").write_text(GROW + "load(60_000_000); wait_for_report()")
    command = ("-m", "heaptide", "run", "-q", "--sample", "-o", "grow.tide", "grow.py")
    done = python(*command, cwd=tmp_path, HEAPTIDE_ACT_AT="50MB")
    assert "memory use is 5" in done.stderr
    [report] = reports(tmp_path)
    assert "__init__ at" in report.read_text() and "grow.py:6" in report.read_text()


def test_crossing_is_reported_once_although_memory_stays_high(tmp_path: Path) -> None:
    grow(
        tmp_path,
        "load(60_000_000); wait_for_report(); del rows[1000:]; load(70_000_000); time.sleep(0.2)",
        act_at="50MB",
    )
    assert len(reports(tmp_path)) == 1


def test_registered_functions_are_called_and_may_fail(tmp_path: Path) -> None:
    program = """
import heaptide

@heaptide.on_pressure
def fail(pressure):
    raise ValueError("broken")

def free(pressure):
    rows.clear()
    print(pressure.used_bytes >= pressure.threshold_bytes == 50_000_000, pressure.report)

heaptide.on_pressure(free, at="50MB")
load(60_000_000)
wait_for_report()
"""
    done = grow(tmp_path, program)
    assert "a function for memory pressure failed: broken" in done.stderr
    word, path = done.stdout.split()
    assert word == "True" and [Path(path)] == reports(tmp_path)


def test_report_without_a_recording_notes_that_sites_are_missing(tmp_path: Path) -> None:
    script = tmp_path / "grow.py"
    script.write_text(GROW + "load(60_000_000); wait_for_report()")
    python(script, cwd=tmp_path, HEAPTIDE_ACT_AT="50MB")
    [report] = reports(tmp_path)
    assert "Sites are missing: the process was not being recorded" in report.read_text()


def test_share_without_a_limit_and_invalid_threshold_are_reported_and_ignored(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text("print('ran')")
    for threshold in ("120%", "much", "90% of it"):
        done = python(script, cwd=tmp_path, HEAPTIDE_ACT_AT=threshold)
        assert done.stdout == "ran\n" and "HEAPTIDE_ACT_AT" in done.stderr, threshold


def test_forked_child_reports_its_own_pressure(tmp_path: Path) -> None:
    program = """
child = os.fork()
if child == 0:
    load(60_000_000)
    wait_for_report()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(child)
"""
    done = grow(tmp_path, program, act_at="50MB", follow_fork="yes")
    [report] = reports(tmp_path)
    assert f"-{done.stdout.strip()}-" in report.name
    assert "DeprecationWarning" not in done.stderr, "a thread of Heaptide makes Python warn about the fork"


@pytest.fixture
def limited_group() -> Iterator[Path]:
    """Create a control group of version 1 with a limit of 128 MiB, and remove it."""
    own = Path("/proc/self/cgroup").read_text().splitlines()
    [path] = [line.split(":", 2)[2] for line in own if line.split(":")[1] == "memory"]
    parent = Path(f"/sys/fs/cgroup/memory{path.rstrip('/')}")
    group = (parent if parent.is_dir() else Path("/sys/fs/cgroup/memory")) / f"heaptide-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(128 << 20))
        yield group
    finally:
        wait_until(lambda: (group / "tasks").read_text() == "", "the end of the group's processes")
        group.rmdir()


def run_in(group: Path, folder: Path, program: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a control group."""
    script = folder / "grow.py"
    script.write_text(GROW + program)
    enter = f"import os, sys; open({str(group / 'tasks')!r}, 'w').write('0'); os.execv(sys.executable, sys.argv[1:])"
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", enter, sys.executable, str(script)],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
    )


def test_report_is_complete_before_the_kernel_kills_the_process(tmp_path: Path, limited_group: Path) -> None:
    program = "load(105_000_000); wait_for_report(); load(400_000_000)"
    env = {"HEAPTIDE": "run", "HEAPTIDE_QUIET": "yes", "HEAPTIDE_SAMPLE": "yes", "HEAPTIDE_ACT_AT": "75%"}
    done = run_in(limited_group, tmp_path, program, **env)
    assert done.returncode == -9, (done.returncode, done.stderr)
    [report] = reports(tmp_path)
    text = report.read_text()
    assert "of 134 MB are in use (7" in text
    assert "memory ran out before; this command shows them: heaptide summary --leaks --by location " in text
    assert "__init__ at" in text and "grow.py:6" in text


def test_types_are_left_out_with_a_reason_if_a_census_does_not_fit(tmp_path: Path, limited_group: Path) -> None:
    # A census of half a million small objects needs 20 MB, more than half of the memory that is left.
    program = """
def fill():
    while True:
        rows.extend(object() for _ in range(1000))
        time.sleep(0.0005)
        if glob.glob("pressure-*.txt"):
            break
fill()
wait_for_report()
"""
    env = {"HEAPTIDE": "run", "HEAPTIDE_QUIET": "yes", "HEAPTIDE_SAMPLE": "yes", "HEAPTIDE_ACT_AT": "75%"}
    done = run_in(limited_group, tmp_path, program, **env)
    assert done.returncode == 0, done.stderr
    [report] = reports(tmp_path)
    assert "Types are missing: a census needs up to" in report.read_text()
