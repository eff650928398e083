"""Tests that reports of a recording that ran out of space start with a warning, and that missing events are counted."""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.commands import heaptide, python
from support.pages import data_of

pytestmark = pytest.mark.once

# Half of the work is done by a thread that starts after the recording has failed.
PROGRAM = """
import os, signal, sys, threading

def work(seed):
    held = {}
    for n in range(20_000):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        held[seed % 97] = bytes(600 + seed % 30011)

work(1)
thread = threading.Thread(target=work, args=(2,))
thread.start()
thread.join()
if "kill" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
if "fork" in sys.argv:
    child = os.fork()
    if child == 0:
        # Not recorded, and not counted in the parent's file.
        work(3), os._exit(0)
    os.waitpid(child, 0)
"""


def limit_file_size() -> None:
    """Limit the size of files, so that only the first part of the capture fits."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (290_000, 290_000))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program."""
    folder = tmp_path_factory.mktemp("full")
    (folder / "job.py").write_text(PROGRAM)
    return folder


def process_of(statistics: dict[str, Any]) -> dict[str, Any]:
    """Return the only process."""
    [process] = statistics["heaptide"]["processes"]
    return dict(process)


@pytest.mark.parametrize("ending", ["exit", "kill", "fork"])
def test_dropped_events_are_counted_until_the_process_ends(
    folder: Path, stats: Callable[..., dict[str, Any]], ending: str
) -> None:
    heaptide("run", "-q", "-f", "-o", "whole.tide", "job.py", cwd=folder)
    cut = heaptide("run", "-f", "-o", "cut.tide", "job.py", ending, check=False, cwd=folder, preexec_fn=limit_file_size)
    assert cut.returncode == (-signal.SIGKILL if ending == "kill" else 0), cut.stderr
    whole, process = process_of(stats(folder / "whole.tide")), process_of(stats(folder / "cut.tide"))
    assert whole["stopped"] is None
    stopped = process["stopped"]
    assert "File too large" in stopped["reason"] and stopped["after_ns"] > 0
    assert process["num_events"] < whole["num_events"] / 4
    n_events = process["num_events"] + stopped["dropped_events"]
    # A complete recording ends before the interpreter does, which frees memory afterwards.
    n_at_exit = 0 if ending == "kill" else 10_000
    assert 0.98 * whole["num_events"] < n_events < 1.02 * whole["num_events"] + n_at_exit


@pytest.mark.parametrize(
    "words",
    [
        ("stats", "cut.tide"),
        ("tree", "cut.tide"),
        ("summary", "cut.tide"),
        ("live", "cut.tide"),
        ("diff", "cut.tide", "cut.tide"),
    ],
    ids=lambda words: words[0],
)
def test_report_of_an_incomplete_capture_starts_with_a_warning(folder: Path, words: tuple[str, ...]) -> None:
    heaptide("run", "-q", "-f", "-o", "cut.tide", "job.py", cwd=folder, preexec_fn=limit_file_size)
    lines = heaptide(*words, cwd=folder).stdout.splitlines()[:2]
    assert any("the capture is incomplete: recording stopped after" in line for line in lines), lines


def test_resident_memory_at_exit_is_not_compared_with_blocks_of_the_moment_of_the_failure(
    folder: Path, stats: Callable[..., dict[str, Any]]
) -> None:
    heaptide("run", "-q", "-f", "-o", "cut.tide", "job.py", cwd=folder, preexec_fn=limit_file_size)
    process = process_of(stats(folder / "cut.tide"))
    assert process["stopped"] is not None and process["ledger"] is None
    assert "Resident memory" not in heaptide("stats", "cut.tide", cwd=folder).stdout


def test_summary_of_an_incomplete_capture_starts_with_a_warning(folder: Path) -> None:
    heaptide("run", "-q", "-f", "-o", "cut.tide", "job.py", cwd=folder, preexec_fn=limit_file_size)
    code = "import os; from heaptide import _native; print(*_native.run_summary('cut.tide', os.getcwd()), sep='\\n')"
    first, second, *_ = python("-c", code, cwd=folder).stdout.splitlines()
    assert "the capture is incomplete: recording stopped after" in first
    assert second.startswith("peak memory: ")


@pytest.mark.parametrize("command", ["flamegraph", "table", "timeline"])
def test_page_of_an_incomplete_capture_starts_with_a_warning(folder: Path, command: str) -> None:
    heaptide("run", "-q", "-f", "-o", "cut.tide", "job.py", cwd=folder, preexec_fn=limit_file_size)
    heaptide(command, "-f", "-o", "page.html", "cut.tide", cwd=folder)
    first = data_of(folder / "page.html")["head"]["warnings"][0]
    assert "the capture is incomplete: recording stopped after" in first


@pytest.mark.parametrize("module", ["heaptide", "heaptide.compat.memray"])
def test_end_of_a_failed_tracker_does_not_stop_a_later_recording(tmp_path: Path, module: str) -> None:
    program = f"""
import resource
import heaptide
from {module} import Tracker
no_limit = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
resource.setrlimit(resource.RLIMIT_FSIZE, (290_000, resource.RLIM_INFINITY))
with Tracker("first.tide"):
    held = [bytes(600 + number % 3001) for number in range(100_000)]
    resource.setrlimit(resource.RLIMIT_FSIZE, no_limit)
    later = heaptide.Tracker("later.tide")
    later.start()
print(heaptide.active())
later.stop()
print(heaptide.active())
"""
    done = python("-c", program, cwd=tmp_path)
    assert done.stdout.split() == ["True", "False"]
    assert "the program continues without being recorded" in done.stderr
