"""Plans on a connection: a snapshot to read from, and the one transaction that writes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeVar

from ...log.fsck_requests import ClearDerived
from ...log.requests import Row, WriteApplication, WriteEntries
from ...plan import Call, Plan, Request, run_plan_async
from ..writer_cache import UNKNOWN, WriterCache
from .answers import LogState, answer, catch_up
from .apply import ApplicationStatements
from .connection import Connection
from .errors import DATABASE_ERRORS, DatabaseFailed, translate_uncommitted
from .url import PostgresUrl
from .writes import Statement, as_script, is_write, statements_of

T = TypeVar("T")

NOTHING_KNOWN = LogState(-1, -1, -1)
RETURN_S = 0.003
"""A process that writes again so soon after its last commit is writing without a pause, and takes turns with others that do."""
TURN_S = 0.05
"""The length of a turn.

Handing the lock on at each commit doubles the cost of an append: the next process has to be woken, finds cold processor caches, and must
read what the others wrote. Measured with four processes on two cores: 3.1 ms of CPU, client and server together, instead of 1.6.
"""


@dataclass(frozen=True, slots=True)
class WriterLocks:
    """The advisory locks that a writer takes, in this order, until the end of its transaction: the two halves of each key.

    Attributes:
        guests: Shared by processes that have not just written.
        queue: Held by the process that is next; see `begin_turn`.
        log: Held by the process that writes.
        listeners: Shared by all processes that listen. If there are none, a writer takes it: a process that began to listen before the
            commit would not be notified of it.
    """

    guests: tuple[int, int]
    queue: tuple[int, int]
    log: tuple[int, int]
    listeners: tuple[int, int]


class Fetcher:
    """`fetch(statement, *parameters)` on one connection, with the log's schema in place of `{log}`. It raises DatabaseFailed."""

    __slots__ = ("_connection", "schema")

    def __init__(self, connection: Connection, schema: str) -> None:
        self._connection = connection
        self.schema = schema

    async def __call__(self, statement: str, *parameters: Any) -> list[Any]:
        """Execute a statement and return its rows."""
        try:
            rows: list[Any] = await self._connection.fetch(_fill(statement, self.schema), *parameters)
        except DATABASE_ERRORS as error:
            raise DatabaseFailed(error) from error
        return rows

    async def execute(self, script: str) -> None:
        """Execute statements without parameters, in one round trip."""
        try:
            await self._connection.execute(script.replace("{log}", self.schema))
        except DATABASE_ERRORS as error:
            raise DatabaseFailed(error) from error


@lru_cache(maxsize=4096)
def _fill(statement: str, schema: str) -> str:
    # The names of `sql.py` for the two tables that are one here.
    return re.sub(r"\{log\}\.(leaves|positions)\b", "{log}.entries", statement).replace("{log}", schema)


def begin_reading(settings: str) -> str:
    """Return the script that begins a transaction whose statements all see what the first one sees."""
    return f"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; {settings}"


def begin_snapshot(settings: str) -> str:
    """Return the script that takes a snapshot, with a savepoint to which to return after an error."""
    return f"{begin_reading(settings)}SELECT 1; SAVEPOINT gossiplog_start"


async def run_reading(fetch: Fetcher, plan: Plan[T]) -> T:
    """Run a plan that reads."""
    return await run_plan_async(plan, partial(answer, fetch))


def begin_writing(settings: str, lock: tuple[int, int]) -> str:
    """Return the script that begins a transaction and waits until no other process has one.

    Each later statement then sees all commits of others, which it would not under a stricter isolation level.
    """
    return f"{_begin(settings)}SELECT pg_advisory_xact_lock({_halves(lock)})"


def begin_as_guest(settings: str, locks: WriterLocks) -> str:
    """Return the script of `begin_writing` for a process that has not just written; it takes the guests' lock before it waits."""
    return f"{_begin(settings)}SELECT pg_advisory_xact_lock_shared({_halves(locks.guests)}), pg_advisory_xact_lock({_halves(locks.log)})"


def begin_turn(settings: str, locks: WriterLocks) -> str:
    """Return the script of `begin_writing` for a process that has just written, which lets others that write without a pause have a turn.

    Such processes queue at a lock of their own, and the first in the queue leaves the present writer `TURN_S` before it waits for the
    log's lock. So they get turns in the order in which they came. A guest does not queue, and nobody queues for a guest, because it will
    not write again at once.
    """
    # The guests' lock is taken only to see whether there are guests, and released at once.
    must_queue = f"""CASE WHEN pg_try_advisory_xact_lock({_halves(locks.log)}) THEN false
        WHEN pg_try_advisory_lock({_halves(locks.guests)}) THEN pg_advisory_unlock({_halves(locks.guests)}) ELSE false END"""
    queue = f"SELECT pg_advisory_xact_lock({_halves(locks.queue)}), pg_sleep({TURN_S}) WHERE {must_queue}"
    return f"{_begin(settings)}{queue}; SELECT pg_advisory_xact_lock({_halves(locks.log)})"


