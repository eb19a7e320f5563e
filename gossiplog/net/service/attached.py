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
        # What peers opened, for as long as it is served.
        self._serving: dict[Connection, set[trio.CancelScope]] = {}
        # Set and replaced when a connection is attached.
        self._attached = trio.Event()

    def get(self, connection: Connection) -> T | None:
        """Return what is known of a connection; None where it is not in use."""
        return self._links.get(connection)

    def add(self, connection: Connection, link: T) -> None:
        """Serve a connection from now on."""
        self._links[connection] = link
        self._serving[connection] = set()
        attached, self._attached = self._attached, trio.Event()
        attached.set()

    def remove(self, connection: Connection) -> None:
        """Serve a connection no longer: it may go on, but none of its streams that are ours does."""
        del self._links[connection]
        for scope in self._serving.pop(connection):
            scope.cancel()

    def handler(self, serve: Callable[[T, Stream], Awaitable[None]], *, may_end: bool = False) -> Handler:
        """Have a function serve streams that peers open, once their connection is in use, and as long as it is.

        Args:
            may_end: A stream that ends anywhere is whole; any other is reset.
        """

        async def handle(connection: Connection, stream: Stream) -> None:
            link = await self._wait(connection)
            with trio.CancelScope() as scope:
                serving = self._serving[connection]
                serving.add(scope)
                try:
                    await serve(link, stream)
                finally:
                    serving.discard(scope)
            if scope.cancelled_caught and not may_end:
                raise StreamReset("the log is not served here any more")

        return handle

    async def _wait(self, connection: Connection) -> T:
        with trio.move_on_after(ATTACH_S):
            while (link := self._links.get(connection)) is None:
                await self._attached.wait()
            return link
        raise StreamReset("the connection is not in use")
