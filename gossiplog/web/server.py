"""From a connection that a hub accepted to the ASGI application: hypercorn's trio worker, one connection at a time.

Hypercorn would listen by itself; the hub does instead, because it tells WebSockets from plain HTTP on one port, and bounds what a
connection may do before it has said anything. What hypercorn does with WebSockets is not used: it always accepts compression.
"""

from __future__ import annotations

import logging
from typing import Any, cast

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState, LifespanState

from ..errors import ClosedError
from ..net.http_head import Head
from ..net.hub import Hub, ServeHttp
from ..net.tcp import TcpStream
from .app import make_app

__all__ = ["make_http"]

KEEP_ALIVE_S = 15
SEND_S = 60.0
"""How long a client may take to read a piece of an answer."""


def make_http(hub: Hub) -> ServeHttp:
    """Make what serves plain HTTP on a hub's port."""
    config = Config()
    config.keep_alive_timeout = KEEP_ALIVE_S
    config.h11_max_incomplete_size = hub.admission.limits.head_bytes_max
    config.include_server_header = False
    config.errorlog = logging.getLogger("gossiplog.web")
    app = ASGIWrapper(cast(Any, make_app(hub)))

    async def serve(connection: TcpStream, head: Head, client: str) -> None:
        stream = _Accepted(connection)
        server = TCPServer(app, config, WorkerContext(None), ConnectionState(LifespanState()), cast(Any, stream))
        await server.run()

    return serve


class _Accepted:
    """A connection as hypercorn wants it: a trio stream that begins with what was received before."""

    def __init__(self, connection: TcpStream) -> None:
        self._connection = connection
        stream = connection.stream
        if isinstance(stream, trio.SSLStream):
            # Which hypercorn looks for to tell https from http.
            self.transport_stream = stream.transport_stream
        else:
            self.socket = stream.socket

    async def do_handshake(self) -> None:
        """Do nothing, for it was done; or show that there is no TLS, as a stream without this method would."""
        await trio.lowlevel.checkpoint()
        if not isinstance(self._connection.stream, trio.SSLStream):
            raise AttributeError  # noqa: TRY004 - it is what hypercorn catches

    def selected_alpn_protocol(self) -> str:
        """Say what is spoken."""
        return "http/1.1"

    async def receive_some(self, bytes_max: int | None = None) -> bytes:
        """Receive what comes next; `b""` at the end."""
        try:
            return await self._connection.receive_some()
        except ClosedError as error:
            raise trio.BrokenResourceError(str(error)) from None

    async def send_all(self, data: bytes) -> None:
        """Send all of it, or break the connection with a client that does not read."""
        with trio.move_on_after(SEND_S) as timing:
            try:
                await self._connection.send_all(data)
            except ClosedError as error:
                raise trio.BrokenResourceError(str(error)) from None
        if timing.cancelled_caught:
            await self._connection.aclose()
            raise trio.BrokenResourceError("the client does not read")

    async def send_eof(self) -> None:
        """Leave it to `aclose`."""
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Close the connection."""
        await self._connection.aclose()
