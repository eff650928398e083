"""The control API as an ASGI application, for FastAPI, Starlette, Django and any other framework.

    app.mount("/memory", heaptide.asgi.app)                  # FastAPI and Starlette: /memory/api/v1/profiler/status
    application = heaptide.asgi.mount(application)           # any application: /api/v1/profiler/status

`app` and `mount` start the control API in this process. If the server has several workers, a request to one of them
applies to all. Token and other options come from the settings; `App` and `mount` also take them as arguments.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from heaptide import _native
from heaptide.serving.mounted import MAX_BODY_BYTES, Mounted, Unavailable, is_own, made_on_demand

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_N_THREADS = 8


class App(Mounted):
    """The control API as an application to mount. Takes the arguments of :func:`heaptide.control.start`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(options)
        # The program may keep all of the event loop's default threads busy, so the control API has its own.
        self._threads = ThreadPoolExecutor(_N_THREADS, thread_name_prefix="heaptide")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await _handle_lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        query = scope.get("query_string", b"").decode("latin-1")
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        loop = asyncio.get_running_loop()
        client = _native.Client()

        def handle() -> _native.Response | Unavailable:
            return self.handle(scope["method"], scope["path"], query, headers, body, client)

        watch = asyncio.ensure_future(_watch(receive, client))
        try:
            answer = await loop.run_in_executor(self._threads, handle)
            sent = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
            await send({"type": "http.response.start", "status": answer.status, "headers": sent})
            is_last = False
            while not (is_last or client.is_gone()):
                piece = await loop.run_in_executor(self._threads, answer.read)
                is_last = not piece
                await send({"type": "http.response.body", "body": piece, "more_body": not is_last})
        finally:
            # Also if the server cancels the request: this stops the report, which runs in another thread.
            client.leave()
            watch.cancel()


def mount(application: Application, **options: Any) -> Application:
    """Return an application that answers requests to the control API and passes all others to `application`."""
    control = App(**options)

    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        is_control = scope["type"] == "http" and is_own(scope["path"])
        await (control if is_control else application)(scope, receive, send)

    return mounted


async def _body(receive: Receive) -> bytes:
    body = b""
    while len(body) < MAX_BODY_BYTES:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            break
    return body[:MAX_BODY_BYTES]


async def _watch(receive: Receive, client: _native.Client) -> None:
    """Wait until the client disconnects, and cancel its report. After the body, no other message can arrive."""
    with contextlib.suppress(Exception):
        if (await receive())["type"] == "http.disconnect":
            client.leave()


async def _handle_lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


if TYPE_CHECKING:
    app: App
else:  # type checkers would accept every name

    def __getattr__(name: str) -> App:
        return made_on_demand(name, App, globals())
