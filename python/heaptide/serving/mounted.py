"""The common part of the ASGI and the WSGI application: the control API in the program's own web server."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, TypeVar

from heaptide import _native, control
from heaptide.messages import print_message, reason

# One byte more than the control API accepts, so that it rejects longer bodies without reading them whole.
MAX_BODY_BYTES = 64 * 1024 + 1

Made = TypeVar("Made")


class Mounted:
    """The control API for requests that another server received. If it fails to start, that server still works."""

    def __init__(self, options: MutableMapping[str, Any]) -> None:
        # None if it could not start; the routes then respond with the reason.
        self.control: control.Control | None = None
        self._problem = ""
        try:
            self.control = control.start_as_set(**options)
        except Exception as error:
            self._problem = f"the profiler cannot be used in this process: {reason(error)}"
            print_message(f"{self._problem}; its routes answer with 503")

    def handle(
        self,
        method: str,
        path: str,
        query: str,
        headers: list[tuple[str, str]],
        body: bytes,
        client: _native.Client | None,
    ) -> _native.Response | Unavailable:
        """Return the response, whose body is read piece by piece. A report is cancelled once the client disconnects."""
        if self.control is None:
            return Unavailable(self._problem)
        return self.control.handle(method, path, query, headers, body, client=client)


class Unavailable:
    """The response if the control API could not start."""

    status = 503

    def __init__(self, problem: str) -> None:
        import json

        self._body = json.dumps({"error": problem, "type": "Unavailable"}).encode()
        self.headers = [("Content-Type", "application/json"), ("Content-Length", str(len(self._body)))]

    def read(self) -> bytes:
        """Return the next bytes of the body; empty at its end."""
        body, self._body = self._body, b""
        return body


def is_own(path: str) -> bool:
    """Return whether a path belongs to the control API, with any prefix."""
    return f"{control.BASE}/" in path or path.endswith(control.BASE)


def made_on_demand(name: str, make: Callable[[], Made], namespace: MutableMapping[str, Any]) -> Made:
    """Create a module's `app` when it is first used, so that importing the module starts nothing."""
    if name != "app":
        raise AttributeError(name)
    app = make()
    namespace["app"] = app
    return app
