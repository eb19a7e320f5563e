"""The writing of many connections, done by one task: what they have queued goes out in one turn of the event loop."""

from __future__ import annotations

from typing import Protocol

import trio

from ...tasks.sleeper import Sleeper

__all__ = ["Flushes"]


class Flushable(Protocol):
    """A connection that can be told to send."""

    def flush(self) -> None:
        """Send what is queued, as far as that needs no waiting. Raises nothing."""
        ...


class Flushes:
    """Flushes connections in the turn after the one in which they were given something to send.

    An entry that is passed on goes to all of the mesh at once. To wake a task for each of these connections takes more CPU than to
    write, and to write at once would send each of several entries by itself.
    """

    def __init__(self) -> None:
        self._due: dict[Flushable, None] = {}
        self._writer = Sleeper()

    def add(self, connection: Flushable) -> None:
        """Have a connection flushed."""
        if not self._due:
            self._writer.wake()
        self._due[connection] = None

    async def run(self) -> None:
        """Flush for ever."""
        while True:
            if not self._due:
                await self._writer.sleep()
            due, self._due = self._due, {}
            for connection in due:
                connection.flush()
            await trio.lowlevel.checkpoint_if_cancelled()
