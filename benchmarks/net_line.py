"""A line between two peers that counts what passes, and may take its time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

__all__ = ["Line", "open_line"]


class Line:
    """A proxy on TCP; made by `open_line`.

    Attributes:
        port: Where it listens on 127.0.0.1.
        bytes: What has passed, both ways together.
    """

    def __init__(self, target: int, delay_s: float) -> None:
        self.port = 0
        self.bytes = 0
        self._target = target
        self._delay_s = delay_s

    async def serve(self, client: trio.SocketStream) -> None:
        server = await trio.open_tcp_stream("127.0.0.1", self._target)
        async with client, server, trio.open_nursery() as nursery:
            nursery.start_soon(self._carry, client, server, nursery)
            nursery.start_soon(self._carry, server, client, nursery)

    async def _carry(self, source: trio.SocketStream, target: trio.SocketStream, both: trio.Nursery) -> None:
        sender, receiver = trio.open_memory_channel[tuple[float, bytes]](100_000)

        async def deliver() -> None:
            async for at, data in receiver:
                await trio.sleep_until(at)
                await target.send_all(data)

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(deliver)
                async with sender:
                    async for data in source:
                        self.bytes += len(data)
                        await sender.send((trio.current_time() + self._delay_s, bytes(data)))
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        both.cancel_scope.cancel()


@asynccontextmanager
async def open_line(target: int, *, delay_s: float = 0.0) -> AsyncIterator[Line]:
    """Open a line to a port of this machine for the length of a block.

    Args:
        target: The port.
        delay_s: What a byte takes, each way, besides what it takes anyhow.
    """
    line = Line(target, delay_s)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, line.serve, 0)
        line.port = listeners[0].socket.getsockname()[1]
        yield line
        nursery.cancel_scope.cancel()
