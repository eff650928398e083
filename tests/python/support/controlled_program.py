"""Jobs with control, driven from outside over HTTP as a developer would."""

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
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as a value."""
        return json.loads(self.body)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a socket in the file system."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=300)
        self._path = path

    def connect(self) -> None:
        """Open the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def connect(address: str) -> http.client.HTTPConnection:
    """To `http://host:port` or `unix:path`."""
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
    """Send one request. A body that is not bytes goes as JSON."""
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


class Job:
    """A process that answers. Its first line of output tells where; `stop` waits for its end."""

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
        """The next line of output; a job that ended instead fails the test with what it said."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, f"the job ended with {self.process.wait()}: {self.stderr()}"
        return line

    def stderr(self) -> str:
        """What the job said on standard error so far."""
        return (self.folder / "stderr.txt").read_text()

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send one request; a path that begins with a slash is whole, any other is below the profiler's routes."""
        whole = path if path.startswith("/") else f"{BASE}/{path}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return ask(self.address, method, whole, body, named)

    def get(self, path: str, **headers: str) -> Answer:
        """GET, answered with 200."""
        return self._good(self.ask("GET", path, **headers), path)

    def post(self, path: str, body: Any = None) -> Any:
        """POST, answered with 200 and JSON."""
        return self._good(self.ask("POST", path, body), path).json()

    def _good(self, answer: Answer, path: str) -> Answer:
        assert answer.status == 200, f"{path}: {answer.status} {answer.body[:2000]!r}\n{self.stderr()}"
        return answer

    def tell(self, line: str) -> str:
        """Give the job a line of input, and return the line that it answers."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.line()

    def stop(self) -> int:
        """End it in order, if it has not ended."""
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream is not None:
                stream.close()
        return code


# Listens at `address`, then does what it is told, line by line, until its input ends.
OBEDIENT = """
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


def obedient(folder: Path, arguments: str = "'0'", env: Mapping[str, str] | None = None) -> Job:
    """A job that evaluates the lines it is told."""
    script = folder / "job.py"
    script.write_text(textwrap.dedent(OBEDIENT.format(arguments=arguments)))
    return Job([sys.executable, script], folder, env)


def page_data(page: str) -> str:
    """What a page shows, as JSON."""
    found = re.search(r'id="data">([^<]*)<', page)
    assert found is not None
    return zlib.decompress(base64.b64decode(found[1]), -zlib.MAX_WBITS).decode()
