"""From a connection that a hub accepted to the ASGI application, one request after the other.

The hub listens, because it tells WebSockets from plain HTTP on one port, and looks at every request before it comes here: who it is from,
whom it is for, and which page asks.
"""

from __future__ import annotations

import trio
from starlette.types import ASGIApp

from ..net.hub.server import Hub, ServeHttp
from ..net.transport.http_head import Head, read_head
from ..net.transport.tcp import TcpStream
from .app import make_app
from .client_memory import Memory
from .exchange import Exchange
from .glass import NO_GLASS, GlassSettings

__all__ = ["make_http", "serve_app"]

KEEP_ALIVE_S = 15.0
"""Within which the head of the next request on a connection arrives."""


def make_http(hub: Hub, glass: GlassSettings = NO_GLASS) -> ServeHttp:
    """Make what serves plain HTTP on a hub's port, and shows so much of the server."""
    return serve_app(make_app(hub, glass), hub)


def serve_app(app: ASGIApp, hub: Hub) -> ServeHttp:
    """Make what serves an application on a hub's port."""
    head_bytes_max, memory = hub.admission.limits.head_bytes_max, Memory()

    async def serve(connection: TcpStream, head: Head, client: str) -> Head | None:
        exchange = Exchange(connection, head, client, memory)
        await exchange.run(app)
        if not exchange.is_over:
            with trio.move_on_after(KEEP_ALIVE_S):
                return await read_head(connection, head_bytes_max)
        return None

    return serve