def _begin(settings: str) -> str:
    return f"BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE; {settings}"


def _halves(lock: tuple[int, int]) -> str:
    return f"{lock[0]}, {lock[1]}"


class _SyncCalls:
    """A `SyncTransaction` for an application's plain functions. They run in a thread beside the loop, and each call waits for the loop."""

    def __init__(self, writing: WriteTransaction) -> None:
        self.begin_attempt = writing.begin_attempt
        self._writing = writing
        self._loop = asyncio.get_running_loop()

    def run(self, plan: Plan[T]) -> T:
        result: T = self._wait(self._writing.run(plan))
        return result

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._wait(self._writing.execute(statement, parameters))
        return rows

    def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._wait(self._writing.execute_many(statement, rows))

    def undo_attempt(self) -> None:
        self._wait(self._writing.undo_attempt())

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


class WriteTransaction:
    """An open transaction, which has the log to itself.

    Writes of a plan are sent only when something must be read, or with the COMMIT. So a single append takes three round trips: to begin, to
    see whether another process has written, and to write and commit.

    Attributes:
        before: The state of the log at its beginning.
        is_heard: Whether another process may be listening for its commit.
        last: The last entry that was written; None if there was none.
        is_committing: Whether COMMIT was sent. An error may then hide that it was carried out.
        has_executed: Whether the application executed a statement.
    """

    def __init__(self, connection: Connection, url: PostgresUrl, tail: WriterCache, application: ApplicationStatements) -> None:
        self.connection = connection
        self.before = NOTHING_KNOWN
        self.is_heard = True
        self.last: Row | None = None
        self.is_committing = False
        self._application = application
        self.has_executed = False
        self._fetch = Fetcher(connection, url.quoted_schema)
        self._location = url.location
        self._sync = _SyncCalls(self)
        self._tail = tail
        self._unsent: list[Statement] = []
        self._is_rebuilt = False

    async def begin(self, known: LogState, listener_lock: tuple[int, int]) -> None:
        """Learn what others have written since `known`, and whether any of them listens, after the script that begins."""
        with self._translated():
            self.before, self.is_heard = await catch_up(self._fetch, self._tail, known, listener_lock)

    async def run(self, plan: Plan[T]) -> T:
        """Run a plan that reads and writes."""
        with self._translated():
            return await run_plan_async(plan, self._answer)

    async def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement of the application's. This and the methods below raise as `ApplicationStatements.execute`."""
        await self._begin_executing()
        with self._translated(DATABASE_ERRORS):
            return await self._application.execute(statement, parameters)

    async def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a statement of the application's for each row of parameters."""
        await self._begin_executing()
        with self._translated(DATABASE_ERRORS):
            await self._application.execute_many(statement, rows)

    def begin_attempt(self) -> None:
        """Mark the state to which `undo_attempt` returns."""
        self._application.begin_attempt()

    async def undo_attempt(self) -> None:
        """Undo what the application executed since its attempt began."""
        with self._translated(DATABASE_ERRORS):
            await self._application.undo_attempt()

    async def commit(self) -> LogState:
        """Send the remaining writes and commit; return the state after it.

        Raises:
            DatabaseFailed: It was not committed; or if `is_committing`, that is unknown.
        """
        script = as_script(self._unsent)
        if script is None:
            await self._flush()
            script = ""
        self.is_committing = True
        await self._fetch.execute(f"{script}; COMMIT" if script else "COMMIT")
        if self._is_rebuilt:
            return NOTHING_KNOWN
        return self.before if self.last is None else self.before._replace(seq=self.last.seq)

    @contextmanager
    def _translated(self, errors: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
        try:
            yield
        except DatabaseFailed as failed:
            raise translate_uncommitted(self._location, failed.error) from failed.error
        except errors as error:
            raise translate_uncommitted(self._location, error) from error

    async def _begin_executing(self) -> None:
        self.has_executed = True
        with self._translated():
            await self._flush()

    async def _flush(self) -> None:
        statements, self._unsent = self._unsent, []
        script = as_script(statements)
        if script:
            await self._fetch.execute(script)
        elif script is None:
            for statement, parameters in statements:
                await self._fetch(statement, *parameters)

    async def _answer(self, request: Request[Any]) -> Any:
        if isinstance(request, Call):
            # The function waits in its thread for this loop to answer its calls.
            return await asyncio.to_thread(request.function, self._sync)
        if is_write(request):
            self._unsent += statements_of(request)
            if isinstance(request, WriteEntries):
                self.last = request.rows[-1]
            self._is_rebuilt = self._is_rebuilt or isinstance(request, (ClearDerived, WriteApplication))
            self._tail.learn(request, None)
            return None
        found = self._tail.known(request)
        if found is UNKNOWN:
            await self._flush()
            found = await answer(self._fetch, request)
            self._tail.learn(request, found)
        return found
