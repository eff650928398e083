"""The process that writes the report of memory pressure: started by `heaptide.pressure`, on its own when it works.

It detaches from the program, and asks the kernel to end it first if memory runs out. Each part of the report is in the
file as soon as it is known, so the file is useful even if this process is killed.
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
_N_ROWS = "40"


def main() -> None:
    """Read the order from standard input, detach, write the report and run the command."""
    wanted = json.load(sys.stdin)
    if os.fork():
        os._exit(0)
    _yield_to_program()
    report = os.open(wanted["report"], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    _write(report, wanted)
    os.close(report)
    if wanted["command"]:
        _run_command(wanted)
    os._exit(0)


def _yield_to_program() -> None:
    """Let the kernel prefer the program: for the processor, and when it must end a process."""
    try:
        os.nice(_NICENESS)
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")
    except OSError:  # a sandbox may forbid it
        pass


def _write(report: int, wanted: dict[str, Any]) -> None:
    from heaptide import _native

    used, limit, threshold = (_native.size_text(wanted[name]) for name in ("used", "limit", "threshold"))
    share = 100 * wanted["used"] / wanted["limit"]
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime())
    _add(
        report,
        f"Memory pressure at {moment}: process {wanted['pid']} on {os.uname().nodename}\n"
        f"{used} of {limit} are in use ({share:.0f}%); the threshold is {threshold}.\n\n",
    )
    capture = wanted["capture"]
    if capture is None:
        _add(report, "Sites are missing: the process was not being recorded. Record it, sampled for example.\n\n")
    else:
        _add(report, f"Live memory by site, from {capture}\n")
        _add_command(report, ["summary", "--leaks", "--by", "location", "-s", "3", "-r", _N_ROWS, capture])
        if _has_jobs(capture):
            _add(report, "\nLive memory by job\n")
            _add_command(report, ["summary", "--leaks", "--by", "job", "-s", "3", "-r", _N_ROWS, capture])
        _add(report, "\n")
    _add(report, wanted["types"])


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
        _add(report, f"This part is missing: heaptide {words[0]} failed (status {status}).\n")


def _heaptide(output: int, words: list[str]) -> int:
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
