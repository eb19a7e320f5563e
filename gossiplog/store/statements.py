"""An application's statements on a log's own SQLite connection: how they are written, and how they are kept from harming the log."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from ..errors import CommitError, LocalProtocolError, StatementError
from ..log.requests import ReadLeaves, ReadLinksDown, ReadLinksUp, ReadPositions, ReadValues

T = TypeVar("T")

ASKED_FOR_APPLICATIONS = (ReadLeaves, ReadValues, ReadPositions, ReadLinksDown, ReadLinksUp)
"""The requests of `tx.get` and `tx.is_ancestor`, between two statements of an application: the check allows them and can stay."""

_TOKEN = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*` | \[[^]]*\]  # strings and quoted names
      | --[^\n]* | /\*.*?(?:\*/|\Z)                               # comments
      | [A-Za-z_\x80-\U0010ffff][\w$]* | \$(\d+)""",
    re.VERBOSE | re.DOTALL,
)
_DENIED = {sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT, sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA}
_READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_CHANGES = {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE}
_VIRTUAL = ("fts3", "fts4", "fts4aux", "fts5", "fts5vocab", "rtree", "rtree_i32")
"""Modules whose virtual tables an application may make: they store everything in tables beside them, within the transaction."""
_PRAGMAS_OF_VIRTUAL = {"data_version", "page_size"}
"""Such a module uses these when it first opens or reads a table. Without an argument they change nothing."""
_OF_THE_STATEMENT = {
    0,  # Python's own errors, such as a value that has no type in SQLite
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_MISUSE,
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_RANGE,
}
"""Codes of errors that are the statement's fault, and undo nothing but that statement."""


@lru_cache(maxsize=1024)
def may_roll_back(statement: str) -> bool:
    """Say whether a statement might end the transaction unseen by SQLite's authorizer, as `INSERT OR ROLLBACK` does."""
    return "rollback" in statement.lower() and any(found[0].lower() == "rollback" for found in _TOKEN.finditer(statement))


@lru_cache(maxsize=1024)
def is_renaming_to_ours(statement: str) -> bool:
    """Say whether a statement might give a table a name of the log's. SQLite's authorizer does not see the new name in an ALTER.

    A virtual table called `gossiplog` would make tables beside it whose names begin with `gossiplog_`.
    """
    lower = statement.lower()
    return "gossiplog" in lower and {"alter", "rename"} <= {found[0] for found in _TOKEN.finditer(lower)}


@lru_cache(maxsize=1024)
def count_parameters(statement: str) -> int:
    """Return the highest number of a parameter like `$1` outside of strings, quoted names and comments; 0 if there is none."""
    return max((int(found[1]) for found in _TOKEN.finditer(statement) if found[1]), default=0) if "$" in statement else 0


def by_name(statement: str, parameters: Sequence[Any]) -> Sequence[Any] | Mapping[str, Any]:
    """Return parameters as Python's sqlite3 expects them, which takes the `1` of `$1` for a name.

    Raises:
        StatementError: There are more parameters than the statement names, or fewer.
    """
    count = count_parameters(statement)
    if not count or not isinstance(parameters, Sequence):
        return parameters
    if len(parameters) != count:
        raise StatementError(f"the application's statement names {count} parameters, and was given {len(parameters)}")
    return {str(number): value for number, value in enumerate(parameters, 1)}


