"""Reports live memory before the kernel kills the process: ``HEAPTIDE_ACT_AT``, :func:`on_pressure`.

A native thread of Heaptide reads the memory in use fifty times a second, without the GIL. When it crosses the
threshold, that thread calls :func:`check`, which writes the beginning of the report and starts another process. That
process adds the sites from the capture; it does not use the program's memory, and it survives the program. A crossing
is reported once, and at most every ten minutes.
"""

from __future__ import annotations

import os
import sys
import time

from heaptide import _native, setting_values
from heaptide.messages import print_message, print_message_once, reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

DEFAULT_THRESHOLD = "90%"
# A census needs `CENSUS_BYTES`, and this many bytes for each block of Python's allocator.
CENSUS_BYTES_PER_BLOCK = 40
CENSUS_BYTES = 4 << 20
N_TYPES = 20
_CODE = "import sys; sys.path.insert(0, sys.argv.pop(1)); from heaptide.pressure_report import main; main()"
_SHELL = "/bin/sh"
# If memory runs out while the new process starts, the kernel must kill that process, not the larger program.
_EXPENDABLE = 'echo 900 >/proc/self/oom_score_adj; exec "$@"'

_functions: list[Callable[[Pressure], object]] = []
_command = ""
_is_watching = False


class Pressure:
    """A crossing of the threshold.

    used_bytes        memory in use: of the control group without its page cache, or resident bytes of the process
    limit_bytes       the control group's limit, or the size in the threshold
    threshold_bytes   the memory use that counts as pressure
    report            path of the report, which another process is writing
    """

    def __init__(self, used_bytes: int, limit_bytes: int, threshold_bytes: int, report: str) -> None:
        self.used_bytes = used_bytes
        self.limit_bytes = limit_bytes
        self.threshold_bytes = threshold_bytes
        self.report = report

    def __repr__(self) -> str:
        used, limit = _native.size_text(self.used_bytes), _native.size_text(self.limit_bytes)
        return f"<pressure: {used} of {limit} in use, report {self.report}>"


def on_pressure(function: Callable[[Pressure], Any], *, at: str | None = None) -> Callable[[Pressure], Any]:
    """Call `function` with a :class:`Pressure` when memory use crosses the threshold. Also usable as a decorator.

    `at` is a threshold as in HEAPTIDE_ACT_AT. By default, the current threshold applies, or 90% of the control group's
    limit. The function runs on a thread of Heaptide, which is not recorded. Heaptide also writes the report.
    """
    if not callable(function):
        raise TypeError(f"on_pressure needs a function, not {function!r}")
    _functions.append(function)
    if at is not None or not _is_watching:
        watch(setting_values.threshold(at if at is not None else DEFAULT_THRESHOLD))
    return function


def watch(threshold: str, *, command: str | None = None) -> None:
    """Set the threshold: `90%`, `400MB` or `90% of 400MB`. Replaces an earlier one."""
    from heaptide.activation import triggers

    global _is_watching, _command
    if command is not None:
        _command = command
    share, is_share, rest = threshold.partition("%")
    base = rest.strip().removeprefix("of").strip() if is_share else threshold
    n_bytes = setting_values.size(base) if base else 0
    if is_share:
        can_cross = _native.watch_pressure(
            thousandths=round(float(share) * 10), bytes=round(n_bytes * float(share) / 100)
        )
    else:
        can_cross = _native.watch_pressure(bytes=n_bytes)
    if not can_cross:
        print_message_once(
            f"there is no memory limit of a control group for HEAPTIDE_ACT_AT={threshold}; "
            "name a size such as 400MB instead"
        )
        return
    _is_watching = True
    triggers.start()


