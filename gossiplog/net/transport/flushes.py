"""The writing of many connections, done by one task: what they have queued goes out in one turn of the event loop."""

from __future__ import annotations

from typing import Protocol

import trio

from ...tasks.sleeper import Sleeper


class Flushable(Protocol):
    """A connection that can be told to send."""

    def flush(self) -> None:
        """Send what is queued, as far as that needs no waiting. Raises nothing."""


class Flushes:
    """Flushes connections once the step in which they were given something to send is over.

    An entry that is passed on goes to all of the mesh at once. To wake a task for each of these connections takes more CPU than to
    write, and to write at once would send each of several entries by itself. A reader's step holds back what it makes others send, and
    sends it at its end; what any other step does is sent by the one task.
    """

    def __init__(self) -> None:
        self._due: dict[Flushable, None] = {}
        self._writer = Sleeper()
        self._is_held = False

    def add(self, connection: Flushable) -> None:
        """Have a connection flushed."""
        if not self._due and not self._is_held:
            self._writer.wake()
        self._due[connection] = None

    def hold(self) -> None:
        """Flush nothing until `release`, which has to come in the same step."""
        self._is_held = True

    def release(self) -> None:
        """Flush all who have been added."""
        self._is_held = False
        if self._due:
            self._flush()

    async def run(self) -> None:
        """Flush for ever."""
        while True:
            if not self._due:
                await self._writer.sleep()
            self._flush()
            await trio.lowlevel.checkpoint_if_cancelled()

    def _flush(self) -> None:
        due, self._due = self._due, {}
        for connection in due:
            connection.flush()
