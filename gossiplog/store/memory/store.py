"""A log in memory: for tests, simulations, and replicas that need not survive."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, TypeVar

import trio
from outcome import Outcome

from ...entry.rules import check_topic
from ...errors import CommitError, LocalProtocolError, ReadOnlyLog, SnapshotExpired
from ...plan import Call, Plan, Request, run_plan
from ..base import Reader, Transaction
from ..statements import ApplicationTables
from .fsck import FSCK_ANSWERS
from .state import WRITES, MemoryState

T = TypeVar("T")


class MemoryStore:
    """The store behind `:memory:`. The application's tables lie in a SQLite database beside it."""

    is_shared = False
    poll_s = 0.0

    def __init__(self, topic: str | None, *, read_only: bool = False) -> None:
        if topic is None:
            raise LocalProtocolError("a log in memory needs a topic")
        check_topic(topic)
        self.topic = topic
        self.location = ":memory:"
        self.is_read_only = read_only
        self._state = MemoryState(secrets.token_hex(8))
        self._tables = _Tables()
        self._writes = 0
        self._write_turn = trio.Lock()

    def close(self) -> None:
        """Close the application's tables. Nothing is asked of the store afterwards."""
        self._tables.close()

    def watch(self, wake: Callable[[], None]) -> None:
        """Do nothing: nobody else writes."""

    async def read(self, plan: Plan[T]) -> T:
        """Run a plan; nothing else runs meanwhile, so it sees one state."""
        await trio.lowlevel.checkpoint()
        return run_plan(plan, partial(_answer, self._state))

    @asynccontextmanager
    async def snapshot(self, *, may_expire: bool = False) -> AsyncIterator[Reader]:
        """Hold the state of now, which never expires. O(heads)."""
        await trio.lowlevel.checkpoint()
        yield _Snapshot(self, self._state.snapshot(), self._writes)

    async def write(self, plan: Plan[T]) -> T:
        """Run a plan as one transaction."""
        async with self.transaction() as transaction:
            return await transaction.run(plan)

    def begin_write(self, plan: Plan[T], then: Callable[[Outcome[T]], None]) -> bool:
        """Begin nothing: there is nothing to wait for."""
        return False

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Open a transaction, whose plans see the state before it."""
        if self.is_read_only:
            raise ReadOnlyLog("the log is open read-only")
        async with self._write_turn:
            writes: list[Request[Any]] = []
            try:
                yield _Transaction(self._state, writes, self._tables)
            except BaseException:
                self._tables.end(commit=False)
                raise
            self._tables.end(commit=True)
            self._writes += 1
            for request in writes:
                self._state.write(request)

    @asynccontextmanager
    async def rehearsal(self) -> AsyncIterator[MemoryStore]:
        """Be the store: nothing of a transaction that is rolled back is ever written."""
        await trio.lowlevel.checkpoint()
        yield self

    async def size_bytes(self) -> int:
        """Return the sum of all values."""
        await trio.lowlevel.checkpoint()
        return sum(len(value) for value in self._state.values)


class _Snapshot:
    def __init__(self, store: MemoryStore, state: MemoryState, writes: int) -> None:
        self._store = store
        self._state = state
        self._writes = writes

    async def run(self, plan: Plan[T]) -> T:
        await trio.lowlevel.checkpoint()
        return run_plan(plan, partial(_answer, self._state))

    async def query(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        # While a transaction is open, the tables are as it has them.
        async with self._store._write_turn:
            if self._store._writes != self._writes:
                raise SnapshotExpired("the tables in memory have changed since the snapshot", hint="begin anew on a later one")
            return self._store._tables.query(statement, parameters)


class _SyncTransaction:
    """The transaction as plain calls; see `SyncTransaction`."""

    def __init__(self, state: MemoryState, writes: list[Request[Any]], tables: _Tables) -> None:
        self._state = state
        self._writes = writes
        self.execute = tables.execute
        self.execute_many = tables.execute_many
        self.begin_attempt = tables.begin_attempt
        self.undo_attempt = tables.undo_attempt

    def run(self, plan: Plan[T]) -> T:
        return run_plan(plan, self._answer)

    def _answer(self, request: Request[Any]) -> Any:
        if isinstance(request, Call):
            return request.function(self)
        if type(request) in WRITES:
            self._writes.append(request)
            return None
        return _answer(self._state, request)


class _Transaction:
    def __init__(self, state: MemoryState, writes: list[Request[Any]], tables: _Tables) -> None:
        self._sync = _SyncTransaction(state, writes, tables)

    async def run(self, plan: Plan[T]) -> T:
        return self._sync.run(plan)

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._sync.execute(statement, parameters)

    async def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._sync.execute_many(statement, rows)

    async def begin_attempt(self) -> None:
        self._sync.begin_attempt()

    async def undo_attempt(self) -> None:
        self._sync.undo_attempt()


class _Tables:
    """The application's tables, in a SQLite database that is made on first use, and their part of the open transaction."""

    def __init__(self) -> None:
        self._db: sqlite3.Connection | None = None
        self._tables: ApplicationTables

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute one statement within the transaction; see `Transaction.execute`."""
        self._begin()
        with _translating():
            return self._tables.execute(statement, parameters)

    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute one statement for each row of parameters."""
        self._begin()
        with _translating():
            self._tables.execute_many(statement, rows)

    def query(self, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Execute one statement that only reads, between two transactions."""
        tables = ApplicationTables(self._connect(), reads_only=True)
        try:
            with _translating():
                return tables.execute(statement, parameters)
        finally:
            tables.release()

    def begin_attempt(self) -> None:
        """See `Transaction.begin_attempt`."""
        self._begin()
        self._control("SAVEPOINT gossiplog_attempt")

    def undo_attempt(self) -> None:
        """See `Transaction.undo_attempt`."""
        self._control("ROLLBACK TO gossiplog_attempt")

    def close(self) -> None:
        """Close the database, if there is one."""
        if self._db is not None:
            self._tables.release()
            self._db.close()

    def end(self, *, commit: bool) -> None:
        """End the transaction, if anything was executed in it."""
        if self._db is not None and self._db.in_transaction:
            self._control("COMMIT" if commit else "ROLLBACK")

    def _begin(self) -> None:
        db = self._connect()
        if not db.in_transaction:
            self._tables.release()
            db.execute("BEGIN")

    def _connect(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            self._tables = ApplicationTables(self._db)
        return self._db

    def _control(self, statement: str) -> None:
        self._tables.release()
        self._connect().execute(statement)


@contextmanager
def _translating() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise CommitError(f":memory:: {error}") from error


def _answer(state: MemoryState, request: Request[Any]) -> Any:
    """Answer any request that reads, those of `fsck` included."""
    answer = FSCK_ANSWERS.get(type(request))
    return state.answer(request) if answer is None else answer(state, request)
