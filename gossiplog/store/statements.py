"""An application's statements on a SQLite connection that is the log's: how they are written, and what keeps them from harming the log."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from ..errors import CommitError, LocalProtocolError, StatementError
from ..log.requests import ReadLeaves, ReadLinksDown, ReadLinksUp, ReadPositions, ReadValues

__all__ = ["ASKED_FOR_APPLICATIONS", "ApplicationTables", "number_parameters"]

T = TypeVar("T")

ASKED_FOR_APPLICATIONS = (ReadLeaves, ReadValues, ReadPositions, ReadLinksDown, ReadLinksUp)
"""What `tx.get` and `tx.is_ancestor` read between two statements of an application; its check allows that, and need not be released."""

_TOKEN = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*` | \[[^]]*\]  # strings and quoted names
      | --[^\n]* | /\*.*?(?:\*/|\Z)                               # comments
      | [A-Za-z_\x80-\U0010ffff][\w$]* | \$(\d+)""",
    re.VERBOSE | re.DOTALL,
)
_DENIED = {sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT, sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA}
_READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
_OF_THE_STATEMENT = {
    0,  # Python's own, as for a value that SQLite has no type for
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_MISUSE,
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_RANGE,
}
"""Codes that are the statement's fault, and leave the transaction as it was before it."""


@lru_cache(maxsize=1024)
def may_roll_back(statement: str) -> bool:
    """Say whether a statement might end the transaction without SQLite's check being asked, as `INSERT OR ROLLBACK` does."""
    return "rollback" in statement.lower() and any(found[0].lower() == "rollback" for found in _TOKEN.finditer(statement))


@lru_cache(maxsize=1024)
def number_parameters(statement: str) -> str:
    """Write `$1`, which is how both databases are asked, as `?1`; strings, quoted names and comments stay as they are."""
    return _TOKEN.sub(lambda found: f"?{found[1]}" if found[1] else found[0], statement) if "$" in statement else statement


class ApplicationTables:
    """Executes the application's statements with everything refused that could harm the log or end the transaction.

    The check stays on the connection from the first statement until `release`, as putting it there has SQLite prepare all statements anew.
    What is the log's own is to be executed after a `release`.

    Args:
        db: In a transaction of the log, or in one that reads.
        reads_only: Refuse all statements but those that read.
    """

    def __init__(self, db: sqlite3.Connection, *, reads_only: bool = False) -> None:
        self._db = db
        self._reads_only = reads_only
        self._refused: str | None = None
        self._is_checking = False

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute one statement and return its rows.

        Raises:
            LocalProtocolError: It is refused.
            StatementError: It is wrong, or its parameters are.
            CommitError: It ended the transaction.
            sqlite3.Error: Anything else.
        """
        return self._check(statement, lambda: self._db.execute(number_parameters(statement), parameters).fetchall())

    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute one statement for each row of parameters. Raises as `execute`."""
        self._check(statement, lambda: self._db.executemany(number_parameters(statement), rows))

    def release(self) -> None:
        """Take the check off the connection."""
        if self._is_checking:
            self._is_checking = False
            self._db.set_authorizer(None)

    def _check(self, statement: str, execute: Callable[[], T]) -> T:
        if may_roll_back(statement):
            hint = "leave it out: what a statement that fails has done is undone, and so is what apply does that raises"
            raise LocalProtocolError("the statement says ROLLBACK, and the transaction belongs to the log", hint=hint)
        if not self._is_checking:
            self._is_checking = True
            self._db.set_authorizer(self._authorize)
        self._refused = None
        try:
            return execute()
        except sqlite3.Error as error:
            if self._refused is not None:
                what = "a query may not write to" if self._reads_only else "apply may not touch"
                raise LocalProtocolError(f"{what} {self._refused}: it belongs to the log") from error
            is_of_the_statement = (getattr(error, "sqlite_errorcode", 0) & 0xFF) in _OF_THE_STATEMENT
            if is_of_the_statement and not (self._reads_only or self._db.in_transaction):
                # Tables that were made elsewhere may have a trigger or a constraint that does this.
                message = f"the application's statement ended the transaction, nothing of which is kept: {error}"
                raise CommitError(message, hint="leave ROLLBACK out of the tables' constraints and triggers") from error
            if is_of_the_statement:
                raise StatementError(f"the application's statement: {error}") from error
            raise

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        if action in _READS:
            return sqlite3.SQLITE_OK
        names = [name for name in (first, second) if name is not None]
        # Not even a temporary table may have such a name: it would hide the log's own.
        if self._reads_only or action in _DENIED or any(name.lower().startswith("gossiplog_") for name in names):
            self._refused = names[0] if names else "this statement"
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK
