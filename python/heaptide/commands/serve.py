"""``heaptide serve``: serves a Python function over HTTP, together with the control API if the settings enable it.

    POST …/api/v1/perform        call the function with JSON arguments
    GET  /live /ready /health    health checks
    GET  /metrics                metrics for Prometheus
    GET  /docs                   a page with a form for each route

All routes also work with any prefix, such as ``/pub/job/NAME/VERSION``. The recording starts before the file is
imported. SIGTERM or SIGINT lets running calls finish, completes the capture, and exits with code 0.
"""

from __future__ import annotations

import ipaddress
import os
import signal
import threading
from types import FrameType
from typing import TypedDict

from heaptide import control, settings
from heaptide.messages import print_message, reason
from heaptide.recording import tracker
from heaptide.serving.http import ProgramServer
from heaptide.serving.loading import NoJob, load


class Plan(TypedDict):
    """The arguments of the command."""

    job: str
    entrypoint: str | None
    host: str
    port: int
    name: str | None
    version: str
    grace_seconds: float
    guarded_elsewhere: bool


def serve(plan: Plan) -> int:
    """Serve until a signal arrives. Returns the exit code."""
    chosen = settings.load()
    name = plan["name"] or _name(plan["job"])
    try:
        server = ProgramServer((plan["host"], plan["port"]), name, plan["version"])
    except OSError as error:
        print_message(f"cannot serve at {plan['host']}:{plan['port']} ({reason(error)}): choose another port")
        return 1
    ended = _Ended()
    try:
        if chosen.profiler:
            try:
                token = control.token_as_set(chosen)
            except ValueError as error:
                print_message(str(error))
                return 1
            server.control = control.start_as_set(name=f"{name}-{plan['version']}", token=token)
            server.control.add_address(server.address())
            server.is_guarded_elsewhere = plan["guarded_elsewhere"]
            if not token and not plan["guarded_elsewhere"] and not _is_loopback(plan["host"]):
                print_message(
                    f"other machines can reach {plan['host']}: they need no token for {control.BASE}/memray/…, "
                    f"and for the profiler's other routes the token in {server.control.token_file}"
                )
            # Before the file is imported, so that the recording includes its imports.
            answer = server.control.handle("POST", f"{control.BASE}/start", trusted=True)
            if answer.status != 200:
                print_message(
                    f"cannot start recording: {answer.read().decode(errors='replace')}; "
                    "the program runs without being recorded"
                )
        return _serve(server, plan, ended)
    finally:
        server.close()
        if server.control is not None:
            if tracker.active():
                tracker.stop()
            server.control.stop()


def _serve(server: ProgramServer, plan: Plan, ended: _Ended) -> int:
    accepting = threading.Thread(target=server.serve_forever, name="accepting", daemon=True)
    accepting.start()
    try:
        try:
            server.program = load(plan["job"], plan["entrypoint"])
        except NoJob as error:
            print_message(str(error))
            return 1
        print(f"serving {server.program_name} {server.version} at {server.url()}", flush=True)
        ended.wait()
        return 0
    finally:
        server.drain(plan["grace_seconds"])
        accepting.join()


class _Ended:
    """Set by the first SIGTERM or SIGINT; the second one exits at once."""

    def __init__(self) -> None:
        self._event = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._event.is_set():
            os._exit(128 + number)
        self._event.set()

    def wait(self) -> None:
        self._event.wait()


def _name(path: str) -> str:
    """Return the name of the file without its ending, or of its folder if the file has a generic name like `job.py`."""
    absolute = os.path.abspath(path)
    stem = os.path.splitext(os.path.basename(absolute))[0]
    folder = os.path.basename(os.path.dirname(absolute))
    return folder if stem in ("job", "main", "entrypoint") and folder else stem


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
