"""What runs in the thread of the connection that writes: a transaction, and the plans and calls within it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ...plan import Call, Plan, Request, run_plan
from ..statements import ASKED_FOR_APPLICATIONS, ApplicationTables
from ..writer_cache import UNKNOWN, WriterCache
from .answers import answer
from .bounds import BoundedConnection
from .errors import Translating

T = TypeVar("T")


def write(db: BoundedConnection, plan: Plan[T], path: Path, tail: WriterCache) -> T:
    """Run a plan as one transaction."""
    with Translating(path):
        begin(db)
        try:
            result = in_transaction(db, path, tail, lambda transaction: transaction.run(plan))
            commit(db)
        except BaseException:
            tail.forget()
            # A COMMIT that failed for want of space leaves the transaction open.
            rollback(db)
            raise
        return result


def begin(db: sqlite3.Connection) -> None:
    """Begin to write."""
    db.execute("BEGIN IMMEDIATE")


def commit(db: sqlite3.Connection) -> None:
    """Commit."""
    db.execute("COMMIT")


def rollback(db: sqlite3.Connection) -> None:
    """Roll back, unless an error, as of the disk, has done so already."""
    if db.in_transaction:
        db.execute("ROLLBACK")


def in_transaction(db: BoundedConnection, path: Path, tail: WriterCache, function: Callable[[_SyncTransaction], T]) -> T:
    """Call a function within the transaction that is open."""
    transaction = _SyncTransaction(db, path, tail)
    try:
        return function(transaction)
    finally:
        transaction.release()


class _SyncTransaction:
    """The same as plain calls in the writer's thread; see `gossiplog.SyncTransaction`."""

    def __init__(self, db: BoundedConnection, path: Path, tail: WriterCache) -> None:
        self._db = db
        self._path = path
        self._tail = tail
        self._tables = ApplicationTables(db)

    def run(self, plan: Plan[T]) -> T:
        with Translating(self._path):
            return run_plan(plan, self._answer)

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with Translating(self._path):
            return self._tables.execute(statement, parameters)

    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        with Translating(self._path):
            self._tables.execute_many(statement, rows)

    def begin_attempt(self) -> None:
        self._control("SAVEPOINT gossiplog_attempt")

    def undo_attempt(self) -> None:
        self._control("ROLLBACK TO gossiplog_attempt")

    def release(self) -> None:
        self._tables.release()

    def _control(self, statement: str) -> None:
        with Translating(self._path):
            self._tables.release()
            self._db.execute(statement)

    def _answer(self, request: Request[Any]) -> Any:
        # Nearly all that a commit asks is remembered, and each step is noticed.
        if (found := self._tail.known(request)) is not UNKNOWN:
            return found
        if isinstance(request, Call):
            return request.function(self)
        if not isinstance(request, ASKED_FOR_APPLICATIONS):
            self._tables.release()
        if (before := self._tail.missing(request)) is not None:
            self._tail.learn(before, answer(self._db, before))
            if (found := self._tail.known(request)) is not UNKNOWN:
                return found
        found = answer(self._db, request)
        self._tail.learn(request, found)
        return found
