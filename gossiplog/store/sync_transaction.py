"""A transaction as plain calls in the thread of a SQLite connection, and as calls to any transaction that are awaited elsewhere."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..log.application import SyncTransaction
from ..plan import Call, Plan, Request, run_plan
from .sqlite.errors import Translating
from .statements import ApplicationTables

T = TypeVar("T")


class ThreadTransaction:
    """The log's transaction in the connection's thread; see `SyncTransaction`.

    Args:
        db: The connection with the application's tables, within a transaction.
        path: Named by errors of the database.
        answer: Answers the requests of plans, except for calls of functions.
    """

    def __init__(self, db: sqlite3.Connection, path: Path, answer: Callable[[ThreadTransaction, Request[Any]], Any]) -> None:
        self._db = db
        self._path = path
        self._answer = answer
        self._tables = ApplicationTables(db)

    def run(self, plan: Plan[T]) -> T:
        """See `SyncTransaction.run`."""
        with Translating(self._path):
            return run_plan(plan, self._reply)

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """See `SyncTransaction.execute`."""
        with Translating(self._path):
            return self._tables.execute(statement, parameters)

    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """See `SyncTransaction.execute_many`."""
        with Translating(self._path):
            self._tables.execute_many(statement, rows)

    def begin_attempt(self) -> None:
        """See `SyncTransaction.begin_attempt`."""
        self._control("SAVEPOINT gossiplog_attempt")

    def undo_attempt(self) -> None:
        """See `SyncTransaction.undo_attempt`."""
        self._control("ROLLBACK TO gossiplog_attempt")

    def release(self) -> None:
        """Take the check of the application's statements off the connection, before a statement of the log's own is executed."""
        self._tables.release()

    def _control(self, statement: str) -> None:
        with Translating(self._path):
            self._tables.release()
            self._db.execute(statement)

    def _reply(self, request: Request[Any]) -> Any:
        return request.function(self) if isinstance(request, Call) else self._answer(self, request)


class AwaitedTransaction:
    """A `Transaction` that calls one in another thread.

    Args:
        call: Calls a function with a `SyncTransaction`, or with a transaction of an asyncio loop whose methods it awaits, in its thread.
    """

    def __init__(self, call: Callable[[Callable[[Any], Any]], Awaitable[Any]]) -> None:
        self._call = call
        self._is_beginning = False

    async def run(self, plan: Plan[T]) -> T:
        """See `Transaction.run`."""
        result: T = await self._call(lambda transaction: transaction.run(plan))
        return result

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """See `Transaction.execute`."""
        rows: list[tuple[Any, ...]] = await self._attempt(lambda transaction: transaction.execute(statement, parameters))
        return rows

    async def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """See `Transaction.execute_many`."""
        await self._attempt(lambda transaction: transaction.execute_many(statement, rows))

    async def begin_attempt(self) -> None:
        """See `Transaction.begin_attempt`. The attempt begins with its first statement, in the same hop."""
        self._is_beginning = True

    async def undo_attempt(self) -> None:
        """See `Transaction.undo_attempt`."""
        if not self._is_beginning:
            await self._call(lambda transaction: transaction.undo_attempt())
        self._is_beginning = False

    async def _attempt(self, execute: Callable[[SyncTransaction], Any]) -> Any:
        begins, self._is_beginning = self._is_beginning, False

        def begin_and_execute(transaction: SyncTransaction) -> Any:
            if begins:
                transaction.begin_attempt()
            return execute(transaction)

        return await self._call(begin_and_execute)
