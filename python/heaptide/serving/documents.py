"""The documents of ``heaptide serve``: metrics for Prometheus, and the OpenAPI document."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from heaptide import _native
from heaptide.control import BASE
from heaptide.recording import tracker

if TYPE_CHECKING:
    from heaptide.serving.http import ProgramServer
    from heaptide.serving.loading import ServedProgram


def metrics(server: ProgramServer) -> str:
    """Return the metrics in Prometheus's text format."""
    lines: list[str] = []

    def add(name: str, metric_type: str, about: str, values: list[tuple[str, float]]) -> None:
        lines.append(f"# HELP {name} {about}")
        lines.append(f"# TYPE {name} {metric_type}")
        lines.extend(f"{name}{labels} {value}" for labels, value in values)

    add("process_resident_memory_bytes", "gauge", "Resident size of the process.", [("", _resident_bytes())])
    heap = _native.heap_bytes()
    if heap is not None:
        add("heaptide_heap_bytes", "gauge", "Bytes allocated from the C library and not freed.", [("", heap)])
    add("heaptide_recording", "gauge", "Whether the process is being recorded.", [("", int(tracker.active()))])
    if server.control is not None:
        sessions = json.loads(_read(server.control.handle("GET", f"{BASE}/sessions", trusted=True)))["sessions"]
        add("heaptide_sessions", "gauge", "Sessions that are kept.", [("", len(sessions))])
        total = sum(session["bytes"] for session in sessions)
        add("heaptide_sessions_bytes", "gauge", "Bytes that the sessions take.", [("", total)])
    numbers = server.numbers
    counts = sorted(numbers.requests.items())
    values = [(f'{{route="{route}",status="{status}"}}', float(count)) for (route, status), count in counts]
    add("job_requests_total", "counter", "Requests that were answered.", values)
    lines += ["# HELP job_perform_seconds Time that calls took.", "# TYPE job_perform_seconds summary"]
    lines += [f"job_perform_seconds_sum {numbers.seconds}", f"job_perform_seconds_count {numbers.calls}"]
    return "\n".join(lines) + "\n"


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def openapi(server: ProgramServer, prefix: str) -> dict[str, Any]:
    """Return the OpenAPI document: the program's routes, then those of the control API."""
    document: dict[str, Any] = {"openapi": "3.1.0", "servers": [{"url": prefix or "/"}], "paths": {}, "components": {}}
    if server.control is not None:
        document = json.loads(_read(server.control.handle("GET", f"{prefix}/openapi.json", trusted=True)))
    program = server.program
    document["info"] = {
        "title": f"{server.program_name} {server.version}",
        "version": server.version,
        "description": program.about if program else "The program is still being loaded.",
    }
    schemas = document["components"].setdefault("schemas", {})
    text = {"type": "string"}
    schemas["Error"] = {
        "type": "object",
        "required": ["error", "type"],
        "properties": {"error": text, "type": text},
    }
    document["paths"] = {**_own_paths(program), **document["paths"]}
    return document


def _own_paths(program: ServedProgram | None) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    arguments = (
        {"schema": program.schema(), "example": program.example()} if program else {"schema": {"type": "object"}}
    )
    perform = {
        "tags": ["job"],
        "summary": "Call the program",
        "operationId": "perform",
        "security": [],
        "requestBody": {"required": False, "content": {"application/json": arguments}},
        "responses": {
            "200": {"description": "The return value", "content": {"application/json": {"schema": {}}}},
            **{
                status: {"description": about, "content": error}
                for status, about in {
                    "400": "The body is not JSON",
                    "405": "The method is not allowed",
                    "411": "The body has no length",
                    "413": "The body is too large",
                    "422": "The arguments are invalid",
                    "500": "The program failed",
                    "503": "The program is still being loaded",
                }.items()
            },
        },
    }
    paths: dict[str, Any] = {"/api/v1/perform": {"post": perform}}
    plain = {
        "/live": ("Whether the process answers", "application/json"),
        "/ready": ("Whether the program is loaded", "application/json"),
        "/health": ("Whether the program is loaded", "application/json"),
        "/metrics": ("Metrics for Prometheus", "text/plain"),
    }
    for path, (summary, content_type) in plain.items():
        answer = {"description": summary, "content": {content_type: {"schema": {}}}}
        responses = {"200": answer, "405": {"description": "The method is not allowed", "content": error}}
        if path in ("/ready", "/health"):
            responses["503"] = answer
        get = {"tags": ["health"], "summary": summary, "operationId": path[1:], "security": [], "responses": responses}
        paths[path] = {"get": get}
    return paths


def _read(answer: _native.Response) -> bytes:
    body = b""
    while piece := answer.read():
        body += piece
    return body
