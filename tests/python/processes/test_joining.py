"""Tests that processes which start while a recording is wanted join it, and that a stop stops all of them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import heaptide
from support.controlled_program import ControlledProgram, start_program
from support.waiting import wait_until

pytestmark = pytest.mark.once

# Prints its process ID once it holds the block, and waits for the end of its input.
CHILD = """
import os, sys
block = bytearray(700_000)
print(os.getpid(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlledProgram]:
    """A program that opened the control API itself; no setting makes its children open one."""
    program = start_program(tmp_path_factory.mktemp("p"))
    (program.folder / "child.py").write_text(CHILD)
    program.evaluate("[globals().update(os=__import__('os'), subprocess=__import__('subprocess')), 1][1]")
    yield program
    program.stop()


def spawn(program: ControlledProgram) -> int:
    """Let the program start another Python program, and return its process ID."""
    code = "[sys.executable, 'child.py'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True"
    return int(program.evaluate(f"int([kept.append(subprocess.Popen({code})), kept[-1].stdout.readline()][1])"))


def states(program: ControlledProgram) -> dict[int, str]:
    """Return the states of all processes of the program."""
    return {one["pid"]: one["state"] for one in program.get("status").json()["processes"]}


def test_spawned_child_joins_a_wanted_recording_and_stops_with_it(program: ControlledProgram) -> None:
    early = spawn(program)
    assert early not in states(program)
    session = program.post("start")["session"]
    assert program.get("status").json()["wanted_session"] == session
    late = spawn(program)
    assert states(program)[late] == "recording"
    described = program.post("stop")
    assert {one["pid"] for one in described["processes"]} == {program.process.pid, late}
    assert set(states(program).values()) == {"stopped"}
    assert program.get("status").json()["wanted_session"] is None
    later = spawn(program)
    assert later not in states(program)
    folder = program.folder / "sessions" / session
    assert f"process {late} (child.py)" in heaptide("summary", "--total", "--by", "process", folder).stdout
    assert "child.py:3" in heaptide("summary", "--total", "--by", "location", "--process", "child*", folder).stdout


def test_later_child_joins_in_the_mode_to_which_the_recording_changed(program: ControlledProgram) -> None:
    session = program.post("start")["session"]
    program.post("mode", {"mode": "objects"})
    late = spawn(program)
    assert states(program)[late] == "recording"
    program.post("stop")
    folder = program.folder / "sessions" / session
    known = json.loads(heaptide("stats", "--json", "--process", "child*", folder).stdout)["heaptide"]["processes"]
    assert [[mode["objects"] for mode in process["modes"]] for process in known] == [[True]]


def test_forked_child_joins_by_default_and_not_if_forks_are_not_followed(program: ControlledProgram) -> None:
    fork = "(lambda pid: pid or (leak(1), os._exit(0)))(os.fork())"
    session = program.post("start")["session"]
    followed = int(program.evaluate(f"[pid := {fork}, os.waitpid(pid, 0)][0]"))
    program.post("stop")
    captures = {path.name for path in (program.folder / "sessions" / session).glob("*.tide*")}
    assert captures == {f"{program.process.pid}.tide", f"{program.process.pid}.tide.{followed}"}
    alone = program.post("start", {"follow_fork": 0})["session"]
    program.evaluate(f"[pid := {fork}, os.waitpid(pid, 0)][0]")
    late = spawn(program)
    assert late not in states(program)
    program.post("stop")
    captures = {path.name for path in (program.folder / "sessions" / alone).glob("*.tide*")}
    assert captures == {f"{program.process.pid}.tide"}


def test_process_that_executes_another_program_joins_again(program: ControlledProgram) -> None:
    session = program.post("start")["session"]
    code = "import os, sys; os.execv(sys.executable, [sys.executable, 'child.py'])"
    popen = f"[sys.executable, '-c', {code!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True"
    pid = int(program.evaluate(f"int([kept.append(subprocess.Popen({popen})), kept[-1].stdout.readline()][1])"))
    assert states(program)[pid] == "recording"
    program.post("stop")
    captures = sorted(path.name for path in (program.folder / "sessions" / session).glob(f"{pid}*"))
    assert captures == [f"{pid}-2.tide", f"{pid}.tide"]
    report = heaptide("summary", "--total", "--by", "location", program.folder / "sessions" / session).stdout
    assert "child.py:3" in report


def test_deleted_session_is_no_longer_wanted(program: ControlledProgram) -> None:
    session = program.post("start")["session"]
    for path in (program.folder / "sessions" / session).iterdir():
        path.unlink()
    (program.folder / "sessions" / session).rmdir()
    late = spawn(program)
    assert late not in states(program) or states(program)[late] == "stopped"
    assert program.get("status").json()["wanted_session"] is None


def test_unreadable_wanted_file_is_ignored(program: ControlledProgram) -> None:
    program.post("start")
    (wanted,) = (program.folder / "sessions").glob("*/wanted.json")
    assert wanted.stat().st_mode & 0o777 == 0o600
    wanted.write_text("{")
    late = spawn(program)
    assert states(program)[late] == "stopped"
    program.post("stop")
    assert not wanted.parent.exists()
    assert "Traceback" not in program.stderr()


TRIGGERED = """
import os, subprocess, sys, time

def work():
    block = bytearray(600_000)
    time.sleep(0.01)

def forked():
    pid = os.fork()
    if pid:
        return pid
    while True:
        work()

print("ready", flush=True)
for line in sys.stdin:
    if line.startswith("fork"):
        print(forked(), flush=True)
    elif line.startswith("spawn"):
        child = subprocess.Popen([sys.executable, "child.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        print(child.stdout.readline().strip(), flush=True)
"""


class Triggered:
    """A program whose recordings a signal or the control file starts."""

    def __init__(self, folder: Path, **env: str) -> None:
        (folder / "job.py").write_text(TRIGGERED)
        (folder / "child.py").write_text(CHILD)
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "job.py"],
            cwd=folder,
            env={**os.environ, "HEAPTIDE_RUNTIME_DIR": str(folder / "r"), "HEAPTIDE_OUT": "x.tide", **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "stderr.txt").open("w"),
            text=True,
        )
        self.children: list[int] = []
        assert self.line() == "ready"

    def line(self) -> str:
        """Return the next line of output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def start_child(self, start_method: str) -> int:
        """Let the program fork or spawn a child."""
        assert self.process.stdin is not None
        self.process.stdin.write(start_method + "\n")
        self.process.stdin.flush()
        self.children.append(int(self.line()))
        return self.children[-1]

    def stop(self) -> None:
        """End the program and its children."""
        for pid in self.children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.terminate()
        self.process.wait()


def is_recorded(path: Path) -> bool:
    """Return whether a process has the capture open."""
    for fd in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.path.realpath(fd) == str(path.resolve()):
                return True
        except OSError:
            continue
    return False


@pytest.mark.parametrize("trigger", ["signal", "file"])
def test_children_of_a_triggered_recording_join_and_stop_with_it(
    tmp_path_factory: pytest.TempPathFactory, trigger: str
) -> None:
    folder = tmp_path_factory.mktemp("t")
    file = folder / "wanted"
    job = Triggered(
        folder, **({"HEAPTIDE_SIGNAL": "USR2"} if trigger == "signal" else {"HEAPTIDE_CONTROL_FILE": str(file)})
    )

    def request(word: str) -> None:
        if trigger == "signal":
            job.process.send_signal(signal.SIGUSR2)
        else:
            file.write_text(word)

    try:
        request("on")
        first = folder / "x.tide"
        wait_until(first.exists, "the capture")
        wait_until(lambda: "recording into" in (folder / "stderr.txt").read_text(), "the message")
        forked, spawned = job.start_child("fork"), job.start_child("spawn")
        captures = [first, folder / f"x.tide.{forked}", folder / f"x.tide.{spawned}"]
        wait_until(lambda: all(path.exists() for path in captures), "the captures of the children")
        assert all(is_recorded(path) for path in captures)
        request("off")
        wait_until(lambda: not any(is_recorded(path) for path in captures), "the end of all recordings")
        report = heaptide("stats", folder).stdout
        assert "different runs" not in report and "did not end" not in report
        late = job.start_child("fork")
        assert not (folder / f"x.tide.{late}").exists()
    finally:
        job.stop()


def test_program_started_by_a_joined_child_is_in_the_same_session(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text("block = bytearray(900_000)\n")
    (tmp_path / "setup.py").write_text("import os, sys\nos.execv(sys.executable, [sys.executable, 'worker.py'])\n")
    (tmp_path / "main.py").write_text("import subprocess, sys\nsubprocess.run([sys.executable, 'setup.py'])\n")
    env = {**os.environ, "HEAPTIDE": "run", "HEAPTIDE_OUT": "m.tide", "HEAPTIDE_QUIET": "yes"}
    subprocess.run([sys.executable, "main.py"], cwd=tmp_path, env=env, check=True)
    stats: dict[str, Any] = json.loads(heaptide("stats", "--json", tmp_path).stdout)
    processes = stats["heaptide"]["processes"]
    assert [one["title"] for one in processes] == ["main.py", "setup.py", "worker.py"]
    assert len({one["session"] for one in processes}) == len({one["run"] for one in processes}) == 1
    assert any("worker.py" in one["location"] for one in stats["top_allocations_by_size"])
