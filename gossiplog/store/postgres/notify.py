"""NOTIFY after our commits, and LISTEN for those of other processes, so that followers need not poll.

The same notifications carry notes, which are stored nowhere and may be lost. Each process limits how many it sends.

A notification is sent after the commit, not within it: a transaction with a notification holds a lock of the whole server while it is
flushed to disk, so the logs of a server would wait for each other. If a notification is lost with its process, polling makes up for it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import secrets
from collections import deque
from collections.abc import Awaitable, Callable

from .connection import Connection
from .errors import DATABASE_ERRORS

_GAP_S = 0.02
"""Between two notifications that a process sends, and between two wake-ups of its followers. So a burst of commits, of any number
and by any number of processes, costs 50 a second of each."""
_NOTES_AT_ONCE = 8
"""Per gap, which allows a process 2.3 MB a second."""
_NOTES_MAX = 64
"""Notes that wait to be sent; beyond that the oldest is dropped."""
_FINISH_S = 1.0
_BACKOFF_FIRST_S = 0.1
_BACKOFF_LAST_S = 5.0


class Notifier:
    """Notifies other processes soon after a commit."""

    def __init__(self, channel: str, send: Callable[[str], Awaitable[None]]) -> None:
        self.token = secrets.token_hex(8)
        self._channel = channel
        self._send = send
        self._notes: deque[bytes] = deque(maxlen=_NOTES_MAX)
        self._is_due = False
        self._task: asyncio.Task[None] | None = None

    def note(self) -> None:
        """Notify of a commit."""
        self._is_due = True
        self._begin()

    def tell(self, note: bytes) -> None:
        """Send other processes a note, which may be lost."""
        self._notes.append(note)
        self._begin()

    def _begin(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def finish(self) -> None:
        """Send what is due, for at most `_FINISH_S`; what the server does not take is lost."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_FINISH_S)

    async def _run(self) -> None:
        try:
            while self._is_due or self._notes:
                payloads = [self.token] * self._is_due
                self._is_due = False
                for _ in range(min(len(self._notes), _NOTES_AT_ONCE)):
                    payloads.append(f"{self.token}.{base64.b64encode(self._notes.popleft()).decode()}")
                # Nothing here needs quoting: channel, token and base64 are ours.
                calls = "; ".join(f"SELECT pg_notify('{self._channel}', '{payload}')" for payload in payloads)
                await self._send(f"BEGIN; SET LOCAL synchronous_commit = off; {calls}; COMMIT")
                await asyncio.sleep(_GAP_S)
        finally:
            self._task = None


class Heard:
    """A log to whose notifications we listen.

    Attributes:
        lock: Shared while listening; see `WriterLocks.listeners`.
        wake: Called when another process has committed, or may have while we did not listen.
        hear: Called with each note of another process, and with None when notes may have been missed.
    """

    def __init__(
        self, channel: str, lock: tuple[int, int], token: str, wake: Callable[[], None], hear: Callable[[bytes | None], None]
    ) -> None:
        self.channel = channel
        self.lock = lock
        self.wake = wake
        self.hear = hear
        self.is_listening = False
        self._token = token
        # The timer that ends the gap after a wake-up, and whether another one became due in the gap.
        self._gap: asyncio.TimerHandle | None = None
        self._is_due = False

    def on_notification(self, connection: Connection, pid: int, channel: str, payload: str) -> None:
        """Wake the followers or hand on the note, unless it is our own; wake them once per gap."""
        sender, dot, note = payload.partition(".")
        if sender == self._token:
            return
        if dot:
            with contextlib.suppress(binascii.Error, ValueError):
                self.hear(base64.b64decode(note, validate=True))
            return
        if self._gap is not None:
            self._is_due = True
            return
        self.wake()
        self._gap = asyncio.get_running_loop().call_later(_GAP_S, self._end_gap)

    def _end_gap(self) -> None:
        self._gap = None
        if self._is_due:
            self._is_due = False
            self.wake()


class Listener:
    """Listens to the notifications of any number of logs, on one connection of its own."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._connect = connect
        self._logs: dict[str, Heard] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add(self, log: Heard) -> None:
        """Begin to listen to a log, soon."""
        self._logs[log.channel] = log
        self._changed.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def remove(self, log: Heard) -> None:
        """Stop listening to a log."""
        if self._logs.get(log.channel) is log:
            del self._logs[log.channel]
            self._changed.set()

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
                    connection.add_termination_listener(lambda _: self._changed.set())
                    await self._listen(connection)
                    backoff = _BACKOFF_FIRST_S
                finally:
                    for log in self._logs.values():
                        log.is_listening = False
                    connection.terminate()
            for log in list(self._logs.values()):
                log.wake()
            await asyncio.sleep(backoff)
            backoff = min(2 * backoff, _BACKOFF_LAST_S)

    async def _listen(self, connection: Connection) -> None:
        """Listen until the connection ends, to the logs that are added and not removed meanwhile."""
        heard: dict[str, Heard] = {}
        while not connection.is_closed():
            self._changed.clear()
            for log in [each for each in heard.values() if self._logs.get(each.channel) is not each]:
                await connection.remove_listener(log.channel, log.on_notification)
                await connection.execute(f"SELECT pg_advisory_unlock_shared({log.lock[0]}, {log.lock[1]})")
                del heard[log.channel]
            for log in [each for each in self._logs.values() if each.channel not in heard]:
                # This lock shows writers that somebody listens. It waits for a writer that saw nobody, so its commit is found by the
                # wake-up below.
                await connection.execute(f"SELECT pg_advisory_lock_shared({log.lock[0]}, {log.lock[1]})")
                await connection.add_listener(log.channel, log.on_notification)
                heard[log.channel] = log
                log.is_listening = True
                # There was no notification of earlier commits.
                log.wake()
                log.hear(None)
            await self._changed.wait()
