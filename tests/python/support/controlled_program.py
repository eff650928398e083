"""Programs that serve the control API, driven over HTTP from another process as a developer would."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import textwrap
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

BASE = "/api/v1/profiler"


@dataclass(frozen=True)
class Answer:
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the parsed JSON body."""
        return json.loads(self.body)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


class UnixConnection(http.client.HTTPConnection):
    """An HTTP connection over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=300)
        self._path = path

    def connect(self) -> None:
        """Open the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def connect(address: str) -> http.client.HTTPConnection:
    """Connect to `http://host:port` or `unix:path`."""
    if address.startswith("unix:"):
        return UnixConnection(address.removeprefix("unix:"))
    parts = urlsplit(address)
    assert parts.hostname is not None
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=300)


def ask(
    address: str,
    method: str,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Send one request. A body that is not bytes is sent as JSON."""
    connection = connect(address)
    sent = dict(headers or {})
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        sent.setdefault("Content-Type", "application/json")
    try:
        connection.request(method, path, body=body, headers=sent)
        answer = connection.getresponse()
        return Answer(answer.status, {k.title(): v for k, v in answer.getheaders()}, answer.read())
    finally:
        connection.close()


class ControlledProgram:
    """A process that serves the control API at the address in its first line of output."""

    def __init__(
        self,
        command: Sequence[str | Path],
        folder: Path,
        env: Mapping[str, str] | None = None,
        *,
        close_fds: bool = True,
    ) -> None:
        environment = {
            **os.environ,
            "HEAPTIDE_RUNTIME_DIR": str(folder / "run"),
            "HEAPTIDE_SESSIONS": str(folder / "sessions"),
            "PYTHONUNBUFFERED": "1",
        }
        self.folder = folder
        self.errors = (folder / "stderr.txt").open("w+")
        self.process = subprocess.Popen(
            [str(word) for word in command],
            cwd=folder,
            env=environment | dict(env or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            close_fds=close_fds,
        )
        self.address = self.line()

    def line(self) -> str:
        """Return the next line of output; if the program ended instead, fail with its standard error."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, f"the program ended with {self.process.wait()}: {self.stderr()}"
        return line

    def stderr(self) -> str:
        """Return what the program has written to standard error."""
        return (self.folder / "stderr.txt").read_text()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send one request. A path without a leading slash is relative to the profiler's routes."""
        whole = path if path.startswith("/") else f"{BASE}/{path}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return ask(self.address, method, whole, body, named)

    def get(self, path: str, **headers: str) -> Answer:
        """Send a GET request that must be answered with 200."""
        return self._good(self.ask("GET", path, **headers), path)

    def post(self, path: str, body: Any = None) -> Any:
        """Send a POST request that must be answered with 200, and return the JSON body."""
        return self._good(self.ask("POST", path, body), path).json()

    def bearer(self) -> str:
        """Return the header value with the token that the program created."""
        (token,) = (self.folder / "run").glob("*/token")
        return f"Bearer {token.read_text().strip()}"

    def _good(self, answer: Answer, path: str) -> Answer:
        assert answer.status == 200, f"{path}: {answer.status} {answer.body[:2000]!r}\n{self.stderr()}"
        return answer

    def evaluate(self, line: str) -> str:
        """Send a line of input to the program, and return the line it prints in reply."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.line()

    def finish(self) -> int:
        """Close the input of the program, wait for its end, and return its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        return self.stop()

    def stop(self) -> int:
        """Terminate the program if it still runs, wait for its end, and return its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream is not None:
                stream.close()
        return code


# Starts the control API with `arguments`, then evaluates its input line by line until the input ends.
EVALUATING_PROGRAM = """
    import sys
    import heaptide.control

    kept = []

    def leak(count):
        for _ in range(count):
            kept.append([None] * 1_000_000)
        return len(kept)

    control = heaptide.control.start_as_set({arguments})
    print(control.address or control.socket)
    for line in sys.stdin:
        print(eval(line))
"""


def start_program(
    folder: Path,
    arguments: str = "'0'",
    env: Mapping[str, str] | None = None,
    *,
    traced_by: Sequence[str | Path] = (),
) -> ControlledProgram:
    """Start a program that evaluates the lines of its input, under the command `traced_by` if there is one."""
    script = folder / "job.py"
    script.write_text(textwrap.dedent(EVALUATING_PROGRAM.format(arguments=arguments)))
    return ControlledProgram([*traced_by, sys.executable, script], folder, env)


def page_data(page: str) -> str:
    """Return the data of a report page as JSON."""
    found = re.search(r'id="data">([^<]*)<', page)
    assert found is not None
    return zlib.decompress(base64.b64decode(found[1]), -zlib.MAX_WBITS).decode()