def check() -> None:
    """Report a crossing of the threshold, if there was one. Runs on Heaptide's thread."""
    crossing = _native.take_pressure()
    if crossing is None:
        return
    used_bytes, limit_bytes, threshold_bytes = crossing
    capture = _native.active()
    report = _new_path(capture)
    found = Pressure(used_bytes, limit_bytes, threshold_bytes, report)
    types = _types(_headroom(found))
    _begin_report(found, capture, types)
    _start_report(found, capture)
    used, limit = _native.size_text(used_bytes), _native.size_text(limit_bytes)
    print_message(f"memory use is {used} of {limit}; live memory by site: {report}")
    for function in _functions:
        try:
            function(found)
        except Exception as error:
            print_message(f"a function for memory pressure failed: {reason(error)}; the program continues")


def _new_path(capture: str | None) -> str:
    from heaptide.recording import capture_files

    folder = os.path.dirname(capture) if capture is not None else os.getcwd()
    host = capture_files.safe(os.uname().nodename)
    stem = os.path.join(folder, f"pressure-{host}-{os.getpid()}-{capture_files.stamp()}")
    return capture_files.unused_path(stem, ".txt")


def _headroom(found: Pressure) -> int:
    """Return the bytes that the process can still allocate: up to the limit, or the machine's available memory."""
    if found.limit_bytes > found.threshold_bytes:
        return max(0, found.limit_bytes - found.used_bytes)
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 0


def _types(headroom: int) -> str:
    """Return the largest types, or the reason why they are missing."""
    from heaptide.inspection.census import heap_census

    needed = CENSUS_BYTES + CENSUS_BYTES_PER_BLOCK * sys.getallocatedblocks()
    if needed > headroom // 2:
        most, left = _native.size_text(needed), _native.size_text(headroom)
        return f"Types are missing: a census needs up to {most}, and {left} are left.\n"
    try:
        census = heap_census()
    except Exception as error:
        return f"Types are missing: {reason(error)}.\n"
    size = _native.size_text
    rows = [f"{size(kind.bytes):>10} {kind.objects:>12,}  {kind.name}" for kind in list(census)[:N_TYPES]]
    title = f"Python objects by type: {size(census.bytes)} in {census.objects:,} objects"
    return "\n".join([title, f"{'size':>10} {'objects':>12}  type", *rows]) + "\n"


def _begin_report(found: Pressure, capture: str | None, types: str) -> None:
    """Write the first part of the report. If there is no memory for another process, it is the whole report."""
    hint = "" if capture is None else f"; this command shows them: heaptide summary --leaks --by location {capture}"
    used, limit, threshold = map(_native.size_text, (found.used_bytes, found.limit_bytes, found.threshold_bytes))
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime())
    text = (
        f"Memory pressure at {moment}: process {os.getpid()} on {os.uname().nodename}\n"
        f"{used} of {limit} are in use ({100 * found.used_bytes / found.limit_bytes:.0f}%); "
        f"the threshold is {threshold}.\n"
        f"Another process adds sites. If the end of the report is missing, memory ran out before{hint}\n\n{types}\n"
    )
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    report = os.open(found.report, flags, 0o600)
    try:
        os.write(report, text.encode("utf-8", "backslashreplace"))
    finally:
        os.close(report)


def _start_report(found: Pressure, capture: str | None) -> None:
    """Start the process that adds sites and runs the command. It detaches, so it is no child of the program."""
    import json
    import subprocess

    from heaptide import command_process

    python, *_ = command_process.command()
    request = {
        "report": found.report,
        "capture": capture,
        "used": found.used_bytes,
        "limit": found.limit_bytes,
        "pid": os.getpid(),
        "command": _command,
    }
    packages = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    words = [python, "-I", "-S", "-c", _CODE, packages]
    if os.path.exists(_SHELL):
        words = [_SHELL, "-c", _EXPENDABLE, "sh", *words]
    subprocess.run(
        words,
        input=json.dumps(request).encode(),
        stdout=subprocess.DEVNULL,
        # Messages of this process would only confuse in the output of the program.
        stderr=subprocess.DEVNULL,
        env=command_process.environment(),
        start_new_session=True,
        check=False,
    )
