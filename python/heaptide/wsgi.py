"""The control API as a WSGI application, for Flask, Django and any other framework.

    app.wsgi_app = heaptide.wsgi.mount(app.wsgi_app)         # Flask: /api/v1/profiler/status
    application = heaptide.wsgi.mount(application)           # Django's wsgi.py, and any other application

`app` is the control API alone, for servers and dispatchers. Both start the control API in this process. If the server
has several workers, a request to one of them applies to all. Token and other options come from the settings.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from heaptide import _native
from heaptide.serving.mounted import MAX_BODY_BYTES, Mounted, Unavailable, is_own, made_on_demand

Environment = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environment, StartResponse], Iterable[bytes]]


class App(Mounted):
    """The control API as an application. Takes the arguments of :func:`heaptide.control.start`."""

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
            _client(environment),
        )
        start_response(f"{answer.status} {HTTPStatus(answer.status).phrase}", answer.headers)
        return _pieces(answer)


def mount(application: Application, **options: Any) -> Application:
    """Return an application that answers requests to the control API and passes all others to `application`."""
    control = App(**options)

    def mounted(environment: Environment, start_response: StartResponse) -> Iterable[bytes]:
        return (control if is_own(_path(environment)) else application)(environment, start_response)

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


# The keys under which gunicorn and Werkzeug, Flask's own server, store the client's socket. WSGI defines none.
_SOCKETS = ("gunicorn.socket", "werkzeug.socket")


def _client(environment: Environment) -> _native.Client | None:
    for name in _SOCKETS:
        connection = environment.get(name)
        if connection is not None:
            with contextlib.suppress(Exception):
                return _native.Client(connection.fileno())
    return None


def _pieces(answer: _native.Response | Unavailable) -> Iterator[bytes]:
    while piece := answer.read():
        yield piece


if TYPE_CHECKING:
    app: App
else:  # type checkers would accept every name

    def __getattr__(name: str) -> App:
        return made_on_demand(name, App, globals())
