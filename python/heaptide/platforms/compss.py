"""COMPSs: its names for the files of reports and timelines, and the layout of its memory profiler's reports."""

from __future__ import annotations

import os
import sys

from heaptide.platforms import Platform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from heaptide.lines.report import Call

PLATFORM = Platform(
    variables={"profiling_file": "COMPSS_PROFILING_FILE"},
    documented={
        "COMPSS_PROFILING_FILE": "the same as `HEAPTIDE_PROFILING_FILE`, under the name that COMPSs uses",
        "COMPSS_WORKER_PROFILE_PATH": "folder for timelines of many nodes, as `HEAPTIDE_OUT` is for `heaptide record`",
    },
)

_MIB = 1 << 20


def one_line(call: Call, file: str, function: str, precision: int) -> str:
    """Return the short report of a call, as COMPSs 3.3 writes it."""
    words = [
        f"{call.started:.6f}",
        task_name(),
        file,
        function,
        f"{call.elapsed:.6f}",
        f"{call.first_bytes / _MIB:.{precision}f}",
        f"{call.last_bytes / _MIB:.{precision}f}",
        f"{call.peak_bytes / _MIB:.{precision}f}",
        "MiB",
    ]
    return " ".join(words) + "\n"


def lines_after_table(call: Call, precision: int) -> str:
    """Return the lines that COMPSs 3.3 adds to the table of a call."""
    return (
        f"Job name: {task_name()}\n"
        f"Task start time: {call.started:.6f}\n"
        f"Elapsed time: {call.elapsed:.6f}\n"
        f"Initial memory: {call.first_bytes / _MIB:.{precision}f} MiB\n"
        f"Final memory: {call.last_bytes / _MIB:.{precision}f} MiB\n"
    )


def task_name() -> str:
    """Return the name of the file that standard output goes to, which COMPSs names after the task, or ``master``."""
    try:
        target = os.readlink(f"/proc/self/fd/{sys.stdout.fileno()}")
    except (OSError, ValueError, AttributeError):
        return "master"
    return os.path.basename(target).partition(".")[0] if os.path.isfile(target) else "master"
