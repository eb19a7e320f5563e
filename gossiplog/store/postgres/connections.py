"""Connections to one database, for a log or for all logs of a shelf: a few each to read, to hold snapshots and to write, and one to listen.
They are opened when they are needed, and served by one asyncio thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import asyncpg
import trio

from ...tasks.nursery import open_service_nursery
from ..base import Durability
from .connection import Connection, connect, is_so, settings_for
from .errors import DATABASE_ERRORS, translate
from .notify import Listener
from .pool import Pool
from .schema import reading
from .thread import AsyncioThread, TrioCall
from .url import PostgresUrl

T = TypeVar("T")

_ATTEMPTS = 8
"""At the first connection, while the server is starting."""
_GRACE_S = 1.0
"""How long a statement may still take after the task that has the log open is cancelled; then the server counts as gone."""


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """How many connections there may be of each kind; further callers wait.

    Snapshots have their own, because other reads must not wait for a peer's sync.
    """

    readers: int
    snapshots: int
    writers: int


OF_A_LOG = PoolSizes(readers=4, snapshots=16, writers=1)
OF_A_SHELF = PoolSizes(readers=8, snapshots=24, writers=8)


class Connections:
    """Made by `open_connections`. All methods run in the thread's loop; those that take a `TrioCall` are called from trio.

    Attributes:
        settings: The statements with which each transaction begins behind a pooler; empty without one.
    """

    def __init__(self, url: PostgresUrl, durability: Durability, sizes: PoolSizes) -> None:
        self.thread = AsyncioThread("gossiplog-postgres")
        self.is_pooled = False
        self.settings = ""
        self.readers = Pool(self._connect, sizes.readers, url.location)
        self.snapshots = Pool(self._connect, sizes.snapshots, url.location)
        self.writers = Pool(self._connect, sizes.writers, url.location)
        self.listener = Listener(self._connect)
        self._url = url
        self._durability = durability
        self._on_connect: str | None = None
        self._first = asyncio.Lock()
        self._endings: set[asyncio.Task[None]] = set()

    async def take(self, call: TrioCall, pool: Pool) -> Connection:
        """Take a connection; the caller must `release` it. The first one is opened without patience, and looks for a pooler.

        Raises:
            StoreUnavailable, Abandoned: As `Pool.acquire`.
            asyncpg.PostgresError: The first connection was refused.
        """
        async with self._first:
            if self._on_connect is None:
                pool.add(await self._connect_first(call))
        return await pool.acquire(call)

    async def ask(self, question: Callable[[Connection], Awaitable[T]]) -> T:
        """Read something from the database within a transaction. Called from trio.

        Raises:
            StoreError, LocalProtocolError: As `translate` returns them.
        """

        async def read(call: TrioCall) -> T:
            connection = await self.take(call, self.readers)
            try:
                async with reading(connection):
                    return await question(connection)
            finally:
                self.readers.release(connection)

        try:
            return await self.thread.call(read)
        except DATABASE_ERRORS as error:
            raise translate(self._url.location, error) from error

    def give_up(self) -> None:
        """End all work as if the server were gone, and begin no more. `close` must still be called."""
        for pool in (self.readers, self.snapshots, self.writers):
            pool.give_up()

    async def close(self, call: TrioCall) -> None:
        """Finish the work under way, and close all connections."""
        await self.listener.stop()
        await asyncio.gather(self.readers.close(), self.snapshots.close(), self.writers.close())
        await asyncio.gather(*self._endings)

    async def end(self, pool: Pool, connection: Connection) -> None:
        """Roll back the connection's transaction, if it has one, and give the connection back."""
        if not connection.is_closed() and connection.is_in_transaction():
            with contextlib.suppress(*DATABASE_ERRORS):
                await connection.execute("ROLLBACK")
        pool.release(connection)

    def end_later(self, pool: Pool, connection: Connection) -> None:
        """Do as `end` in the background."""
        if connection.is_closed() or not connection.is_in_transaction():
            pool.release(connection)
            return
        task = asyncio.get_running_loop().create_task(self.end(pool, connection))
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)

    async def _connect_first(self, call: TrioCall) -> Connection:
        """Connect, waiting only for a server that is starting, and see whether there is a pooler."""
        for attempt in range(_ATTEMPTS):
            try:
                connection = await call.run(connect(self._url), lambda late: late.terminate())
                break
            except asyncpg.CannotConnectNowError:
                if attempt == _ATTEMPTS - 1:
                    raise
                await call.run(asyncio.sleep(0.1 * 2**attempt), lambda _: None)
        # A pooler tells its clients another process number than the server's.
        self.is_pooled = not await is_so(connection, f"pg_backend_pid() = {connection.get_server_pid():d}")
        settings = await settings_for(connection, self._url, self._durability)
        if self.is_pooled:
            connection.terminate()
            # A pooler's connections serve others, too, so settings are made in each transaction.
            self.settings = "".join(f"SET LOCAL {name} = {value}; " for name, value in settings.items())
            self._on_connect = ""
            return await self._connect()
        on_connect = "; ".join(f"SET {name} = {value}" for name, value in settings.items())
        await connection.execute(on_connect)
        self._on_connect = on_connect
        return connection

    async def _connect(self) -> Connection:
        connection = await connect(self._url, is_pooled=self.is_pooled)
        if self._on_connect:
            try:
                await connection.execute(self._on_connect)
            except BaseException:
                connection.terminate()
                raise
        return connection


@asynccontextmanager
async def open_connections(url: PostgresUrl, durability: Durability, sizes: PoolSizes = OF_A_LOG) -> AsyncIterator[Connections]:
    """Have connections for the length of a block. None is opened at its beginning."""
    connections = Connections(url, durability, sizes)
    thread = connections.thread
    thread.start()
    try:
        async with open_service_nursery() as nursery:
            is_over = trio.Event()
            nursery.start_soon(_give_up_if_cancelled, connections, is_over)
            try:
                yield connections
            finally:
                with trio.CancelScope(shield=True):
                    await thread.call(connections.close)
                is_over.set()
    finally:
        thread.stop()


async def _give_up_if_cancelled(connections: Connections, is_over: trio.Event) -> None:
    """Wait for the end. After a cancellation, do not let a server that does not answer delay it for more than `_GRACE_S`."""
    try:
        await is_over.wait()
    except trio.Cancelled:
        with trio.move_on_after(_GRACE_S, shield=True):
            await is_over.wait()
        if not is_over.is_set():
            connections.thread.loop.call_soon_threadsafe(connections.give_up)
        raise
