"""Streams of bytes for tests of the muxer: pairs in memory and on loopback, and pairs of connections on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import trio
from trio.testing import memory_stream_pair

from gossiplog.errors import ClosedError
from gossiplog.net import Connection, Handler, open_muxed
from gossiplog.pubsub.types import PeerId

__all__ = ["Bytes", "echo", "muxed_pair", "tcp_pair"]


class Bytes:
    """A `ByteStream` on one of trio's streams."""

    def __init__(self, stream: trio.abc.Stream, chunk_bytes: int = 65_536) -> None:
        self.stream = stream
        self.chunk_bytes = chunk_bytes

    async def send_all(self, data: bytes) -> None:
        try:
            await self.stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ClosedError("the stream is broken") from error

    async def receive_some(self) -> bytes:
        try:
            return bytes(await self.stream.receive_some(self.chunk_bytes))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise ClosedError("the stream is broken") from error

    async def aclose(self) -> None:
        await self.stream.aclose()


async def tcp_pair() -> tuple[trio.SocketStream, trio.SocketStream]:
    """Return two ends of a connection on loopback."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listeners[0] as listener:
        client = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
        return client, await listener.accept()


async def echo(connection: object, stream: object) -> None:
    """Serve a stream by sending back what arrives."""
    while data := await stream.receive_some():
        await stream.send_all(data)


@asynccontextmanager
async def muxed_pair(
    client_handlers: Mapping[str, Handler] | None = None,
    server_handlers: Mapping[str, Handler] | None = None,
    *,
    pair: tuple[trio.abc.Stream, trio.abc.Stream] | None = None,
) -> AsyncIterator[tuple[Connection, Connection]]:
    """Open two connections with each other, in memory unless a pair of streams is given."""
    left, right = pair or memory_stream_pair()
    async with (
        open_muxed(Bytes(left), is_client=True, peer=PeerId("server"), handlers=client_handlers) as client,
        open_muxed(Bytes(right), is_client=False, peer=PeerId("client"), handlers=server_handlers) as server,
    ):
        yield client, server
