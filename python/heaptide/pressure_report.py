"""The process that completes the report of memory pressure. `heaptide.pressure` starts it.

It detaches from the program. If memory runs out, the kernel kills its children first, then this process, then others.
It writes each part of the report as soon as it is known. For a part that needs too much memory, it writes the command
that shows this part later.
"""

from __future__ import annotations

import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NICENESS = 10
# Values of oom_score_adj, in thousandths of all memory: the kernel kills the process with the highest score.
_OWN_SCORE, _CHILD_SCORE = "900", "1000"
_N_ROWS = "40"
# The kernel kills a process with this signal to free memory.
_KILLED = 9


def main() -> None:
    """Read the request from standard input, detach, write the report and run the command."""
    request = json.load(sys.stdin)
    if os.fork():
        os._exit(0)
    _yield_to_program()
    report = os.open(request["report"], os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    _write(report, request)
    os.close(report)
    if request["command"]:
        _run_command(request)
    os._exit(0)


def _yield_to_program() -> None:
    """Lower this process's CPU priority, and make the kernel kill it before the program if memory runs out."""
    try:
        os.nice(_NICENESS)
    except OSError:  # a sandbox may forbid it
        pass
    _set_oom_score(_OWN_SCORE)


def _set_oom_score(score: str) -> None:
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write(score)
    except OSError:  # a sandbox may forbid it
        pass


def _write(report: int, request: dict[str, Any]) -> None:
    capture = request["capture"]
    if capture is None:
        _add(report, "Sites are missing: the process was not being recorded. Record it, for example with --sample.\n\n")
    else:
        _add(report, f"Live memory by site at {time.strftime('%H:%M:%S')}, from {capture}\n")
        _add_command(report, ["summary", "--leaks", "--by", "location", "-s", "3", "-r", _N_ROWS, capture])
        if _has_jobs(capture):
            # The program runs on, so this table is of a later moment than the one above.
            _add(report, f"\nLive memory by job at {time.strftime('%H:%M:%S')}\n")
            _add_command(report, ["summary", "--leaks", "--by", "job", "-s", "3", "-r", _N_ROWS, capture])
    _add(report, "End of the report\n")


def _has_jobs(capture: str) -> bool:
    """Return whether the capture has jobs; False if that cannot be determined."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os._exit(_heaptide(writing, ["summary", "--leaks", "--by", "job", "-r", "2", capture]))
    os.close(writing)
    with open(reading, "rb") as output:
        text = output.read()
    _, status = os.waitpid(child, 0)
    return status == 0 and len(text.splitlines()) > 3


def _add(report: int, text: str) -> None:
    os.write(report, text.encode("utf-8", "backslashreplace"))


def _add_command(report: int, words: list[str]) -> None:
    """Append the output of a heaptide command. It runs in another process, so its failure does not end this one."""
    child = os.fork()
    if child == 0:
        os._exit(_heaptide(report, words))
    _, status = os.waitpid(child, 0)
    if status != 0:
        why = "memory ran out" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == _KILLED else f"status {status}"
        _add(report, f"This part is missing ({why}); this command shows it: heaptide {' '.join(words)}\n")


def _heaptide(output: int, words: list[str]) -> int:
    _set_oom_score(_CHILD_SCORE)
    os.dup2(output, 1)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    from heaptide import _native

    outcome = _native.main(words)
    return outcome if isinstance(outcome, int) else 2


def _run_command(request: dict[str, Any]) -> None:
    import subprocess

    variables = {
        "HEAPTIDE_REPORT": request["report"],
        "HEAPTIDE_PID": str(request["pid"]),
        "HEAPTIDE_USED_BYTES": str(request["used"]),
        "HEAPTIDE_LIMIT_BYTES": str(request["limit"]),
    }
    subprocess.run(["/bin/sh", "-c", request["command"]], env={**os.environ, **variables}, check=False)
