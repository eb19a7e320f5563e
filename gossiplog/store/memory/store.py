"""A log in memory: for tests, simulations, and replicas that need not survive."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio
from outcome import Outcome

from ...entry.rules import check_topic
from ...errors import ClosedError, LocalProtocolError, ReadOnlyLog, SnapshotExpired
from ...log.application import SyncTransaction
from ...plan import Plan, Request, run_plan
from ..base import Reader, Transaction
from ..sqlite.errors import Translating
from ..statements import query
from ..sync_transaction import AwaitedTransaction, ThreadTransaction
from .fsck import Answers
from .state import WRITES, MemoryState

T = TypeVar("T")

_PATH = Path(":memory:")


class MemoryStore:
    """The store behind `:memory:`. The application's tables are in a SQLite database in memory."""

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
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._writes = 0
        self._write_turn = trio.Lock()
        self._is_closed = False

    def close(self) -> None:
        """Close the application's tables."""
        self._is_closed = True
        self._db.close()

    def watch(self, wake: Callable[[], None]) -> None:
        """Do nothing: no other process writes."""

    async def read(self, plan: Plan[T]) -> T:
        """Run a plan; nothing else runs meanwhile, so it sees one state."""
        await trio.lowlevel.checkpoint()
        self.check_open()
        with closing(Answers(self._state)) as answer:
            return run_plan(plan, answer)

    @asynccontextmanager
    async def snapshot(self, *, may_expire: bool = False) -> AsyncIterator[Reader]:
        """Hold the present state. It never expires. O(heads)."""
        await trio.lowlevel.checkpoint()
        self.check_open()
        with closing(Answers(self._state.snapshot())) as answer:
            yield _Snapshot(self, answer, self._writes)

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
        self.check_open()
        async with self._write_turn:
            writes: list[Request[Any]] = []
            transaction = ThreadTransaction(self._db, _PATH, partial(self._reply, writes))

            async def call(function: Callable[[SyncTransaction], Any]) -> Any:
                return function(transaction)

            self._db.execute("BEGIN")
            end = "ROLLBACK"
            try:
                yield AwaitedTransaction(call)
                end = "COMMIT"
            finally:
                transaction.release()
                if self._db.in_transaction:
                    self._db.execute(end)
            self._writes += 1
            for request in writes:
                self._state.write(request)

    @asynccontextmanager
    async def rehearsal(self) -> AsyncIterator[MemoryStore]:
        """Return the store itself: nothing is written before the commit."""
        await trio.lowlevel.checkpoint()
        yield self

    async def size_bytes(self) -> int:
        """Return the sum of all values."""
        await trio.lowlevel.checkpoint()
        self.check_open()
        return sum(len(value) for value in self._state.values)

    def check_open(self) -> None:
        """Raise ClosedError after `close`."""
        if self._is_closed:
            raise ClosedError("the log is closed")

    def _reply(self, writes: list[Request[Any]], _: ThreadTransaction, request: Request[Any]) -> Any:
        if type(request) in WRITES:
            writes.append(request)
            return None
        return Answers(self._state)(request)


class _Snapshot:
    def __init__(self, store: MemoryStore, answer: Answers, writes: int) -> None:
        self._store = store
        self._answer = answer
        self._writes = writes

    async def run(self, plan: Plan[T]) -> T:
        await trio.lowlevel.checkpoint()
        self._store.check_open()
        return run_plan(plan, self._answer)

    async def query(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        # While a transaction is open, the tables show its changes.
        self._store.check_open()
        async with self._store._write_turn:
            if self._store._writes != self._writes:
                raise SnapshotExpired("the tables in memory have changed since the snapshot", hint="take a new snapshot")
            with Translating(_PATH):
                return query(self._store._db, statement, parameters)
