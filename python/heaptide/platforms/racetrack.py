"""Racetrack: its variables for the profiler of a served program, and its job runner with Heaptide instead of memray.

If ``MEMRAY_PROFILER`` enables the profiler, Heaptide adapts two modules of the job runner when they are imported. The
job runner then starts and stops the profiler through the control API. The job serves the profiler's routes, those of
Racetrack's documentation and Heaptide's own, on its port, below its prefix, and in its OpenAPI document.
"""

from __future__ import annotations

import importlib
import json
import os

from heaptide.platforms import Platform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from heaptide._native import Response
    from heaptide.asgi import App
    from heaptide.settings import Settings

# The method that returns example arguments for a call of the program.
EXAMPLE_METHOD = "docs_input_example"

# The job runner adds this before the routes.
_API = "/api/v1"
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def public_path(name: str, version: str) -> str:
    """Return the prefix that Racetrack's gateway adds to all routes of a program."""
    return f"/pub/job/{name}/{version}"


def _adapt(_chosen: Settings) -> None:
    from heaptide.activation.import_hooks import after_import

    after_import(
        {
            "racetrack_job_wrapper.profiler": _replace_profiler,
            "racetrack_job_wrapper.wrapper_api": _replace_routes,
        }
    )


def _replace_profiler(module: Any) -> None:
    """Make the job runner start and stop Heaptide's recordings."""
    global _log
    _log = module.logger.info
    profiler = module.MemoryProfiler
    profiler.is_enabled = staticmethod(lambda: True)
    profiler.start = staticmethod(_start)
    profiler.stop = staticmethod(_stop)


def _replace_routes(module: Any) -> None:
    if not callable(getattr(module, "_setup_profiler_endpoints", None)):
        raise RuntimeError("this version of Racetrack's job runner is unknown, so it has no routes for the profiler")
    module._setup_profiler_endpoints = _add_routes


# Writes to the job's log.
_log: Callable[[str], None]
_mounted: App | None = None


def _app() -> App:
    """Return the control API of this process. The first call starts it."""
    global _mounted
    if _mounted is None:
        asgi = importlib.import_module("heaptide.asgi")
        name = "-".join(filter(None, (os.environ.get("JOB_NAME"), os.environ.get("JOB_VERSION"))))
        app: App = asgi.App(name=name or None)
        _mounted = app
    return _mounted


def _start() -> None:
    """Start a session before the job is imported. If this fails, the job runs without being recorded."""
    _request("start")


def _stop() -> None:
    """Complete the session, when a signal ends the job."""
    _request("stop")


def _request(action: str) -> None:
    from heaptide.containment import report_failure

    try:
        control = _app().control
        if control is not None:
            answer = control.handle("POST", f"{_API}/profiler/memray/{action}", trusted=True)
            if answer.status != 200:
                raise RuntimeError(f"the profiler cannot {action} ({_read(answer)})")
            session = json.loads(_read(answer))
            _log(f"Memory profiler: {session['result']}, session {session['session']}")
    except Exception as error:
        report_failure(error)


def _add_routes(router: Any) -> None:
    """Add the routes of the control API to the router of the job, as its OpenAPI document describes them."""
    app = _app()
    if app.control is None:
        return
    endpoint = _endpoint(app)
    document = json.loads(_read(app.control.handle("GET", "/openapi.json", trusted=True)))
    schemas = document["components"]["schemas"]
    bare_response: Any = importlib.import_module("starlette.responses").Response
    for path, operations in document["paths"].items():
        route = path.removeprefix(_API)
        for method, operation in operations.items():
            described = _inlined(operation, schemas)
            # The job's document defines tags and security for all its routes.
            for key in ("tags", "security", "operationId"):
                described.pop(key, None)
            router.add_api_route(
                route,
                endpoint,
                methods=[method.upper()],
                operation_id=f"profiler_{operation['operationId']}",
                summary=described.pop("summary"),
                response_class=bare_response,
                openapi_extra=described,
            )
        others = [method for method in _METHODS if method.lower() not in operations]
        router.add_api_route(route, endpoint, methods=others, include_in_schema=False)
    for route in ("/profiler", "/profiler/docs", "/profiler/openapi.json"):
        router.add_api_route(route, endpoint, methods=["GET", "HEAD"], include_in_schema=False)


def _endpoint(app: App) -> Callable[..., Any]:
    """Return an endpoint that passes the request to the control API unchanged, and streams the response."""
    responses: Any = importlib.import_module("starlette.responses")

    class ControlResponse(responses.Response):  # type: ignore[misc]
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await app(scope, receive, send)

    async def profiler(request: Any) -> Any:
        return ControlResponse()

    # The annotation makes FastAPI pass the request.
    profiler.__annotations__ = {"request": importlib.import_module("starlette.requests").Request}
    return profiler


def _inlined(value: Any, schemas: dict[str, Any]) -> Any:
    """Return a part of the document with references replaced by their schemas, which the job's document lacks."""
    if isinstance(value, list):
        return [_inlined(each, schemas) for each in value]
    if not isinstance(value, dict):
        return value
    reference = value.get("$ref")
    if isinstance(reference, str):
        return _inlined(schemas[reference.rpartition("/")[2]], schemas)
    return {key: _inlined(each, schemas) for key, each in value.items()}


def _read(answer: Response) -> str:
    body = b""
    while piece := answer.read():
        body += piece
    return body.decode()


PLATFORM = Platform(variables={"profiler": "MEMRAY_PROFILER", "leaks": "MEMRAY_LEAKS"}, adapt=_adapt)
