"""The text that identifies this process in the IDs of jobs: run, host, process ID, and start time of the process."""

from __future__ import annotations

import os

from heaptide.recording import runs

_known: tuple[int, str] | None = None


def of_process() -> str:
    """Return ``run/host/pid/start``; the run is empty if it has no name."""
    global _known
    pid = os.getpid()
    if _known is None or _known[0] != pid:
        _known = (pid, f"{runs.name()}/{os.uname().nodename}/{pid}/{start()}")
    return _known[1]


def start() -> str:
    """Return the start time of the process in seconds since boot, as in captures: ``83456.12s``."""
    try:
        with open("/proc/self/stat", "rb") as file:
            # The name of the program is in parentheses, and may itself contain blanks and parentheses.
            fields = file.read().rpartition(b")")[2].split()
        ticks = int(fields[19])
        per_second = os.sysconf("SC_CLK_TCK")
        return f"{ticks // per_second}.{ticks % per_second * 100 // per_second:02}s"
    except (OSError, ValueError, IndexError):
        return ""
