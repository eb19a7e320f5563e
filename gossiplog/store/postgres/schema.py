"""A log's schema: whether it is one of ours, what we may do with it, and how it is made and migrated.

Each log has a schema of its own, `gossiplog_NAME`, instead of a column in shared tables. So rights are granted per log, a log is dropped,
dumped and measured as a whole, and migrated while others are written to, and no row or index carries the log's number. The cost is 25 rows
of pg_class per log, which is no problem for thousands of logs in one database.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg

from ...entry.rules import check_topic, is_topic
from ...errors import DamagedLog, ForeignFile, LocalProtocolError, LogNotFound, NewerVersion, ReadOnlyLog, StoreError, TopicMismatch
from ...version import VERSION
from ..migrate import load_migrations, written_by
from .connection import Connection
from .transactions import WriterLocks, begin_writing
from .url import PostgresUrl

_LOCK_CLASS = 0x676C6F67
"""`glog` in ASCII: the first half of our advisory locks, plus the lock's number. The second is the schema's oid, or 0 to make schemas."""
_SERVER_MIN = 14
_WRITES = {
    "entries": "INSERT",
    "nodes": "INSERT, UPDATE, DELETE",
    "heads": "INSERT, DELETE",
    "links": "INSERT",
    "cursors": "INSERT, UPDATE",
    "quarantine": "INSERT, DELETE",
    "applications": "INSERT, UPDATE",
    "set_aside": "INSERT, DELETE",
    "members": "INSERT",
    "touched": "INSERT",
    "void": "INSERT, DELETE",
}
"""The rights that a role needs, beside SELECT, to write to a log. They let it neither change nor remove an entry, so a repair takes the
role that owns the tables."""


@dataclass(frozen=True, slots=True)
class PostgresSchema:
    """A log's schema as it was found."""

    oid: int
    topic: str
    version: int
    relations: tuple[int, ...]

    @property
    def locks(self) -> WriterLocks:
        """The advisory locks of the log's writers."""
        return WriterLocks(guests=self._halves(1), queue=self._halves(2), log=self._halves(0), listeners=self._halves(3))

    def _halves(self, number: int) -> tuple[int, int]:
        return _LOCK_CLASS + number, self.oid - (1 << 32 if self.oid >= 1 << 31 else 0)


async def find_writer(connection: Connection, schema: PostgresSchema) -> str | None:
    """Say which process holds the writers' lock, by application name and server process; None if none does any more."""
    statement = """
        SELECT format('%s (server process %s)', coalesce(nullif(application_name, ''), 'somebody'), pid)
        FROM pg_locks JOIN pg_stat_activity USING (pid)
        WHERE locktype = 'advisory' AND granted AND classid = $1 AND objid = $2"""
    holder: str | None = await connection.fetchval(statement, _LOCK_CLASS, schema.oid)
    return holder


async def open_schema(connection: Connection, url: PostgresUrl, topic: str | None, *, create: bool, read_only: bool) -> PostgresSchema:
    """Check that the log exists and can be used as requested. Create it if `create`, and migrate it if it is of an earlier schema.

    Raises:
        LogNotFound, ForeignFile, DamagedLog, NewerVersion, TopicMismatch, ReadOnlyLog, LocalProtocolError: As `PostgresStore.open`.
        asyncpg.PostgresError: The server refused a statement.
    """
    async with reading(connection):
        version = await connection.fetchval("SELECT current_setting('server_version_num')::integer / 10000")
        if version < _SERVER_MIN:
            raise StoreError(f"{url.location} is PostgreSQL {version}, and {_SERVER_MIN} is needed")
        if not read_only:
            await _check_server_writes(connection, url)
        is_blank = create and await _is_blank(connection, url)
    if is_blank:
        await _create(connection, url, topic)
    async with reading(connection):
        found = await check_log(connection, url, topic)
    latest = len(load_migrations("postgres"))
    if found.version < latest:
        if read_only:
            message = f"{url.location} has schema {found.version}, and {latest} is needed"
            raise ReadOnlyLog(message, hint="run `gossiplog migrate` as the role that owns the log")
        await _migrate(connection, url, found)
    async with reading(connection):
        if found.version < latest:
            found = await check_log(connection, url, topic)
        if not read_only:
            await _check_rights(connection, url)
    return found


@asynccontextmanager
async def reading(connection: Connection) -> AsyncIterator[None]:
    """Read within a transaction. A prepared statement takes two messages, which a pooler might otherwise send to two connections."""
    await connection.execute("BEGIN READ ONLY")
    try:
        yield
    finally:
        await _leave(connection)


async def find_version(connection: Connection, url: PostgresUrl) -> int:
    """Return how many migrations the log has had.

    Raises:
        LogNotFound, ForeignFile, DamagedLog: As `PostgresStore.open`.
    """
    if await _is_blank(connection, url):
        raise LogNotFound(f"no log at {url.location}", hint=f"create it with `gossiplog init '{url.location}' --topic TOPIC`")
    try:
        rows = await connection.fetch(f"SELECT schema_version FROM {url.quoted_schema}.log")
    except (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError) as error:
        raise ForeignFile(
            f"schema {url.schema} of {url.location} is not a log", hint="it was left as it is; choose another name"
        ) from error
    if len(rows) != 1:
        raise DamagedLog(f"{url.location} has {len(rows)} rows in its table log, expected 1")
    version: int = rows[0][0]
    if version < 1:
        raise DamagedLog(f"{url.location} is said to have schema {version}")
    return version


