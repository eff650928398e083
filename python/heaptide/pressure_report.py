"""The process that completes the report of memory pressure: started by `heaptide.pressure`, on its own when it works.

It detaches from the program, and asks the kernel to end it first if memory runs out, and its children before it. Each
part of the report is in the file as soon as it is known, and a part that does not fit in memory is named with the
command that shows it later.
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NICENESS = 10
# What the kernel adds to the score of a process when it must end one, in thousandths of all memory.
_OWN_SCORE, _CHILD_SCORE = "900", "1000"
_N_ROWS = "40"
# The signal with which the kernel ends a process to free memory.
_KILLED = 9


def main() -> None:
    """Read the order from standard input, detach, write the report and run the command."""
    wanted = json.load(sys.stdin)
    if os.fork():
        os._exit(0)
    _yield_to_program()
    report = os.open(wanted["report"], os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    _write(report, wanted)
    os.close(report)
    if wanted["command"]:
        _run_command(wanted)
    os._exit(0)


def _yield_to_program() -> None:
    """Let the kernel prefer the program: for the processor, and when it must end a process."""
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


def _write(report: int, wanted: dict[str, Any]) -> None:
    capture = wanted["capture"]
    if capture is None:
        _add(report, "Sites are missing: the process was not being recorded. Record it, sampled for example.\n\n")
    else:
        _add(report, f"Live memory by site, from {capture}\n")
        _add_command(report, ["summary", "--leaks", "--by", "location", "-s", "3", "-r", _N_ROWS, capture])
        if _has_jobs(capture):
            _add(report, "\nLive memory by job\n")
            _add_command(report, ["summary", "--leaks", "--by", "job", "-s", "3", "-r", _N_ROWS, capture])
    _add(report, "End of the report\n")


def _has_jobs(capture: str) -> bool:
    """Return whether this version groups by job, and the capture has jobs."""
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
    """Append the output of a heaptide command, run in another process: a failure must not end this one."""
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
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    from heaptide import _native

    outcome = _native.main(words)
    return outcome if isinstance(outcome, int) else 2


def _run_command(wanted: dict[str, Any]) -> None:
    import subprocess

    variables = {
        "HEAPTIDE_REPORT": wanted["report"],
        "HEAPTIDE_PID": str(wanted["pid"]),
        "HEAPTIDE_USED_BYTES": str(wanted["used"]),
        "HEAPTIDE_LIMIT_BYTES": str(wanted["limit"]),
    }
    subprocess.run(["/bin/sh", "-c", wanted["command"]], env={**os.environ, **variables}, check=False)
