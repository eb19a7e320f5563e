"""NOTIFY after our commits, and LISTEN for those of other processes, so that their followers need not look for themselves.

A notification is sent after the commit, not within it: a transaction that has one holds a lock of the whole server while it is flushed to
disk, so the logs of one server would wait for each other. One that is lost, with its process, is made up for by polling.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable

from .connection import Connection
from .errors import DATABASE_ERRORS

__all__ = ["Listener", "Notifier"]

_GAP_S = 0.02
"""Between two notifications of one process, and between two times that it wakes its followers: a burst of commits costs 50 a second of
either, however many there are, of however many processes."""
_FINISH_S = 1.0
_BACKOFF_FIRST_S = 0.1
_BACKOFF_LAST_S = 5.0


class Notifier:
    """Tells other processes, soon after a commit, that there was one.

    Attributes:
        token: Names this process in its own notifications.
    """

    def __init__(self, channel: str, send: Callable[[str], Awaitable[None]]) -> None:
        self.token = secrets.token_hex(8)
        self._script = f"BEGIN; SET LOCAL synchronous_commit = off; SELECT pg_notify('{channel}', '{self.token}'); COMMIT"  # both are ours
        self._send = send
        self._is_due = False
        self._task: asyncio.Task[None] | None = None

    def note(self) -> None:
        """There was a commit."""
        self._is_due = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def finish(self) -> None:
        """Send what is due, unless the server is away; what is left ends with its connection."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_FINISH_S)

    async def _run(self) -> None:
        try:
            while self._is_due:
                self._is_due = False
                await self._send(self._script)
                await asyncio.sleep(_GAP_S)
        finally:
            self._task = None


class Listener:
    """Calls a function whenever another process has committed, or may have while nobody listened.

    Attributes:
        is_listening: Whether a connection listens now.
    """

    def __init__(
        self,
        channel: str,
        lock: tuple[int, int],
        token: str,
        connect: Callable[[], Awaitable[Connection]],
        wake: Callable[[], None],
    ) -> None:
        self.is_listening = False
        self._channel = channel
        self._lock = lock
        self._token = token
        self._connect = connect
        self._wake = wake
        self._task: asyncio.Task[None] | None = None
        # What ends the gap after a notification, and whether there was another one in it.
        self._gap: asyncio.TimerHandle | None = None
        self._is_due = False

    def start(self) -> None:
        """Start to listen, in a task."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop, and close the connection."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        backoff = _BACKOFF_FIRST_S
        while True:
            with contextlib.suppress(*DATABASE_ERRORS):
                connection = await self._connect()
                try:
                    await self._listen(connection)
                    backoff = _BACKOFF_FIRST_S
                finally:
                    self.is_listening = False
                    connection.terminate()
            self._wake()
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, _BACKOFF_LAST_S)

    async def _listen(self, connection: Connection) -> None:
        """Listen until the connection ends."""
        ended = asyncio.Event()
        connection.add_termination_listener(lambda _: ended.set())
        # Writers see by it that somebody listens. It is had only when a writer who saw nobody is done, whose commit is then read below.
        await connection.execute(f"SELECT pg_advisory_lock_shared({self._lock[0]}, {self._lock[1]})")
        await connection.add_listener(self._channel, self._on_notification)
        self.is_listening = True
        # What was committed before we listened was not told.
        self._wake()
        await ended.wait()

    def _on_notification(self, connection: Connection, pid: int, channel: str, payload: str) -> None:
        if payload == self._token:
            return
        if self._gap is not None:
            self._is_due = True
            return
        self._wake()
        self._gap = asyncio.get_running_loop().call_later(_GAP_S, self._end_gap)

    def _end_gap(self) -> None:
        self._gap = None
        if self._is_due:
            self._is_due = False
            self._wake()