async def check_log(connection: Connection, url: PostgresUrl, topic: str | None) -> PostgresSchema:
    """Check version and topic, and return the schema.

    Raises:
        LogNotFound, ForeignFile, DamagedLog, NewerVersion, TopicMismatch: As `PostgresStore.open`.
    """
    version = await find_version(connection, url)
    row = await connection.fetchrow(f"SELECT topic, program_version FROM {url.quoted_schema}.log")
    found, writer = row
    latest = len(load_migrations("postgres"))
    if version > latest:
        message = f"{url.location} has schema {version}, {written_by(writer)} knows {latest}"
        raise NewerVersion(message, hint="upgrade gossiplog")
    if not is_topic(found):
        raise DamagedLog(f"{url.location} has {found!r} for its topic")
    if topic is not None and topic != found:
        raise TopicMismatch(f"{url.location} has topic {found!r}, not {topic!r}")
    rows = await connection.fetch(
        "SELECT n.oid, c.oid FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid WHERE n.nspname = $1", url.schema
    )
    return PostgresSchema(rows[0][0], found, version, tuple(oid for _, oid in rows))


async def _is_blank(connection: Connection, url: PostgresUrl) -> bool:
    statement = "SELECT count(*) FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid WHERE n.nspname = $1"
    count: int = await connection.fetchval(statement, url.schema)
    return count == 0


async def _check_server_writes(connection: Connection, url: PostgresUrl) -> None:
    is_standby, is_read_only = await connection.fetchrow(
        "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only')::boolean"
    )
    if is_standby:
        raise ReadOnlyLog(f"{url.location} is a standby", hint="connect to the primary, or open the log read-only")
    if is_read_only:
        hint = "connect to the primary, change that setting, or open the log read-only"
        raise ReadOnlyLog(f"{url.location} has default_transaction_read_only set", hint=hint)


async def _check_rights(connection: Connection, url: PostgresUrl) -> None:
    statement = """
        SELECT w.name || ': ' || r FROM unnest($2::text[], $3::text[]) w (name, rights), regexp_split_to_table(w.rights, ', ') r
        WHERE NOT has_table_privilege($1 || '.' || w.name, r)"""
    missing = [text for (text,) in await connection.fetch(statement, url.quoted_schema, list(_WRITES), list(_WRITES.values()))]
    if missing:
        user = await connection.fetchval("SELECT current_user::text")
        hint = "docs/postgres.md lists the rights; to read alone, open the log read-only"
        raise ReadOnlyLog(f"role {user} may not write to {url.location}; it lacks {', '.join(missing)}", hint=hint)


async def _create(connection: Connection, url: PostgresUrl, topic: str | None) -> None:
    """Make the schema and its tables, in one transaction; another process may be doing the same.

    Raises:
        LocalProtocolError: No topic was given, or it is malformed.
    """
    if topic is None:
        raise LocalProtocolError("a new log needs a topic")
    check_topic(topic)
    await connection.execute(begin_writing("", (_LOCK_CLASS, 0)))
    try:
        if await _is_blank(connection, url):
            if not await connection.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = $1", url.schema):
                await connection.execute(f"CREATE SCHEMA {url.quoted_schema}")
            await _apply(connection, url, 0)
            statement = f"INSERT INTO {url.quoted_schema}.log (id, topic, schema_version, program_version) VALUES (1, $1, $2, $3)"
            await connection.execute(statement, topic, len(load_migrations("postgres")), VERSION)
        await connection.execute("COMMIT")
    finally:
        await _leave(connection)


async def _migrate(connection: Connection, url: PostgresUrl, found: PostgresSchema) -> None:
    """Apply the migrations that are missing, in one transaction, while nobody writes; another process may be doing the same."""
    await connection.execute(begin_writing("", found.locks.log))
    try:
        version = await find_version(connection, url)
        latest = len(load_migrations("postgres"))
        if version < latest:
            await _apply(connection, url, version)
            statement = f"UPDATE {url.quoted_schema}.log SET schema_version = $1, program_version = $2"
            await connection.execute(statement, latest, VERSION)
        await connection.execute("COMMIT")
    finally:
        await _leave(connection)


async def _apply(connection: Connection, url: PostgresUrl, version: int) -> None:
    await connection.execute(f"SET LOCAL search_path = {url.quoted_schema}")
    for _, script in load_migrations("postgres")[version:]:
        await connection.execute(script)
    await connection.execute("SET LOCAL search_path TO DEFAULT")


async def _leave(connection: Connection) -> None:
    if not connection.is_closed() and connection.is_in_transaction():
        with contextlib.suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            await connection.execute("ROLLBACK")
