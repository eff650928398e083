"""The server of ``heaptide serve``: the standard library's HTTP server, with one thread per connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
import threading
import time
import traceback
from concurrent.futures import Future
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from typing import Any
from urllib.parse import urlsplit

from heaptide import _native
from heaptide.control import BASE as PROFILER
from heaptide.control import Control
from heaptide.platforms import racetrack
from heaptide.serving import documents
from heaptide.serving.loading import ServedProgram

PERFORM = "/api/v1/perform"
MAX_BODY_BYTES = 64 << 20
# At most this many connections wait for their clients, so that file descriptors remain for the job.
MAX_WAITING = 400


class ProgramServer(ThreadingHTTPServer):
    """The served program, its control API, and its counters."""

    daemon_threads = True
    # Many callers may connect at the same moment.
    request_queue_size = 1024

    def __init__(self, address: tuple[str, int], name: str, version: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Connection)
        self.program_name = name
        self.version = version
        self.program: ServedProgram | None = None
        self.control: Control | None = None
        self.numbers = Numbers()
        # Whether a gateway authenticates all clients.
        self.is_guarded_elsewhere = False
        self.is_draining = False
        self._idle = threading.Condition()
        self._n_running = 0
        # Connections that wait for their clients; the one that was active last is at the end.
        self._waiting: dict[socket.socket, None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_lock = threading.Lock()

    def address(self) -> str:
        """Return the address with the actual port."""
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else str(host)
        return f"http://{shown}:{port}"

    def url(self) -> str:
        """Return the address with the prefix that Racetrack's gateway adds, which contains name and version."""
        return self.address() + racetrack.public_path(self.program_name, self.version)

    def perform(self, arguments: dict[str, Any]) -> Any:
        """Call the program; all async calls share one event loop."""
        assert self.program is not None
        if not self.program.is_async:
            return self.program.function(**arguments)
        result: Future[Any] = asyncio.run_coroutine_threadsafe(self.program.function(**arguments), self._event_loop())
        return result.result()

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        with self._loop_lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="event loop", daemon=True).start()
            return self._loop

    def begin_waiting(self, connection: socket.socket) -> None:
        """Note that a connection waits for its client to send or to read.

        If too many connections wait, close the one that has been silent for the longest time. Otherwise idle clients
        could block others.
        """
        with self._idle:
            self._waiting.pop(connection, None)
            self._waiting[connection] = None
            silent = next(iter(self._waiting)) if len(self._waiting) > MAX_WAITING else None
            if silent is not None:
                del self._waiting[silent]
                # Wakes the thread of the connection. The connection may be closed already.
                with contextlib.suppress(OSError):
                    silent.shutdown(socket.SHUT_RDWR)

    def end_waiting(self, connection: socket.socket) -> None:
        """Note that a connection does not wait for its client, for example because the job is running."""
        with self._idle:
            self._waiting.pop(connection, None)

    def begin_request(self) -> None:
        """Count a request that is being answered: :meth:`drain` waits for it."""
        with self._idle:
            self._n_running += 1

    def end_request(self) -> None:
        """Count a request as answered."""
        with self._idle:
            self._n_running -= 1
            self._idle.notify_all()

    def drain(self, seconds: float) -> None:
        """Accept no more connections, and wait at most this long for running calls."""
        self.is_draining = True
        self.shutdown()
        with self._idle:
            self._idle.wait_for(lambda: self._n_running == 0, timeout=seconds)

    def close(self) -> None:
        """Release the port."""
        self.socket.close()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print a traceback, unless the client just closed the connection."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class Numbers:
    """Counters for /metrics."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests: dict[tuple[str, int], int] = {}
        self.seconds = 0.0
        self.calls = 0

    def count(self, route: str, status: int) -> None:
        """Count one response."""
        with self._lock:
            self.requests[route, status] = self.requests.get((route, status), 0) + 1

    def count_call(self, seconds: float) -> None:
        """Count one call of the program, and its duration."""
        with self._lock:
            self.calls += 1
            self.seconds += seconds


class _Head:
    """Notes whether a request's head is cut. The standard library accepts a head without its final empty line."""

    def __init__(self, file: BufferedIOBase) -> None:
        self.file = file
        self.is_cut = False

    def readline(self, limit: int = -1) -> bytes:
        line: bytes = self.file.readline(limit)
        self.is_cut = not line
        return line


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = f"heaptide/{_native.__version__}"
    sys_version = ""
    # Seconds after which an idle connection is closed.
    timeout = 60
    server: ProgramServer

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def finish(self) -> None:
        """Close the connection."""
        self.server.end_waiting(self.connection)
        super().finish()

    def handle_one_request(self) -> None:
        """Answer one request with any method, and count it for :meth:`ProgramServer.drain`."""
        self.server.begin_waiting(self.connection)
        self.raw_requestline = self.rfile.readline(65537)
        if not self.raw_requestline:
            self.close_connection = True
            return
        self.server.begin_request()
        try:
            if len(self.raw_requestline) > 65536:
                self.requestline = self.request_version = self.command = ""
                self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG)
            elif self._parse_head():
                self._answer()
                self.wfile.flush()
        except TimeoutError:
            self.close_connection = True
        finally:
            self.server.end_request()

    def _parse_head(self) -> bool:
        """Parse the head. Returns False if it is invalid, or if the client closed the connection before its end."""
        head = _Head(self.rfile)
        self.rfile = head  # type: ignore[assignment]
        try:
            is_valid = self.parse_request()
        finally:
            self.rfile = head.file
        if head.is_cut:
            self.close_connection = True
        return is_valid and not head.is_cut

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        body = self._body()
        if body is None:
            return
        self.server.end_waiting(self.connection)
        path = parts.path
        if PROFILER in path and self.server.control is not None:
            self._profiler(self.server.control, path, parts.query, body)
            return
        routes = {
            "/live": self._live,
            "/ready": self._ready,
            "/health": self._ready,
            "/metrics": self._metrics,
            "/docs": self._docs,
            "/openapi.json": self._openapi,
        }
        if path.endswith(PERFORM):
            self._method("POST", PERFORM, lambda: self._perform(body))
        elif path.endswith("/") and PROFILER not in path:
            self._send(307, b"", "text/plain", "/", {"Location": path + "docs"})
        else:
            last = path[path.rfind("/") :]
            if last in routes:
                self._method("GET", last, routes[last])
            else:
                self._error(404, "NotFound", f"there is nothing at {path}: /docs lists the routes", "other")

    def _method(self, method: str, route: str, answer: Any) -> None:
        if self.command == method or (method == "GET" and self.command == "HEAD"):
            answer()
        else:
            allowed = "GET, HEAD" if method == "GET" else method
            self._error(405, "MethodNotAllowed", f"use {allowed} here", route, {"Allow": allowed})

    def _ambiguity(self) -> str | None:
        """Return why a proxy could read this request differently, or None."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) > 1 or (not hosts and self.request_version == "HTTP/1.1"):
            return "an HTTP/1.1 request needs exactly one Host header"
        lengths = {length.strip() for length in self.headers.get_all("Content-Length") or []}
        # int() also accepts signs, blanks and underscores.
        if not all(length.isascii() and length.isdigit() and len(length) < 20 for length in lengths):
            return "Content-Length is not a number"
        return "Content-Length is given twice" if len(lengths) > 1 else None

    def _body(self) -> bytes | None:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            self.close_connection = True
            self._error(411, "LengthRequired", "chunked requests are not supported: send Content-Length", "other")
            return None
        if problem := self._ambiguity():
            self.close_connection = True
            self._error(400, "RequestError", problem, "other")
            return None
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY_BYTES:
            self.close_connection = True
            self._error(413, "ContentTooLarge", f"the body must have at most {MAX_BODY_BYTES} bytes", "other")
            return None
        body = self.rfile.read(length) if length else b""
        if len(body) < length:
            self.close_connection = True
            self._error(400, "RequestError", "the body is shorter than Content-Length", "other")
            return None
        return body

    def _perform(self, body: bytes) -> None:
        program = self.server.program
        if program is None:
            self._error(503, "NotReady", "the program is still being loaded: try again", PERFORM, {"Retry-After": "1"})
            return
        try:
            arguments = json.loads(body) if body.strip() else {}
        except ValueError as error:
            self._error(400, "ValueError", f"the body is not JSON: {error}", PERFORM)
            return
        if not isinstance(arguments, dict):
            self._error(422, "ValueError", "the body must be a JSON object with the arguments", PERFORM)
            return
        try:
            program.signature.bind(**arguments)
        except TypeError as error:
            self._error(422, "TypeError", f"the arguments do not fit the signature: {error}", PERFORM)
            return
        begin = time.monotonic()
        try:
            result = json.dumps(self.server.perform(arguments)).encode()
        except Exception as error:
            traceback.print_exc()
            self._error(500, type(error).__name__, str(error) or "the program failed", PERFORM)
            return
        finally:
            self.server.numbers.count_call(time.monotonic() - begin)
        self._send(200, result, "application/json", PERFORM)

    def _profiler(self, control: Control, path: str, query: str, body: bytes) -> None:
        connection = None if self.server.is_guarded_elsewhere else self.connection.fileno()
        sent = list(self.headers.items())
        answer = control.handle(self.command, path, query, sent, body, connection=connection)
        headers = dict(answer.headers)
        if "Content-Length" not in headers:
            # The capture is still growing, so the end of the connection marks the end of the body.
            self.close_connection = True
        self._head(answer.status, headers, PROFILER)
        while piece := answer.read():
            self.server.begin_waiting(self.connection)
            self.wfile.write(piece)

    def _live(self) -> None:
        self._json(200, {"live": True}, "/live")

    def _ready(self) -> None:
        is_ready = self.server.program is not None and not self.server.is_draining
        route = "/ready" if "ready" in self.path else "/health"
        self._json(200 if is_ready else 503, {"ready": is_ready, "job": self.server.program_name}, route)

    def _metrics(self) -> None:
        text = documents.metrics(self.server)
        self._send(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8", "/metrics")

    def _docs(self) -> None:
        self._send(200, _native.docs_page().encode(), "text/html; charset=utf-8", "/docs")

    def _openapi(self) -> None:
        prefix = urlsplit(self.path).path.removesuffix("/openapi.json")
        self._json(200, documents.openapi(self.server, prefix), "/openapi.json")

    def _json(self, status: int, value: Any, route: str) -> None:
        self._send(status, json.dumps(value).encode(), "application/json", route)

    def _error(self, status: int, name: str, message: str, route: str, headers: dict[str, str] | None = None) -> None:
        body = json.dumps({"error": message, "type": name}).encode()
        self._send(status, body, "application/json", route, headers)

    def _send(
        self, status: int, body: bytes, content_type: str, route: str, headers: dict[str, str] | None = None
    ) -> None:
        self._head(status, {"Content-Type": content_type, "Content-Length": str(len(body)), **(headers or {})}, route)
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: int, headers: dict[str, str], route: str) -> None:
        self.server.numbers.count(route, status)
        self.server.begin_waiting(self.connection)
        if self.server.is_draining:
            self.close_connection = True
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing for requests; /metrics counts them."""
