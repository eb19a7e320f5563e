"""A transaction, and the plans and calls within it, in the thread of the connection that writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ...plan import Plan, Request
from ..statements import ASKED_FOR_APPLICATIONS
from ..sync_transaction import ThreadTransaction
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
            # A COMMIT that fails for lack of space leaves the transaction open.
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
    """Roll back, unless an error such as the disk's has already done so."""
    if db.in_transaction:
        db.execute("ROLLBACK")


def in_transaction(db: BoundedConnection, path: Path, tail: WriterCache, function: Callable[[ThreadTransaction], T]) -> T:
    """Call a function within the transaction that is open."""
    transaction = ThreadTransaction(db, path, partial(reply, db, tail))
    try:
        return function(transaction)
    finally:
        transaction.release()


def reply(db: BoundedConnection, tail: WriterCache, transaction: ThreadTransaction, request: Request[Any]) -> Any:
    """Answer a request within the transaction. The cache answers nearly all requests of a commit."""
    if (found := tail.known(request)) is not UNKNOWN:
        return found
    if not isinstance(request, ASKED_FOR_APPLICATIONS):
        transaction.release()
    if (before := tail.missing(request)) is not None:
        tail.learn(before, answer(db, before))
        if (found := tail.known(request)) is not UNKNOWN:
            return found
    found = answer(db, request)
    tail.learn(request, found)
    return found
