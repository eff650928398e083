"""Tests that `heaptide attach` refuses with one sentence of advice, and leaves the process unchanged."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.attached_process import (
    SETTINGS,
    ask,
    attach,
    blocked,
    detach,
    end,
    output,
    refused,
    remaining_folders,
    running,
)
from support.commands import heaptide

pytestmark = pytest.mark.once


def test_processes_that_cannot_be_attached_are_refused_with_one_sentence(tmp_path: Path) -> None:
    missing = 2**22 + 1
    assert refused(missing) == f"there is no process {missing}: check the process ID with ps"
    sleep = shutil.which("sleep")
    assert sleep is not None
    with running(sleep, "600") as process:
        assert refused(process.pid) == (
            f"process {process.pid} (sleep) is not a CPython interpreter: name the process that runs Python"
        )
    # Other programs named like Python.
    for name, expected in (
        ("python3.9", "runs Python 3.9, and heaptide supports 3.10"),
        ("python3.12", "without symbols"),
    ):
        program = shutil.copy(sleep, tmp_path / name)
        with running(program, "600") as process:
            assert expected in refused(process.pid)
    with blocked() as process:
        assert refused(process.pid, command="detach") == "the process is not attached: there is nothing to stop"
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        assert refused(process.pid).startswith(f"process {process.pid} is stopped")
        process.send_signal(signal.SIGCONT)
        end(process)
    done = heaptide("attach", "nonsense", check=False)
    assert done.returncode == 2


def test_process_that_has_ended_is_refused() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    try:
        assert refused(process.pid).startswith(f"process {process.pid} has ended")
    finally:
        process.wait()


TRACER = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long] * 4
answer = libc.ptrace(0x4206, int(sys.argv[1]), 0, 0)
print("traced" if answer == 0 else ctypes.get_errno(), flush=True)
sys.stdin.read()
"""


def test_process_under_a_debugger_is_refused() -> None:
    with blocked() as process, running(sys.executable, "-c", TRACER, str(process.pid)) as tracer:
        result = output(tracer).readline()
        if result != "traced\n":
            pytest.skip(f"ptrace is not permitted here: errno {result.strip()}")
        expected = (
            f"process {process.pid} is traced by process {tracer.pid}, such as a debugger or strace: detach that first"
        )
        assert refused(process.pid) == expected
        tracer.communicate()
        end(process)


def test_process_of_another_user_or_with_more_capabilities_is_refused() -> None:
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or setpriv is None:
        pytest.skip("setpriv and root are needed to switch to another user")
    command = [sys.executable, "-m", "heaptide", "attach"]
    with blocked() as process:
        # Another user who may read every file, so that the interpreter can be started from any folder.
        reader = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
        other = [setpriv, "--reuid=65534", "--regid=65534", "--clear-groups", *reader]
        done = subprocess.run([*other, *command, str(process.pid)], capture_output=True, text=True)
        if done.returncode not in (0, 1) or "setpriv" in done.stderr or "Traceback" in done.stderr:
            pytest.skip(f"other users cannot run the interpreter here: {done.stderr.strip()[-200:]}")
        expected = f"process {process.pid} belongs to another user (uid 0): attach as that user or as root"
        assert done.stderr == f"heaptide: {expected}\n"
        # The same user with fewer capabilities than the process.
        fewer = [setpriv, "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
        done = subprocess.run([*fewer, *command, str(process.pid)], capture_output=True, text=True)
        assert done.returncode == 1 and f"process {process.pid} " in done.stderr
        assert any(setting in done.stderr for setting in SETTINGS), done.stderr
        end(process)


def test_failed_attach_is_reported_and_can_be_repeated(tmp_path: Path) -> None:
    with blocked() as process:
        assert "could not create /proc/x.tide" in attach(process, "-o", "/proc/x.tide", check=False)
        ask(process, 4)
        attach(process, "-o", tmp_path / "x.tide")
        detach(process)
        end(process)
    assert remaining_folders(process) == []


RECORDS_ITSELF = """
import sys
import heaptide
with heaptide.Tracker(sys.argv[1]):
    print("ready", flush=True)
    sys.stdin.readline()
"""


def test_detach_does_not_stop_a_recording_that_the_program_started(tmp_path: Path) -> None:
    capture = tmp_path / "own.tide"
    with running(sys.executable, "-c", RECORDS_ITSELF, capture) as process:
        assert output(process).readline() == "ready\n"
        attach(process, "-o", tmp_path / "x.tide", check=False)
        expected = f"the recording into {capture} was not started by heaptide attach: stop it where it was started"
        assert refused(process.pid, command="detach") == expected
        process.communicate("\n")
        assert process.returncode == 0
    assert "did not end its recording" not in heaptide("stats", capture).stdout
