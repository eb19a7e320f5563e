"""A log in its database, as the asyncio thread sees it: connections, transactions, and what happens when the server goes away."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...errors import ConnectionLost, GossipLogError, LogBusy, NewerVersion, StoreUnavailable
from ...log.requests import ReadPlace
from ...plan import Plan, Resumable, ask, is_single
from ..migrate import load_migrations
from ..writer_cache import WriterCache
from . import pool as postgres_pool
from . import transactions
from .apply import ApplicationStatements, query
from .connection import Connection
from .connections import Connections
from .errors import DATABASE_ERRORS, DatabaseFailed, is_lost, translate, translate_uncommitted
from .notify import Heard, Notifier
from .pool import Pool
from .schema import PostgresSchema, find_writer, open_schema
from .thread import TrioCall
from .url import PostgresUrl

T = TypeVar("T")

_ATTEMPTS = 8
"""Of a read, each on a connection that breaks, before the caller gets the error."""
_BACKOFF_FIRST_S, _BACKOFF_LAST_S = 0.05, 2.0


class Database:
    """One open log. All methods run in the thread's loop; those that take a `TrioCall` are called from trio."""

    def __init__(self, url: PostgresUrl, connections: Connections, wake: Callable[[], None], hear: Callable[[bytes | None], None]) -> None:
        self.url = url
        self._connections = connections
        self._wake = wake
        self._hear = hear
        self._tail = WriterCache()
        self._state = transactions.NOTHING_KNOWN
        self._committed_at = -math.inf
        self._schema: PostgresSchema
        self._notifier: Notifier
        self._heard: Heard

    async def open(self, call: TrioCall, topic: str | None, create: bool, read_only: bool) -> str:
        """Connect, check or create the log, and return its topic. Raises as `PostgresStore.open`."""
        pool = self._connections.readers if read_only else self._connections.writers
        try:
            connection = await self._connections.take(call, pool)
            try:
                self._schema = await open_schema(connection, self.url, topic, create=create, read_only=read_only)
            except BaseException as error:
                if not isinstance(error, GossipLogError):
                    connection.terminate()
                raise
            finally:
                pool.release(connection)
        except DATABASE_ERRORS as error:
            raise translate(self.url.location, error) from error
        channel = f"gossiplog_{self._schema.oid}"
        self._notifier = Notifier(channel, self._send)
        self._heard = Heard(channel, self._schema.locks.listeners, self._notifier.token, self._wake, self._hear)
        return self._schema.topic

    async def close(self, call: TrioCall) -> None:
        """Send the notifications that wait, and stop listening."""
        if hasattr(self, "_notifier"):
            await self._notifier.finish()
            self._connections.listener.remove(self._heard)

    @property
    def is_listening(self) -> bool:
        """Whether the server notifies us of other processes' commits."""
        return self._heard.is_listening

    def listen(self) -> None:
        """Begin to call `wake` when other processes commit. Behind a pooler there are no notifications, so nothing happens."""
        if not self._connections.is_pooled:
            self._connections.listener.add(self._heard)

    def talk(self) -> None:
        """Begin to receive other processes' notes."""
        self.listen()
        if self.is_listening:
            self._hear(None)

    def tell(self, note: bytes) -> None:
        """Send other processes a note that is stored nowhere."""
        self._notifier.tell(note)

    async def read(self, call: TrioCall, plan: Plan[T]) -> T:
        """Run a plan on a snapshot of its own."""
        # A single statement is a snapshot by itself, if nothing has to be set for it.
        script = "" if is_single(plan) and not self._connections.is_pooled else transactions.begin_reading(self._connections.settings)
        resumable = Resumable(plan)
        for _ in range(_ATTEMPTS):
            connection = await self._begin(call, self._connections.readers, script)
            try:
                with call.interrupted_by(connection.terminate):
                    return await transactions.run_reading(transactions.Fetcher(connection, self.url.quoted_schema), resumable.run())
            except DatabaseFailed as failed:
                error = failed.error
                if resumable.has_answer or not is_lost(error) or isinstance(error, TimeoutError):
                    raise translate(self.url.location, error) from error
            finally:
                # The caller has its result and need not wait for the end of the transaction.
                self._connections.end_later(self._connections.readers, connection)
        raise translate(self.url.location, error) from error

    async def begin_snapshot(self, call: TrioCall) -> Connection:
        """Take a connection and a snapshot; the caller must call `end_snapshot`."""
        return await self._begin(call, self._connections.snapshots, transactions.begin_snapshot(self._connections.settings))

    async def run_snapshot(self, call: TrioCall, connection: Connection, plan: Plan[T]) -> T:
        """Run a plan on a snapshot. The snapshot outlives an error."""
        try:
            return await transactions.run_reading(transactions.Fetcher(connection, self.url.quoted_schema), plan)
        except DatabaseFailed as failed:
            with contextlib.suppress(*DATABASE_ERRORS):
                await connection.execute("ROLLBACK TO SAVEPOINT gossiplog_start")
            raise translate(self.url.location, failed.error) from failed.error

    async def end_snapshot(self, call: TrioCall, connection: Connection) -> None:
        """Give a snapshot back."""
        await self._connections.end(self._connections.snapshots, connection)

    async def write(self, call: TrioCall, plan: Plan[T]) -> T:
        """Run a plan as one transaction."""
        writing = await self.begin(call)
        try:
            result = await writing.run(plan)
        except BaseException:
            await self.rollback(call, writing)
            raise
        await self.commit(call, writing)
        return result

    async def begin(self, call: TrioCall) -> transactions.WriteTransaction:
        """Begin a transaction that writes; the caller must call `commit` or `rollback`."""
        has_returned = asyncio.get_running_loop().time() - self._committed_at < transactions.RETURN_S
        script = (transactions.begin_turn if has_returned else transactions.begin_as_guest)(self._connections.settings, self._schema.locks)
        connection = await self._begin(call, self._connections.writers, script)
        application = ApplicationStatements(connection, self.url.schema, self._schema.oid, self._schema.relations)
        writing = transactions.WriteTransaction(connection, self.url, self._tail, application)
        try:
            await writing.begin(self._state, self._schema.locks.listeners)
            if writing.before.schema > len(load_migrations("postgres")):
                raise NewerVersion(f"{self.url.location} was migrated by a newer gossiplog", hint="upgrade gossiplog")
        except BaseException:
            await self.rollback(call, writing)
            raise
        return writing

    async def query(self, call: TrioCall, connection: Connection, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Execute a statement that only reads on a snapshot. The snapshot outlives an error."""
        try:
            return await query(connection, statement, parameters)
        except DATABASE_ERRORS as error:
            raise translate(self.url.location, error) from error
        finally:
            if not connection.is_closed():
                # Back to the beginning of the snapshot, settings included.
                with contextlib.suppress(*DATABASE_ERRORS):
                    await connection.execute("ROLLBACK TO SAVEPOINT gossiplog_start")

    async def commit(self, call: TrioCall, writing: transactions.WriteTransaction) -> None:
        """Commit.

        Raises:
            StoreError: It was rolled back.
            ConnectionLost: The connection was lost, and no entry was stored.
            StoreUnavailable: The connection was lost, and nobody can say whether it was committed.
        """
        try:
            self._state = await writing.commit()
        except DatabaseFailed as failed:
            await self.rollback(call, writing)
            if not (writing.is_committing and is_lost(failed.error)):
                raise translate_uncommitted(self.url.location, failed.error) from failed.error
            if not await self._was_committed(call, writing):
                message = f"the connection to {self.url.location} was lost before the commit"
                raise ConnectionLost(message, hint="nothing of it was stored; try again") from failed.error
            # A process may have begun to listen since.
            self._notifier.note()
            return
        self._connections.writers.release(writing.connection)
        self._committed_at = asyncio.get_running_loop().time()
        if writing.is_heard:
            self._notifier.note()

    async def rollback(self, call: TrioCall, writing: transactions.WriteTransaction) -> None:
        """Roll back, and forget everything that was read or written."""
        self._tail.forget()
        self._state = transactions.NOTHING_KNOWN
        await self._connections.end(self._connections.writers, writing.connection)

    async def size_bytes(self, call: TrioCall) -> int:
        """Return how many bytes the log's tables and indexes take."""
        statement = "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class WHERE relnamespace = $1 AND relkind = 'r'"
        connection = await self.begin_snapshot(call)
        try:
            size: int | None = await connection.fetchval(statement, self._schema.oid)
        except DATABASE_ERRORS as error:
            raise translate(self.url.location, error) from error
        finally:
            await self.end_snapshot(call, connection)
        return size or 0

    async def _was_committed(self, call: TrioCall, lost: transactions.WriteTransaction) -> bool:
        """Find out what became of a COMMIT whose answer never came.

        The lock is free only when the lost transaction is over, one way or the other, so what is in the log then is the answer. A
        transaction without an entry can simply be repeated, unless the application wrote something.

        Raises:
            StoreUnavailable: Nobody can say.
        """
        if lost.last is None and not lost.has_executed:
            return False
        cause: GossipLogError | None = None
        if lost.last is not None:
            try:
                now = await self.begin(call)
                try:
                    return (await now.run(ask(ReadPlace(lost.last.seq)))).key == lost.last.key
                finally:
                    await self.rollback(call, now)
            except GossipLogError as unanswered:
                cause = unanswered
        message = f"the connection to {self.url.location} was lost during a commit, and nobody can say whether it was done"
        raise StoreUnavailable(message, hint="look whether it is there before you write it again") from cause

    async def _begin(self, call: TrioCall, pool: Pool, script: str) -> Connection:
        """Begin a transaction, on another connection if the first one proves broken.

        A pooler accepts connections while its server is away, so a server behind one is waited for here.
        """
        deadline = asyncio.get_running_loop().time() + postgres_pool.PATIENCE_S
        backoff = 0.0
        while True:
            connection = await pool.acquire(call)
            try:
                if script:
                    with call.interrupted_by(connection.terminate):
                        await connection.execute(script)
            except DATABASE_ERRORS as error:
                await self._connections.end(pool, connection)
                if not is_lost(error) or isinstance(error, TimeoutError) or asyncio.get_running_loop().time() + backoff > deadline:
                    raise await self._name_writer(call, translate(self.url.location, error)) from error
                await call.run(asyncio.sleep(backoff), lambda _: None)
                backoff = min(2 * backoff or _BACKOFF_FIRST_S, _BACKOFF_LAST_S)
            else:
                return connection

    async def _name_writer(self, call: TrioCall, error: GossipLogError) -> GossipLogError:
        """Name the process that holds the writers' lock, if it can be found, in the error of waiting for it in vain."""
        if not isinstance(error, LogBusy):
            return error
        with contextlib.suppress(GossipLogError, *DATABASE_ERRORS):
            connection = await self._connections.snapshots.acquire(call)
            try:
                holder = await find_writer(connection, self._schema)
            finally:
                self._connections.snapshots.release(connection)
            if holder is not None:
                return LogBusy(f"{holder} has been writing to {self.url.location} for too long", hint=error.hint)
        return error

    async def _send(self, script: str) -> None:
        """Execute a script and ignore its outcome. On a connection for reading: the next transaction needs the one for writing."""
        with contextlib.suppress(GossipLogError, *DATABASE_ERRORS):
            connection = await self._connections.readers.acquire(None)
            try:
                await connection.execute(script)
            finally:
                await self._connections.end(self._connections.readers, connection)
