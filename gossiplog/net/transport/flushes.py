"""One task that writes for many connections: their queues go out in one turn of the event loop."""

from __future__ import annotations

from collections.abc import Callable

import trio

from ...tasks.sleeper import Sleeper


class Flushes:
    """Flushes connections at the end of the step in which they were given something to send.

    An entry that is passed on goes to the whole mesh at once. Waking a task for each connection takes more CPU than writing, and writing
    at once would send each of several entries by itself. A step that reads flushes at its own end (`hold`, `release`); for any other step
    the one task does.
    """

    def __init__(self) -> None:
        self._due: dict[Callable[[], None], None] = {}
        self._writer = Sleeper()
        self._is_held = False

    def add(self, flush: Callable[[], None]) -> None:
        """Have a connection flushed soon, by a function that sends as much of its queue as needs no waiting, and raises nothing."""
        if not self._due and not self._is_held:
            self._writer.wake()
        self._due[flush] = None

    def hold(self) -> None:
        """Flush nothing until `release`, which must come in the same step."""
        self._is_held = True

    def release(self) -> None:
        """Flush all connections that were added."""
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
        for flush in due:
            flush()
