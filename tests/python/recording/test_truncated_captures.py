"""Tests that a program survives the truncation of its capture, and keeps its own handling of SIGBUS."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import heaptide
from support.messages import one_sentence

Run = Callable[..., Any]

# Truncates the capture, then allocates until Heaptide has noticed.
TRUNCATE = """
import ctypes, faulthandler, heaptide, mmap, os, signal, sys, threading
from heaptide import _native
path = _native.active()
def truncate(length=0):
    os.truncate(path, length)
    while _native.active() is not None:
        held = [bytearray(1000) for _ in range(1000)]
"""

PREPARATIONS = {
    "default": "truncate()",
    "to a part": "held = [bytearray(1000 + n % 7) for n in range(60_000)]; truncate(200_000)",
    "faulthandler before": "truncate()",
    "faulthandler after": "faulthandler.enable(); truncate()",
    "faulthandler disabled again": "faulthandler.enable(); faulthandler.disable(); truncate()",
    "handler in Python": "signal.signal(signal.SIGBUS, lambda *_: print('taken')); truncate()",
    "ignored": "signal.signal(signal.SIGBUS, signal.SIG_IGN); truncate()",
    "handler in C": """
HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)
handler = HANDLER(lambda number: os._exit(99))
ctypes.CDLL(None).signal(int(signal.SIGBUS), handler)
truncate()
""",
    "blocked in a thread": """
def work():
    assert signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()) == set()
    assert signal.pthread_sigmask(signal.SIG_UNBLOCK, []) >= {signal.SIGBUS, signal.SIGUSR1}
    truncate()
thread = threading.Thread(target=work)
thread.start()
thread.join()
""",
    "fault in the keeper": """
import time
os.truncate(path, 0)
while _native.active() is not None:
    time.sleep(0.001)
""",
}


MODES = ["--aggregate", "--objects", "--native", "--sample=4k"]


@pytest.mark.parametrize(
    ("preparation", "options"),
    [(preparation, []) for preparation in PREPARATIONS]
    + [(preparation, [mode]) for preparation in ("default", "fault in the keeper") for mode in MODES],
)
def test_truncated_capture_does_not_end_the_program(tmp_path: Path, preparation: str, options: list[str]) -> None:
    script = tmp_path / "job.py"
    script.write_text(TRUNCATE + PREPARATIONS[preparation] + "\nprint('done')\nsys.exit(7)\n")
    flags = ["-X", "faulthandler"] if preparation == "faulthandler before" else []
    command = [sys.executable, *flags, "-m", "heaptide", "run", *options, "-o", "job.tide", "job.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("done\n", 7), done.stderr
    assert "another process truncated it" in one_sentence(done.stderr)
    # Heaptide writes nothing after the truncation, so the file does not become a sparse file.
    assert (tmp_path / "job.tide").stat().st_size == (200_000 if preparation == "to a part" else 0)


# Accesses a page beyond the end of the program's own file.
OWN_FAULT = """
def fault():
    with open("own", "wb+") as file:
        file.truncate(mmap.PAGESIZE)
        memory = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        file.truncate(0)
        memory[0]
