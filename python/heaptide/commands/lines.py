"""``heaptide lines script.py``: runs a program with ``profile`` as a builtin, and prints the tables when it exits.

Functions decorated with ``heaptide.profile`` are reported in the same way.

As with memory_profiler, all calls of a function are added up in one table.
"""

from __future__ import annotations

import atexit
import builtins
import os
import sys
import threading
from typing import Any

from heaptide.commands.run import run_program
from heaptide.containment import untraced
from heaptide.lines import brackets, profile, report
from heaptide.lines.profile import Profiled, wrap
from heaptide.lines.recording import LineRecording
from heaptide.lines.report import Call
from heaptide.messages import print_message, printable, reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from heaptide.commands.run import Target

    class LinesPlan(Target):
        """The arguments of the command."""

        command: str
        precision: int
        backend: str
        columns: list[str]
        output: str | None
        html: str | None


class Accumulated:
    """The tables of a program, one per function, in the order of decoration."""

    def __init__(self, backend: str = "psutil", reading: Callable[[], int] | None = None) -> None:
        """Create an empty collection. `reading` returns the size of the process, instead of the backend."""
        self._backend = backend
        self._reading = reading
        self._calls: dict[Profiled, Call] = {}
        self._lock = threading.Lock()

    def profile(self, function: Any = None, *_: object, **__: object) -> Any:
        """Decorate a function. Options are ignored, because the command line sets them."""
        if function is None or not (callable(function) or isinstance(function, (staticmethod, classmethod))):
            return self.profile
        return wrap(function, self._backend, self._add, accumulate=True, reading=self._reading)

    def _add(self, profiled: Profiled, call: Call) -> None:
        with self._lock:
            if profiled in self._calls:
                self._calls[profiled].add(call)
            else:
                self._calls[profiled] = call

    def calls(self) -> list[tuple[Profiled, Call]]:
        """Return every function that was called, with the sum of its calls."""
        return sorted(self._calls.items(), key=lambda item: item[0].number)


def run(plan: LinesPlan) -> int:
    """Run the program and report. Returns the exit code, or exits as the program does."""
    accumulated = Accumulated(plan["backend"])
    output = plan["output"] and os.path.abspath(plan["output"])
    page = plan["html"] and os.path.abspath(plan["html"])

    def begin() -> int:
        recording = LineRecording.begin(plan["target"]) if plan["columns"] else None
        # Registered before the program's exit handlers, so that it runs after them.
        atexit.register(_report, accumulated, plan, output, page, recording, os.getpid())
        builtins.profile = _Builtin(accumulated.profile)  # type: ignore[attr-defined]
        profile.collector = accumulated.profile
        return 0

    return run_program(plan, begin)


class _Builtin:
    """The builtin ``profile``: a decorator with the attribute ``timestamp``."""

    timestamp = brackets.timestamp

    def __init__(self, decorate: Any) -> None:
        self._decorate = decorate

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._decorate(*args, **options)


@untraced
def _report(
    accumulated: Accumulated,
    plan: LinesPlan,
    output: str | None,
    page: str | None,
    recording: LineRecording | None,
    pid: int,
) -> None:
    if os.getpid() != pid:
        return
    if recording is not None:
        recording.end()
    calls = accumulated.calls()
    if not calls:
        print_message("no function with @profile was called: decorate the functions to measure")
        return
    if recording is not None:
        for profiled, call in calls:
            call.heap = recording.lines(profiled.code)
        recording.remove()
    functions = [report.described(profiled.code, call) for profiled, call in calls]
    precision, columns = plan["precision"], plan["columns"]
    if page:
        report.save_page(page, functions, precision, columns)
        print(f"Wrote {printable(page)}", flush=True)
    text = report.render_all(functions, precision, columns)
    try:
        if output:
            report.append(output, text)
        else:
            report.deliver(text, None, "the program")
            sys.stdout.flush()
    except OSError as error:
        target = output or "standard output"
        print_message(
            f"the tables could not be written to {target} ({reason(error)}): check the folder and the space left"
        )
