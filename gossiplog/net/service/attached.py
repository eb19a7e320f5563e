"""Connections that are in use: what is known of each, and the handlers of streams that wait for that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import trio

from ...errors import StreamReset
from ..transport.stream import Connection, Handler, Stream

T = TypeVar("T")
ATTACH_S = 5.0


class Attached(Generic[T]):
    """What is known of each connection that is in use."""

    def __init__(self) -> None:
        self._links: dict[Connection, T] = {}
        # Set and replaced when a connection is attached.
        self._attached = trio.Event()

    def get(self, connection: Connection) -> T | None:
        """Return what is known of a connection; None where it is not in use."""
        return self._links.get(connection)

    def add(self, connection: Connection, link: T) -> None:
        """Serve a connection from now on."""
        self._links[connection] = link
        attached, self._attached = self._attached, trio.Event()
        attached.set()

    def remove(self, connection: Connection) -> None:
        """Serve a connection no longer."""
        del self._links[connection]

    def handler(self, serve: Callable[[T, Stream], Awaitable[None]]) -> Handler:
        """Have a function serve streams that peers open, once their connection is in use."""

        async def handle(connection: Connection, stream: Stream) -> None:
            await serve(await self._wait(connection), stream)

        return handle

    async def _wait(self, connection: Connection) -> T:
        with trio.move_on_after(ATTACH_S):
            while (link := self._links.get(connection)) is None:
                await self._attached.wait()
            return link
        raise StreamReset("the connection is not in use")