"""

OWN_HANDLERS = {
    "default": ("fault()", ""),
    "ignored": ("signal.signal(signal.SIGBUS, signal.SIG_IGN); fault()", ""),
    "default after another handler": (
        "signal.signal(signal.SIGBUS, print); signal.signal(signal.SIGBUS, signal.SIG_DFL); fault()",
        "",
    ),
    "faulthandler": ("faulthandler.enable(); fault()", "Fatal Python error: Bus error"),
    "faulthandler before a subprocess": (
        "faulthandler.enable(); subprocess.run([sys.executable, '-c', '']); fault()",
        "Fatal Python error: Bus error",
    ),
    "faulthandler in a forked child": (
        "faulthandler.enable()\nif (pid := os.fork()) == 0: fault()\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGBUS; fault()",
        "Fatal Python error: Bus error",
    ),
    "sent": ("os.kill(os.getpid(), signal.SIGBUS); signal.pause()", ""),
}


@pytest.mark.parametrize("handler", OWN_HANDLERS)
def test_programs_own_bus_error_ends_it_as_without_heaptide(tmp_path: Path, handler: str) -> None:
    code, message = OWN_HANDLERS[handler]
    (tmp_path / "job.py").write_text("import faulthandler, mmap, os, signal, subprocess, sys\n" + OWN_FAULT + code)
    for prefix in ([], ["-m", "heaptide", "run", "-q", "-o", "job.tide"]):
        command = [sys.executable, *prefix, "job.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == -signal.SIGBUS, done.stderr
        assert (message in done.stderr) and (message != "" or done.stderr == "")
    heaptide("stats", tmp_path / "job.tide")


@pytest.mark.once
def test_programs_own_handlers_are_called_as_the_kernel_would_call_them(extension: Run, tmp_path: Path) -> None:
    library = extension("recording/bus_error_handlers")
    (tmp_path / "job.py").write_text(f"import ctypes; print(ctypes.CDLL({str(library)!r}).check())")
    for prefix in ([], ["-m", "heaptide", "run", "-q", "-o", "job.tide"]):
        command = [sys.executable, *prefix, "job.py"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert (done.stdout, done.stderr, done.returncode) == ("0\n", "", 0)


def test_handler_of_the_program_is_restored_after_the_recording(tmp_path: Path) -> None:
    program = """
import signal, heaptide
def caught():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return bool(int(fields["SigCgt"], 16) >> (signal.SIGBUS - 1) & 1)
seen = [caught()]
with heaptide.Tracker("a.tide"):
    seen += [caught(), signal.getsignal(signal.SIGBUS) == signal.SIG_DFL]
seen += [caught()]
with heaptide.Tracker("b.tide"):
    signal.signal(signal.SIGBUS, lambda *_: None)
seen += [caught()]
print(seen)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[False, True, True, False, True]\n", "")


HELD = "held = [bytearray(1000 + n % 7) for n in range(60_000)]"
REPORTS = {
    "empty": (1, "job.tide is empty: another process truncated it"),
    "part of the header": (1, "its header is damaged"),
    "header": (0, "the file ends after its header: another process truncated it"),
    "part of the first area's head": (0, "the file ends after its header: another process truncated it"),
    "part of the events": (0, "the file ends too early"),
}


# The program is killed before its capture is truncated, because a write in progress may extend the file again.
@pytest.mark.once
@pytest.mark.parametrize("rest", REPORTS)
def test_report_of_a_truncated_capture_shows_what_is_wrong(tmp_path: Path, rest: str) -> None:
    (tmp_path / "job.py").write_text(f"{HELD}\nimport os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    heaptide("run", "-o", "job.tide", "job.py", cwd=tmp_path, check=False)
    # The length of the header depends on the paths in it.
    header = (tmp_path / "job.tide").read_bytes().index(b"tideEXT1")
    lengths = dict(zip(REPORTS, (0, 10, header, header + 8, header + 200_000), strict=True))
    os.truncate(tmp_path / "job.tide", lengths[rest])
    done = heaptide("stats", "job.tide", cwd=tmp_path, check=False)
    assert (done.returncode, REPORTS[rest][1] in one_sentence(done.stderr)) == (REPORTS[rest][0], True), done.stderr


@pytest.mark.once
def test_recording_after_a_truncated_one_works(tmp_path: Path) -> None:
    program = """
import heaptide, os
tracker = heaptide.Tracker("first.tide")
tracker.start()
os.truncate("first.tide", 0)
while heaptide.active(): held = [bytearray(1000) for _ in range(1000)]
tracker.stop()
with heaptide.Tracker("second.tide"): held = bytes(1_234_567)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "another process truncated it" in one_sentence(done.stderr)
    assert " size=1234600 " in heaptide("parse", tmp_path / "second.tide").stdout
