"""Measures a served job under load: many callers at once, while a recording starts and stops twice.

    python bench/load.py --callers 200 --seconds 30

Run it with an interpreter that has Heaptide. Prints the figures as JSON, and exits with 1 if a request failed or a
session was lost.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

JOB = """
class Job:
    def perform(self, size: int = 1000) -> int:
        rows = [{"n": n, "text": str(n)} for n in range(size)]
        return sum(len(row["text"]) for row in rows)
"""
PROFILER = "/api/v1/profiler"
# Deleting a session needs a token.
TOKEN = "load"


def measure(n_callers: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Serve and call the job, start and stop recordings, and return the figures."""
    script = folder / "load_job.py"
    script.write_text(JOB)
    environment = {**os.environ, "HEAPTIDE_RUNTIME_DIR": str(folder / "run"), "HEAPTIDE_SESSIONS": str(folder / "kept")}
    environment |= {"HEAPTIDE_PROFILER": "true", "HEAPTIDE_TOKEN": TOKEN, "HEAPTIDE_TOKEN_FILE": ""}
    command = [sys.executable, "-m", "heaptide", "serve", "--port", "0", str(script)]
    job = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    try:
        host = job.stdout.readline().rpartition(" at http://")[2].partition("/")[0]
        request(host, "POST", f"{PROFILER}/stop")
        for session in request(host, "GET", f"{PROFILER}/sessions")["sessions"]:
            request(host, "DELETE", f"{PROFILER}/sessions/{session['id']}")
        callers = Callers(host, n_callers)
        for _ in range(2):
            callers.run_for(seconds / 4)
            request(host, "POST", f"{PROFILER}/start")
            callers.run_for(seconds / 4)
            request(host, "POST", f"{PROFILER}/stop")
        callers.stop()
        sessions = request(host, "GET", f"{PROFILER}/sessions")["sessions"]
    finally:
        job.terminate()
        code = job.wait()
        job.stdout.close()
    times = sorted(callers.seconds)
    return {
        "callers": n_callers,
        "calls": len(times),
        "failed": len(callers.failures),
        "failures": callers.failures[:3],
        "calls_per_second": round(len(times) / seconds, 1),
        "median_ms": round(statistics.median(times) * 1000, 1) if times else None,
        "p99_ms": round(times[len(times) * 99 // 100] * 1000, 1) if times else None,
        "sessions": sum(1 for session in sessions if session["bytes"] > 0 and session["peak_bytes"]),
        "exit_code": code,
    }


def request(host: str, method: str, path: str) -> Any:
    """Send one request; any status but 200 is an error."""
    connection = http.client.HTTPConnection(host, timeout=300)
    try:
        connection.request(method, path, headers={"Authorization": f"Bearer {TOKEN}"})
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{method} {path}: {answer.status} {body[:500]!r}")
    return json.loads(body)


class Callers:
    """Callers on separate threads, each with one persistent connection."""

    def __init__(self, host: str, n_callers: int) -> None:
        self.seconds: list[float] = []
        self.failures: list[str] = []
        self._host = host
        self._is_stopping = threading.Event()
        self._threads = [threading.Thread(target=self._call, daemon=True) for _ in range(n_callers)]
        for thread in self._threads:
            thread.start()

    def _call(self) -> None:
        connection = http.client.HTTPConnection(self._host, timeout=300)
        while not self._is_stopping.is_set():
            begin = time.monotonic()
            try:
                connection.request("POST", "/api/v1/perform", b"{}", {"Content-Type": "application/json"})
                answer = connection.getresponse()
                body = answer.read()
                if answer.status != 200:
                    self.failures.append(f"{answer.status} {body[:200]!r}")
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
                connection.close()
            self.seconds.append(time.monotonic() - begin)
        connection.close()

    def run_for(self, seconds: float) -> None:
        """Let the callers run for some time."""
        self._is_stopping.wait(seconds)

    def stop(self) -> None:
        """Stop new calls and wait for the running ones."""
        self._is_stopping.set()
        for thread in self._threads:
            thread.join()


def main() -> int:
    """Measure once, print, and check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--callers", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(options.callers, options.seconds, Path(folder))
    print(json.dumps(figures, indent=2))
    return 1 if figures["failed"] or figures["sessions"] != 2 or figures["exit_code"] else 0


if __name__ == "__main__":
    sys.exit(main())
