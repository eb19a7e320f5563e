"""A log in a PostgreSQL database. Any number of processes read it, and write to it one at a time, by a lock of the server's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, TypeVar

import trio
from outcome import Outcome

from ...errors import ClosedError, ReadOnlyLog
from ...plan import Plan
from ..base import Durability, Reader, Transaction
from ..migrate import load_migrations
from ..sync_transaction import AwaitedTransaction
from .connection import Connection
from .connections import Connections, open_connections
from .database import Database
from .schema import find_version
from .thread import AsyncioThread
from .url import PostgresUrl

T = TypeVar("T")

_POLL_S = 0.2
_POLL_LISTENING_S = 5.0
"""While the server notifies us of commits: in case a notification was lost with the process that would have sent it."""


class PostgresStore:
    """The store behind one URL. Make one with `PostgresStore.open`."""

    is_shared = True

    def __init__(self, thread: AsyncioThread, database: Database, topic: str, *, read_only: bool) -> None:
        self.topic = topic
        self.location = database.url.location
        self.is_read_only = read_only
        self._thread = thread
        self._database = database
        self._write_turn = trio.Lock()
        self._watchers: list[Callable[[], None]] = []
        self._hearers: list[Callable[[bytes | None], None]] = []
        self._is_closed = False

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: PostgresUrl,
        *,
        topic: str | None,
        create: bool,
        read_only: bool,
        durability: Durability,
        connections: Connections | None = None,
    ) -> AsyncIterator[PostgresStore]:
        """Open a log, or create it, and close it at the end.

        Args:
            topic: The topic that the log must have; None for any. Needed to create.
            durability: For the commits of this process: synchronous_commit is on for `full`, off for the other levels.
            connections: A shelf's; None to open its own.

        Raises:
            StoreUnavailable: The server cannot be reached, or refuses us.
            LogNotFound: There is no such log or no such database, and `create` is false.
            ForeignFile: The schema of that name is no log.
            DamagedLog: The log cannot be read.
            NewerVersion: A later version of this program wrote it.
            TopicMismatch: It has another topic.
            ReadOnlyLog: The role, or the server, may not write, or the log needs a migration.
            LocalProtocolError: The URL, or a file that it names, is wrong.
        """
        token = trio.lowlevel.current_trio_token()
        stores: list[PostgresStore] = []

        def wake() -> None:
            token.run_sync_soon(lambda: [watcher() for store in stores for watcher in store._watchers])

        def hear(note: bytes | None) -> None:
            token.run_sync_soon(lambda: [hearer(note) for store in stores for hearer in store._hearers])

        async with AsyncExitStack() as stack:
            if connections is None:
                connections = await stack.enter_async_context(open_connections(url, durability))
            thread, database = connections.thread, Database(url, connections, wake, hear)
            try:
                store = cls(thread, database, await thread.call(database.open, topic, create, read_only), read_only=read_only)
                stores.append(store)
                try:
                    yield store
                finally:
                    store._is_closed = True
            finally:
                with trio.CancelScope(shield=True):
                    await thread.call(database.close)

    @property
    def poll_s(self) -> float:
        """How often followers look for themselves."""
        return _POLL_LISTENING_S if self._database.is_listening else _POLL_S

    def watch(self, wake: Callable[[], None]) -> None:
        """Have a function called, in the event loop, when another process has written."""
        self._watchers.append(wake)
        self._thread.loop.call_soon_threadsafe(self._database.listen)

    def talk(self, hear: Callable[[bytes | None], None]) -> Callable[[bytes], None]:
        """See `TalkingStore`."""
        self._hearers.append(hear)
        self._thread.loop.call_soon_threadsafe(self._database.talk)

        def tell(note: bytes) -> None:
            if not self._is_closed:
                self._thread.loop.call_soon_threadsafe(self._database.tell, note)

        return tell

    async def read(self, plan: Plan[T]) -> T:
        """Run a plan on one snapshot, in one hop."""
        return await self._call(self._database.read, plan)

    @asynccontextmanager
    async def snapshot(self, *, may_expire: bool = False) -> AsyncIterator[Reader]:
        """Hold one snapshot for many plans. It never expires here: it costs only the space that vacuum cannot free meanwhile."""
        connection = await self._call(self._database.begin_snapshot)
        try:
            yield _Snapshot(self, connection)
        finally:
            with trio.CancelScope(shield=True), suppress(ClosedError):
                await self._call(self._database.end_snapshot, connection)

    async def write(self, plan: Plan[T]) -> T:
        """Run a plan as one transaction, in one hop."""
        self._check_writable()
        async with self._write_turn:
            return await self._call(self._database.write, plan)

    def begin_write(self, plan: Plan[T], then: Callable[[Outcome[T]], None]) -> bool:
        """Begin nothing: a round of the event loop is cheap beside the server's answers, and `write` may have to wait for the server."""
        return False

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Open a transaction for a body that awaits."""
        self._check_writable()
        async with self._write_turn:
            writing = await self._call(self._database.begin)
            try:
                yield AwaitedTransaction(lambda function: self._call(lambda call: function(writing)))
            except BaseException:
                with trio.CancelScope(shield=True):
                    await self._call(self._database.rollback, writing)
                raise
            # A caller that is cancelled from here on is cancelled after the commit.
            with trio.CancelScope(shield=True):
                await self._call(self._database.commit, writing)

    @asynccontextmanager
    async def rehearsal(self) -> AsyncIterator[PostgresStore]:
        """Return the store itself: the server undoes a transaction that is rolled back."""
        self._check_writable()
        await trio.lowlevel.checkpoint()
        yield self

    async def size_bytes(self) -> int:
        """Return how many bytes the log's tables and indexes take in the database."""
        return await self._call(self._database.size_bytes)

    async def _call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        if self._is_closed:
            raise ClosedError("the log is closed")
        return await self._thread.call(function, *args)

    def _check_writable(self) -> None:
        if self.is_read_only:
            raise ReadOnlyLog(f"{self.location} is open read-only")


class _Snapshot:
    def __init__(self, store: PostgresStore, connection: Connection) -> None:
        self._store = store
        self._connection = connection
        self._turn = trio.Lock()

    async def run(self, plan: Plan[T]) -> T:
        async with self._turn:
            return await self._store._call(self._store._database.run_snapshot, self._connection, plan)

    async def query(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        async with self._turn:
            return await self._store._call(self._store._database.query, self._connection, statement, parameters)


async def find_postgres_pending(url: PostgresUrl) -> tuple[int, list[str]]:
    """Return a log's schema version and the names of the migrations that it lacks; see `pending_migrations`."""
    async with open_connections(url, Durability.FULL) as connections:
        version = await connections.ask(lambda connection: find_version(connection, url))
    return version, [name for name, _ in load_migrations("postgres")[version:]]
