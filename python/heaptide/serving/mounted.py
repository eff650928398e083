"""The profiler's routes behind the job's own web server: what the ASGI and the WSGI application have in common."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, TypeVar

from heaptide import _native, control
from heaptide.messages import reason, say

# One byte more than is taken is enough to be refused.
MAX_BODY_BYTES = 64 * 1024 + 1

Made = TypeVar("Made")


class Mounted:
    """The job's control for requests that another server took. Whatever fails with it, that server goes on."""

    def __init__(self, options: MutableMapping[str, Any]) -> None:
        # None if it could not be opened: the routes then say why.
        self.control: control.Control | None = None
        self._problem = ""
        try:
            self.control = control.start_as_set(**options)
        except (OSError, ValueError) as error:
            self._problem = f"the profiler cannot be used in this process: {reason(error)}"
            say(f"{self._problem}; its routes answer with 503")

    def handle(
        self, method: str, path: str, query: str, headers: list[tuple[str, str]], body: bytes
    ) -> _native.Response | Unavailable:
        """The answer, whose body is read piece by piece."""
        if self.control is None:
            return Unavailable(self._problem)
        return self.control.handle(method, path, query, headers, body)


class Unavailable:
    """The answer where there is no control."""

    status = 503

    def __init__(self, problem: str) -> None:
        import json

        self._body = json.dumps({"error": problem, "type": "Unavailable"}).encode()
        self.headers = [("Content-Type", "application/json"), ("Content-Length", str(len(self._body)))]

    def read(self) -> bytes:
        """The next bytes of the body; empty at its end."""
        body, self._body = self._body, b""
        return body


def is_own(path: str) -> bool:
    """Whether a path is one of the profiler's, below whatever prefix."""
    return f"{control.BASE}/" in path or path.endswith(control.BASE)


def made_on_demand(name: str, make: Callable[[], Made], namespace: MutableMapping[str, Any]) -> Made:
    """A module's `app`, made when it is first asked for, so that the rest of the module can be used without it."""
    if name != "app":
        raise AttributeError(name)
    app = make()
    namespace["app"] = app
    return app
