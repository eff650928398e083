"""The profiler's routes as a WSGI application, for Flask, Django and any other.

    app.wsgi_app = heaptide.wsgi.mount(app.wsgi_app)         # Flask: /api/v1/profiler/status
    application = heaptide.wsgi.mount(application)           # Django's wsgi.py, and any other application

`app` is the application alone, for servers and dispatchers. It opens the job's control in this process: with several
workers, what is asked of one is done by all. What requests must show, and the like, is read from the settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Any

from heaptide import _native
from heaptide.serving.mounted import MAX_BODY_BYTES, Mounted, Unavailable, is_own, made_on_demand

Environment = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environment, StartResponse], Iterable[bytes]]


class App(Mounted):
    """An application of its own; arguments are those of :func:`heaptide.control.start`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(options)

    def __call__(self, environment: Environment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        answer = self.handle(
            environment["REQUEST_METHOD"],
            _path(environment),
            environment.get("QUERY_STRING", ""),
            _headers(environment),
            _body(environment),
        )
        start_response(f"{answer.status} {HTTPStatus(answer.status).phrase}", answer.headers)
        return _pieces(answer)


def mount(application: Application, **options: Any) -> Application:
    """Put the routes in front of an application: what is not theirs goes on to it."""
    own = App(**options)

    def mounted(environment: Environment, start_response: StartResponse) -> Iterable[bytes]:
        return (own if is_own(_path(environment)) else application)(environment, start_response)

    return mounted


def _path(environment: Environment) -> str:
    path: str = environment.get("SCRIPT_NAME", "") + environment.get("PATH_INFO", "")
    return path


def _headers(environment: Environment) -> list[tuple[str, str]]:
    named = [(key[5:].replace("_", "-"), value) for key, value in environment.items() if key.startswith("HTTP_")]
    return [*named, ("Content-Type", environment.get("CONTENT_TYPE", ""))]


def _body(environment: Environment) -> bytes:
    try:
        length = int(environment.get("CONTENT_LENGTH") or 0)
    except ValueError:
        length = 0
    body: bytes = environment["wsgi.input"].read(min(length, MAX_BODY_BYTES)) if length > 0 else b""
    return body


def _pieces(answer: _native.Response | Unavailable) -> Iterator[bytes]:
    while piece := answer.read():
        yield piece


def __getattr__(name: str) -> App:
    return made_on_demand(name, App, globals())
