"""A pool of connections to a server. They are opened when needed, replaced when they break, and waited for while the server is away.

Everything here runs in the asyncio thread. A task of the pool opens a connection and hands it to the caller that has waited longest, so
a caller that gives up leaks nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable

from ...errors import ClosedError, StoreUnavailable
from .connection import Connection
from .errors import DATABASE_ERRORS, may_return, translate
from .thread import TrioCall

PATIENCE_S = 30.0
"""How long a caller waits for a connection, because the server is away or all connections are busy."""
_BACKOFF_FIRST_S = 0.05
_BACKOFF_LAST_S = 2.0
_CLOSE_S = 2.0


class Pool:
    """At most `size` connections to one server."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], size: int, location: str) -> None:
        self._connect = connect
        self._size = size
        self._location = location
        self._idle: list[Connection] = []
        self._waiters: deque[asyncio.Future[Connection]] = deque()
        # Connections in use, and tasks that open one more.
        self._busy: set[Connection] = set()
        self._openers: set[asyncio.Task[None]] = set()
        # Set when no connection is in use; `close` waits for it.
        self._emptied = asyncio.Event()
        self._is_closed = False

    @property
    def counts(self) -> tuple[int, int]:
        """The number of open connections, and how many of them are idle."""
        return len(self._busy) + len(self._idle), len(self._idle)

    async def acquire(self, call: TrioCall | None) -> Connection:
        """Take a connection; the caller must `release` it.

        Args:
            call: The call from trio that may be cancelled; None if there is none.

        Raises:
            StoreUnavailable: No connection became available within 30 s.
            StoreError: The server refuses us for a reason that time will not change.
            ClosedError: The pool is closed, or was closed meanwhile.
            Abandoned: The caller was cancelled.
        """
        if self._is_closed:
            raise ClosedError("the log is closed")
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Connection] = loop.create_future()
        self._waiters.append(waiter)
        self._serve()
        if waiter.done() and waiter.exception() is None:
            return waiter.result()
        deadline = loop.call_later(PATIENCE_S, self._give_up, waiter)
        try:
            return await (call.wait_for(waiter) if call is not None else waiter)
        finally:
            deadline.cancel()
            with contextlib.suppress(ValueError):
                self._waiters.remove(waiter)

    def add(self, connection: Connection) -> None:
        """Give the pool a connection that was opened elsewhere."""
        self._busy.add(connection)
        self.release(connection)

    def release(self, connection: Connection) -> None:
        """Give a connection back. It is thrown away if it is closed or still within a transaction."""
        self._busy.remove(connection)
        if self._is_closed or connection.is_closed() or connection.is_in_transaction():
            connection.terminate()
        else:
            self._idle.append(connection)
        if not self._busy:
            self._emptied.set()
        self._serve()

    async def close(self) -> None:
        """Close all connections; those in use when they are released, or after 2 s. Waiting callers get a ClosedError."""
        self._turn_away()
        for opener in list(self._openers):
            opener.cancel()
        await asyncio.gather(*self._openers, return_exceptions=True)
        await asyncio.gather(*[_close(connection) for connection in self._idle])
        if self._busy:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), _CLOSE_S)
        self.give_up()

    def give_up(self) -> None:
        """Break all connections, and hand none out any more."""
        self._turn_away()
        for connection in (*self._busy, *self._idle):
            connection.terminate()

    def _turn_away(self) -> None:
        self._is_closed = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(ClosedError("the log was closed"))

    def _serve(self) -> None:
        """Hand out idle connections, and open more for the callers left, as far as `size` allows."""
        while self._waiters and self._idle:
            connection = self._idle.pop()
            if connection.is_closed():
                continue
            waiter = self._waiters.popleft()
            if waiter.done():
                self._idle.append(connection)
            else:
                self._busy.add(connection)
                self._emptied.clear()
                waiter.set_result(connection)
        wanted = sum(1 for waiter in self._waiters if not waiter.done())
        while len(self._openers) < wanted and self.counts[0] + len(self._openers) < self._size and not self._is_closed:
            opener = asyncio.get_running_loop().create_task(self._open_one())
            self._openers.add(opener)
            opener.add_done_callback(self._openers.discard)

    async def _open_one(self) -> None:
        """Open one connection, trying again as long as somebody waits for it."""
        backoff = _BACKOFF_FIRST_S
        while any(not waiter.done() for waiter in self._waiters):
            try:
                connection = await self._connect()
            except Exception as error:
                # The edge of this task: waiting callers get any error.
                if may_return(error):
                    await asyncio.sleep(backoff)
                    backoff = min(2 * backoff, _BACKOFF_LAST_S)
                    continue
                self._refuse(error)
                return
            self._openers.discard(asyncio.current_task())
            self.add(connection)
            return

    def _refuse(self, error: BaseException) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                refusal = translate(self._location, error)
                refusal.__cause__ = error
                waiter.set_exception(refusal)

    def _give_up(self, waiter: asyncio.Future[Connection]) -> None:
        if not waiter.done():
            why = "all connections are busy" if self.counts[0] >= self._size else "the server does not answer"
            message = f"no connection to {self._location} within {PATIENCE_S:.0f} s: {why}"
            waiter.set_exception(StoreUnavailable(message, hint="nothing was done; try again"))


async def _close(connection: Connection) -> None:
    try:
        await connection.close(timeout=_CLOSE_S)
    except (*DATABASE_ERRORS, asyncio.CancelledError):
        connection.terminate()
