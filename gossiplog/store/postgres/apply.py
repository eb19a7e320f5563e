"""An application's statements within the log's transaction, and how they are kept from harming the log."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import asyncpg

from ...errors import CommitError, LocalProtocolError, StatementError
from .connection import Connection
from .errors import is_lost

T = TypeVar("T")

_REFUSED = frozenset(
    (
        *("begin", "start", "commit", "end", "rollback", "abort", "savepoint", "release", "prepare"),
        *("set", "reset", "discard", "listen", "unlisten", "deallocate"),
    )
)
"""First words of statements that would end the transaction, or leave the connection changed for its next user."""

_OF_THE_SERVER = ("40", "42501", "53", "55P03", "57", "58", "XX")
"""Codes of errors that any statement could have met: a missing right, no space, a time-out, a fault of the server's."""

_CHECK = """
    SELECT coalesce((SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_xact_user_tables WHERE schemaname = $1), 0)::bigint,
        (SELECT count(*) FROM pg_class WHERE relnamespace = $2),
        (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation = ANY($3::oid[])
            AND mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock'))"""
"""Counts the rows that this transaction has changed in the log's tables, the objects of its schema, and the locks for changing tables."""


class ApplicationStatements:
    """Executes the application's statements on the connection of a transaction.

    Each statement has a savepoint, so that the application can handle a failure. After each, the server is asked whether the statement
    touched the log. That takes four round trips. It guards against mistakes; the server itself refuses what the role may not do.
    """

    def __init__(self, connection: Connection, schema: str, namespace: int, relations: Sequence[int]) -> None:
        self._connection = connection
        self._schema = schema
        self._namespace = namespace
        self._relations = list(relations)
        # The savepoint of an attempt is sent with its first statement, so an attempt takes no round trip of its own.
        self._is_begun = self._is_marked = False

    async def execute(self, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Execute a statement and return its rows.

        Raises:
            LocalProtocolError: The statement ends the transaction or touches the log.
            StatementError: The server refused it; the transaction goes on without it.
            CommitError: Others have locked the application's tables for too long; the transaction is over.
        """
        rows = await self._guard(statement, lambda: self._connection.fetch(statement, *parameters))
        return list(map(tuple, rows))

    async def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a statement for each row of parameters. Raises as `execute`."""
        await self._guard(statement, lambda: self._connection.executemany(statement, rows))

    def begin_attempt(self) -> None:
        """Mark the state to which `undo_attempt` returns."""
        self._is_begun = True

    async def undo_attempt(self) -> None:
        """Undo what was executed since `begin_attempt`."""
        if not self._is_begun and self._is_marked:
            self._is_marked = False
            await self._connection.execute("ROLLBACK TO SAVEPOINT gossiplog_attempt; RELEASE SAVEPOINT gossiplog_attempt")
        self._is_begun = False

    def _mark(self) -> str:
        """Return the statements that end the last attempt and begin the next one, if one is due."""
        if not self._is_begun:
            return ""
        before = "RELEASE SAVEPOINT gossiplog_attempt; " if self._is_marked else ""
        self._is_begun, self._is_marked = False, True
        return f"{before}SAVEPOINT gossiplog_attempt; "

    async def _guard(self, statement: str, execute: Callable[[], Awaitable[T]]) -> T:
        _refuse_control(statement)
        before = await self._look()
        # The planner may scan the application's tables, but not ours (`_SETTINGS` in connection.py).
        await self._connection.execute(f"{self._mark()}SAVEPOINT gossiplog_apply; SET LOCAL enable_seqscan = on")
        try:
            result = await execute()
            after = await self._look()
            if after != before:
                raise LocalProtocolError("apply may not touch the log's own schema: it belongs to the log")
        except BaseException as error:
            if not self._connection.is_closed():
                await self._connection.execute("ROLLBACK TO SAVEPOINT gossiplog_apply; RELEASE SAVEPOINT gossiplog_apply")
            if isinstance(error, (asyncpg.PostgresError, asyncpg.InterfaceError)) and _is_of_statement(error, self._connection):
                raise _refused(statement, error) from error
            if isinstance(error, asyncpg.LockNotAvailableError):
                message = f"apply waited too long for what others hold of the application's tables: {error}"
                raise CommitError(message, hint="nothing was stored; raise lock_timeout in the URL if necessary") from error
            raise
        await self._connection.execute("RELEASE SAVEPOINT gossiplog_apply; SET LOCAL enable_seqscan = off")
        return result

    async def _look(self) -> tuple[Any, ...]:
        return tuple(await self._connection.fetchrow(_CHECK, self._schema, self._namespace, self._relations))


async def query(connection: Connection, statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Execute a statement that only reads, in a transaction that refuses anything else.

    Raises:
        LocalProtocolError: The statement does more than read.
        StatementError: The server refused it.
    """
    _refuse_control(statement)
    await connection.execute("SET LOCAL enable_seqscan = on")
    try:
        return list(map(tuple, await connection.fetch(statement, *parameters)))
    except asyncpg.ReadOnlySQLTransactionError as error:
        raise LocalProtocolError(f"a query may not write: {error}") from error
    except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        if _is_of_statement(error, connection):
            raise _refused(statement, error) from error
        raise


def _refuse_control(statement: str) -> None:
    word = _first_word(statement)
    if word in _REFUSED:
        raise LocalProtocolError(f"apply may not touch {word.upper()}: the transaction belongs to the log")


def _is_of_statement(error: BaseException, connection: Connection) -> bool:
    """Tell whether the error is the statement's rather than the connection's or the server's.

    asyncpg's own errors have no code. They are about wrong parameters or a closed connection.
    """
    is_ours = isinstance(error, asyncpg.InterfaceError) and (isinstance(error, ValueError) or not connection.is_closed())
    if is_lost(error) and not is_ours:
        return False
    return not (getattr(error, "sqlstate", None) or "").startswith(_OF_THE_SERVER)


def _refused(statement: str, error: BaseException) -> StatementError:
    is_question = isinstance(error, asyncpg.PostgresSyntaxError) and "?" in statement
    hint = "PostgreSQL's parameters are written $1, $2 and so on, which SQLite understands as well" if is_question else None
    return StatementError(f"the application's statement: {error}", hint=hint)


_BLANK = re.compile(r"[\s;]+|--[^\n]*")
_WORD = re.compile(r"\w+")


def _first_word(statement: str) -> str:
    """Return the word that a statement begins with, in lower case, after blanks and comments."""
    at = 0
    while True:
        blank = _BLANK.match(statement, at)
        if blank is not None:
            at = blank.end()
        elif statement.startswith("/*", at):
            at = _skip_comment(statement, at)
        else:
            word = _WORD.match(statement, at)
            return word[0].lower() if word is not None else ""


def _skip_comment(statement: str, at: int) -> int:
    """Return the end of the comment that begins at `at`. Comments nest."""
    depth = 0
    for mark in re.finditer(r"/\*|\*/", statement[at:]):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return at + mark.end()
    return len(statement)
