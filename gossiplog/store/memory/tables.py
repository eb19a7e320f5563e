"""The application's tables beside a log in memory: a SQLite database in memory, made when it is first asked for."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from ...errors import CommitError
from ..statements import ApplicationTables


class MemoryTables:
    """The tables, and the transaction on them that goes with the log's."""

    def __init__(self) -> None:
        self._db: sqlite3.Connection | None = None
        self._tables: ApplicationTables

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute one statement within the transaction; see `Transaction.execute`."""
        self._begin()
        try:
            return self._tables.execute(statement, parameters)
        except sqlite3.Error as error:
            raise CommitError(f":memory:: {error}") from error

    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute one statement for each row of parameters."""
        self._begin()
        try:
            self._tables.execute_many(statement, rows)
        except sqlite3.Error as error:
            raise CommitError(f":memory:: {error}") from error

    def query(self, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Execute one statement that only reads, between two transactions."""
        tables = ApplicationTables(self._connect(), reads_only=True)
        try:
            return tables.execute(statement, parameters)
        except sqlite3.Error as error:
            raise CommitError(f":memory:: {error}") from error
        finally:
            tables.release()

    def begin_attempt(self) -> None:
        """See `Transaction.begin_attempt`."""
        self._begin()
        self._control("SAVEPOINT gossiplog_attempt")

    def undo_attempt(self) -> None:
        """See `Transaction.undo_attempt`."""
        self._control("ROLLBACK TO gossiplog_attempt")

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
