"""`gossiplog.asgi`: logs as part of an application that an ASGI server runs.

    app = FastAPI()
    app.mount("/log", gossiplog.asgi(log))

Source: docs/asgi.md
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeAlias

import sniffio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import ClosedError, LocalProtocolError
from .net import HubLimits
from .portal.asgi_bridge import serve_across
from .portal.waiting import Facade, inner_of
from .replica.log import Replica
from .shelves import Shelf
from .web.glass import GlassSettings
from .web.http.asgi import SEND_S
from .web.mounted import Known, Mounted, known_from, refuse_as_closed

__all__ = ["Who", "asgi"]

Who: TypeAlias = "Callable[[Scope], Collection[str] | Awaitable[Collection[str] | None] | None]"
"""Decides a caller's rights from an ASGI scope: see `asgi`."""


def asgi(
    log: Replica | Shelf | Facade[Any],
    *logs: Replica | Facade[Any],
    limits: HubLimits | None = None,
    who: Who | None = None,
    page: bool = False,
) -> ASGIApp:
    """Make an ASGI application that serves open logs to WebSocket clients and over HTTP.

    It serves the routes of `log.listen` below its mount point. It begins with the first request, ends with the log's own block, and has no
    lifespan. Your application may read the log and append to it in its own handlers.

    Args:
        log: An open log or a shelf: from `gossiplog.aio` under a server of asyncio, from `gossiplog.open` or `gossiplog.shelf` under trio.
        logs: Further open logs.
        limits: How many connections are let in, from which pages, and the rights of clients. Pages of the application's own origin may
            always connect; others are named in `origins`.
        who: Decides a caller's rights in the server's event loop, from the ASGI scope with its cookies and headers. It returns a
            collection of rights (`connect`, `pull`, `push`, `post`, `watch`); or a did, which has the rights that `limits` give it; or
            None to refuse. Without it `limits` decide by token.
        page: Whether to serve the page.

    Raises:
        LocalProtocolError: Two logs have one topic, or some are from `gossiplog.aio` and some are not.
    """
    every = (log, *logs)
    facades = [each for each in every if isinstance(each, Facade)]
    inner: list[Any] = [inner_of(each) if isinstance(each, Facade) else each for each in every]
    owner = inner[0]
    shelf = inner.pop(0) if isinstance(owner, Shelf) else None
    for each in inner:
        if not isinstance(each, Replica):
            raise LocalProtocolError(f"{each!r} is no open log", hint="pass what `async with gossiplog.aio.open(…) as log` gives")
    topics = [each.topic for each in inner]
    if len(set(topics)) < len(topics):
        raise LocalProtocolError("two of these logs have one topic", hint="serve each topic once")
    if facades and len(facades) < len(every):
        raise LocalProtocolError("some of these logs are of gossiplog.aio, and some are not", hint="open all in one way")
    mounted = Mounted(owner.tasks, inner, limits or HubLimits(), GlassSettings(has_page=page), None if shelf is None else shelf.logs)
    return _Application(mounted, who, facades[0] if facades else None)


class _Application:
    """Serves each connection where the logs live: in the server's own trio task, or in the thread that runs trio."""

    def __init__(self, mounted: Mounted, who: Who | None, facade: Facade[Any] | None) -> None:
        self._mounted = mounted
        self._who = who
        self._facade = facade

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of an ASGI server."""
        if scope["type"] == "lifespan":
            await _answer_lifespan(receive, send)
            return
        if scope["type"] not in ("http", "websocket"):
            raise LocalProtocolError(f"there is no ASGI connection of type {scope['type']!r} here")
        self._check_loop()
        if scope["type"] == "websocket":
            # The `websocket.connect` message; nothing may be sent before it is received.
            await receive()
        known = await self._ask(scope)
        if self._facade is None:
            await self._mounted.serve(scope, receive, send, known)
            return

        has_begun = False

        async def forward(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        async def serve(receive: Receive, send: Send) -> None:
            await self._mounted.serve(scope, receive, send, known)

        try:
            await serve_across(self._facade, serve, receive, forward, SEND_S)
        except ClosedError:
            # An answer that has begun is cut off, and the server tells the client.
            if not has_begun:
                await refuse_as_closed(scope, receive, send)

    async def _ask(self, scope: Scope) -> Known:
        if self._who is None:
            return None
        answer = self._who(scope)
        if inspect.isawaitable(answer):
            answer = await answer
        return known_from(answer)

    def _check_loop(self) -> None:
        here = sniffio.current_async_library()
        if here != ("trio" if self._facade is None else "asyncio"):
            hint = "open it with gossiplog.aio.open" if here == "asyncio" else "open it with gossiplog.open"
            raise LocalProtocolError(f"the server runs on {here}, and the log was opened for something else", hint=hint)


async def _answer_lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