class ApplicationTables:
    """Executes the application's statements, and refuses everything that could harm the log or end the transaction.

    The check is SQLite's authorizer. It stays on the connection from the first statement until `release`, because setting it makes SQLite
    prepare all statements again. Call `release` before executing statements of the log's own. The check also sees what a virtual table does
    inside. An R-tree prepares its INSERTs even when it is read, so for queries the authorizer allows changes of rows, and `query_only`
    prevents them when they are executed.

    Args:
        db: Within a transaction of the log, or with `reads_only`, one that reads.
    """

    def __init__(self, db: sqlite3.Connection, *, reads_only: bool = False) -> None:
        self._db = db
        self._reads_only = reads_only
        self._refused: str | None = None
        self._is_checking = False
        self._was_query_only = False

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute one statement and return its rows.

        Raises:
            LocalProtocolError: The statement is refused.
            StatementError: The statement or its parameters are wrong.
            CommitError: The statement ended the transaction.
            sqlite3.Error: Anything else.
        """
        return self._check(statement, lambda: self._db.execute(statement, by_name(statement, parameters)).fetchall())

    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute one statement for each row of parameters. Raises as `execute`."""
        self._check(statement, lambda: self._db.executemany(statement, (by_name(statement, row) for row in rows)))

    def release(self) -> None:
        """Take the check off the connection."""
        if self._is_checking:
            self._is_checking = False
            self._db.set_authorizer(None)
            if self._reads_only:
                self._db.execute(f"PRAGMA query_only = {self._was_query_only:d}")

    def _check(self, statement: str, execute: Callable[[], T]) -> T:
        if may_roll_back(statement):
            hint = "leave it out: what a statement that fails has done is undone, and so is what apply does that raises"
            raise LocalProtocolError("the statement says ROLLBACK, and the transaction belongs to the log", hint=hint)
        if is_renaming_to_ours(statement):
            raise LocalProtocolError("apply may not rename anything to a name that begins with gossiplog: those belong to the log")
        self._begin_checking()
        try:
            return execute()
        except sqlite3.Error as error:
            if self._refused is not None:
                raise LocalProtocolError(self._refused) from error
            code = getattr(error, "sqlite_errorcode", 0)
            if self._reads_only and code & 0xFF == sqlite3.SQLITE_READONLY:
                raise LocalProtocolError(f"a query may not write: {error}") from error
            if code == sqlite3.SQLITE_CORRUPT_VTAB:
                hint = "a virtual table was to delete a row that it does not have; `log.rebuild()` rebuilds the application's tables"
                raise StatementError(f"the application's statement: {error}", hint=hint) from error
            is_of_the_statement = (code & 0xFF) in _OF_THE_STATEMENT
            if is_of_the_statement and not (self._reads_only or self._db.in_transaction):
                # A trigger or a constraint of a table that was made elsewhere may do this.
                message = f"the application's statement ended the transaction, nothing of which is kept: {error}"
                raise CommitError(message, hint="leave ROLLBACK out of the tables' constraints and triggers") from error
            if is_of_the_statement:
                raise StatementError(f"the application's statement: {error}") from error
            raise
        except (OverflowError, UnicodeError) as error:
            raise StatementError(f"the application's statement: {error}") from error

    def _begin_checking(self) -> None:
        self._refused = None
        if self._is_checking:
            return
        if self._reads_only:
            self._was_query_only = bool(self._db.execute("PRAGMA query_only").fetchone()[0])
            self._db.execute("PRAGMA query_only = 1")
        self._is_checking = True
        self._db.set_authorizer(self._authorize)

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action in _READS or (self._reads_only and action in _CHANGES):
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_PRAGMA and first in _PRAGMAS_OF_VIRTUAL and second is None:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_CREATE_VTABLE and (second or "").lower() not in _VIRTUAL and not self._reads_only:
            self._refused = f"apply may not make a virtual table of {second}, only of {', '.join(_VIRTUAL)}"
            return sqlite3.SQLITE_DENY
        names = [name for name in (first, second) if name is not None]
        # Not even a temporary table may have such a name: it would hide the log's own table.
        if self._reads_only or action in _DENIED or any(name.lower().startswith("gossiplog_") for name in names):
            name = names[0] if names else "this statement"
            self._refused = (
                f"a query may only read, not touch {name}" if self._reads_only else f"apply may not touch {name}: it belongs to the log"
            )
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK


def query(db: sqlite3.Connection, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Execute one statement that only reads, and return its rows. Raises as `ApplicationTables.execute`."""
    tables = ApplicationTables(db, reads_only=True)
    try:
        return tables.execute(statement, parameters)
    finally:
        tables.release()
