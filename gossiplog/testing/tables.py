"""An application's tables in SQLite in memory, and the transaction that its `apply` gets. No thread, event loop or file is used."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..entry.message_id import decode_id
from ..errors import LocalProtocolError
from ..log.application import is_coroutine_function
from ..store.statements import ApplicationTables, query
from .membership import Judge, Judged

if TYPE_CHECKING:
    from ..entry.message import Entry

_Rows = list[tuple[Any, ...]]

_UNREPEATABLE = (
    (re.compile(r"\bcurrent_(?:timestamp|date|time)\b", re.IGNORECASE), "the clock"),
    (re.compile(r"\b(?:date|time|datetime|julianday|strftime|unixepoch)\s*\(\s*(?:\)|[^()]*'now')", re.IGNORECASE), "the clock"),
    (re.compile(r"\brandom(?:blob)?\s*\(", re.IGNORECASE), "chance"),
)
"""What a statement may not ask the database for: replicas would get different answers."""


class Aborted(BaseException):
    """A commit is interrupted, as by a broken connection or by cancellation. No `except Exception` of an application catches it."""


class Unrepeatable(BaseException):
    """The application asked for something that differs between replicas."""

    def __init__(self, what: str, where: str) -> None:
        super().__init__(f"apply asks {what}: {where}")
        self.what = what


class Known:
    """The entries of one replica, with their ancestors.

    Args:
        judge: Judges entries by the rules of members; None in a log without members.
    """

    def __init__(self, judge: Judge | None = None) -> None:
        self.entries: dict[str, Entry] = {}
        self._judge = judge
        self._by_key: dict[bytes, Entry] = {}
        self._ancestors: dict[str, frozenset[str]] = {}

    def take(self, entries: Sequence[Entry]) -> Judged:
        """Add entries, parents first, and return the outcome. Entries that do not belong to the log are left out."""
        taken = Judged(entries, entries) if self._judge is None else self._judge.take(entries)
        for entry in taken.entries:
            parents = entry.message.parents
            self.entries[entry.id] = self._by_key[entry.key] = entry
            self._ancestors[entry.id] = frozenset(parents).union(*(self._ancestors[parent] for parent in parents))
        return taken

    def shown(self) -> dict[str, Entry]:
        """Return the entries that an application gets, by id, ascending."""
        entries = [self.entries[id] for id in sorted(self.entries)]
        return {entry.id: entry for entry in (entries if self._judge is None else self._judge.counting(entries))}

    def get(self, id: str) -> Entry | None:
        """Return an entry; None if the replica does not have it."""
        return self._by_key.get(decode_id(id))

    def is_ancestor(self, a: str, b: str) -> bool:
        """Return whether `a` is an ancestor of `b`; False if the replica lacks either of them."""
        return all(self.get(id) is not None for id in (a, b)) and a in self._ancestors[b]


class Tables:
    """One replica's tables. `commit` runs an application's function in a transaction; `query` reads what was committed."""

    def __init__(self, known: Known, *, is_reversed: bool = False) -> None:
        self._known = known
        self._db = sqlite3.connect(":memory:", isolation_level=None)
        if is_reversed:
            # Rows that are read without ORDER BY then come in another order, as any database may return them.
            self._db.execute("PRAGMA reverse_unordered_selects = ON")

    def close(self) -> None:
        """Close the database, and lose the tables."""
        self._db.close()

    def query(self, sql: str, *parameters: Any) -> _Rows:
        """Return the rows of a SELECT."""
        return query(self._db, sql, parameters)

    def commit(self, work: Callable[[CheckedTransaction], object], *, aborted_after: int | None = None) -> None:
        """Run a function in a transaction, which is rolled back if the function raises.

        Args:
            aborted_after: Before that, run it up to this number of statements, or to the commit, and roll back.
        """
        if aborted_after is not None:
            with suppress(Aborted):
                self._attempt(work, aborted_after, "ROLLBACK")
        self._attempt(work, None, "COMMIT")

    def _attempt(self, work: Callable[[CheckedTransaction], object], aborted_after: int | None, end: str) -> None:
        tables = ApplicationTables(self._db)
        self._db.execute("BEGIN")
        try:
            work(CheckedTransaction(self._db, tables, self._known, aborted_after))
        except BaseException:
            end = "ROLLBACK"
            raise
        finally:
            tables.release()
            self._db.execute(end)

    def contents(self, shown: Sequence[str]) -> dict[str, list[str]]:
        """Return the rows of the given queries, or of all tables if there are none, sorted."""
        if not shown:
            # The shadow tables of a virtual table are left out: how its index is divided depends on the order of inserts.
            tables = (
                "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type IN ('table', 'virtual') AND name NOT LIKE 'sqlite_%'"
            )
            names = [name for (name,) in self._db.execute(tables)]
            return {name: sorted(map(repr, self.query(f'SELECT * FROM "{name}"'))) for name in sorted(names)}
        return {sql: sorted(map(repr, self.query(sql))) for sql in shown}


class CheckedTransaction:
    """The transaction that plain functions of an application get; coroutine functions get an `_AsyncTransaction` around it."""

    def __init__(self, db: sqlite3.Connection, tables: ApplicationTables, known: Known, aborted_after: int | None) -> None:
        self._db = db
        self._tables = tables
        self._known = known
        self._left = aborted_after

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> _Rows:
        """Execute one statement and return its rows."""
        self._count(statement)
        return self._tables.execute(statement, parameters)

    fetch = execute

    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute one statement for each row of parameters."""
        self._count(statement)
        self._tables.execute_many(statement, rows)

    def is_ancestor(self, a: str, b: str) -> bool:
        """Return whether `a` is an ancestor of `b`."""
        return self._known.is_ancestor(a, b)

    def get(self, id: str) -> Entry | None:
        """Return an entry; None if the log does not have it."""
        return self._known.get(id)

    def undoing(self, work: Callable[[], None]) -> None:
        """Run a function, and undo what it wrote if it raises."""
        self._control("SAVEPOINT attempt")
        try:
            work()
        except Exception:
            self._control("ROLLBACK TO attempt")
            raise
        finally:
            self._control("RELEASE attempt")

    def call(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a function of the application, which may be a coroutine function, with this transaction as its last argument."""
        if not is_coroutine_function(function):
            function(*args, self)
            return
        coroutine = function(*args, _AsyncTransaction(self))
        try:
            coroutine.send(None)
        except StopIteration:
            return
        coroutine.close()
        raise LocalProtocolError("apply awaits something other than its transaction", hint="it may await only methods of tx")

    def _control(self, statement: str) -> None:
        self._tables.release()
        self._db.execute(statement)

    def _count(self, statement: str) -> None:
        asked = _asks(statement)
        if asked is not None:
            raise Unrepeatable(asked, " ".join(statement.split()))
        if self._left is None:
            return
        if self._left == 0:
            raise Aborted
        self._left -= 1


class _AsyncTransaction:
    """The same transaction with coroutine methods, which never wait."""

    def __init__(self, transaction: CheckedTransaction) -> None:
        self._transaction = transaction

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._transaction, name)

        async def call(*args: Any) -> Any:
            return method(*args)

        return call


@lru_cache(maxsize=1_000)
def _asks(statement: str) -> str | None:
    """Return what a statement asks for that differs between replicas; None if nothing."""
    return next((what for pattern, what in _UNREPEATABLE if pattern.search(statement)), None)
