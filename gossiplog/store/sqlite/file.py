"""A log's SQLite file: whether it is a log of ours, and how it is opened, made and migrated."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from ...entry.rules import check_topic, is_topic
from ...errors import DamagedLog, ForeignFile, LocalProtocolError, LogNotFound, NewerVersion, ReadOnlyLog, StoreError, TopicMismatch
from ...version import VERSION
from ..base import Durability
from ..migrate import load_migrations, split_statements, written_by
from .beside import beside, look
from .bounds import BoundedConnection
from .errors import Translating, translate_os
from .lock import is_held_elsewhere
from .reading import readable
from .schema import check_schema, read_writer

APPLICATION_ID = 0x676C6F67
"""`glog` in ASCII. SQLite keeps it in the file's header to identify the format."""
_MAGIC = b"SQLite format 3\0"
_CACHE_KIB = 4 * 1024
"""Of the connection that writes. 16 MiB are no faster: the operating system caches the file, too."""
_SPILL_KIB = 16 * 1024
"""How much a transaction may change before some of its pages are written ahead of the commit."""
READER_CACHE_KIB = 1024
"""Of a connection that reads. With 256, reading a log that 150 authors wrote offline, one after the other, takes half as long again."""
SESSION_CACHE_KIB = 256
"""Of a connection that a peer's session holds. There are up to 32, and entries take longer to encode than to read."""
BUSY_TIMEOUT_S = 5.0


def is_database(path: Path, *, or_empty: bool = False) -> bool:
    """Tell by its first bytes whether a file is a SQLite database; with `or_empty`, also an empty file, as SQLite first creates it."""
    with path.open("rb") as file:
        header = file.read(len(_MAGIC))
    return header == _MAGIC or (or_empty and not header)


def check_file(path: Path, *, create: bool, read_only: bool) -> None:
    """Check what can be checked before SQLite opens the file.

    Raises:
        LogNotFound, ForeignFile, DamagedLog, ReadOnlyLog: As `SqliteStore.open`.
    """
    try:
        is_there, is_file = path.exists(), path.is_file()
    except OSError as error:
        raise translate_os(path, error, "read") from error
    if not is_there:
        if not create:
            raise LogNotFound(f"no log at {path}", hint=f"create it with `gossiplog init {path} --topic TOPIC`")
        if not path.parent.is_dir():
            raise LogNotFound(f"no folder {path.parent} for {path.name}", hint="create the folder first")
        if not os.access(path.parent, os.W_OK):
            raise ReadOnlyLog(f"folder {path.parent} cannot be written to")
        _check_beside(path)
        return
    if not is_file:
        raise ForeignFile(f"{path} is not a file")
    try:
        is_foreign = not is_database(path, or_empty=True)
        if not read_only and not is_foreign:
            _check_beside(path)
    except OSError as error:
        raise translate_os(path, error, "read") from error
    if is_foreign:
        raise ForeignFile(f"{path} is not a log", hint="it was left as it is; give another path")
    if not read_only and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise ReadOnlyLog(f"{path} cannot be written to", hint="check its permissions, or open it read-only")


def _check_beside(path: Path) -> None:
    found = look(path)
    # A process that is writing may just be creating a file that looks damaged. The caller takes the lock next.
    if found.fault is not None and not is_held_elsewhere(path):
        raise found.error


def has_mark(path: Path) -> bool:
    """Tell by its header whether a file was created as a log, even if it is damaged now."""
    with path.open("rb") as file:
        header = file.read(72)
    return header[68:] == APPLICATION_ID.to_bytes(4)


def connect(path: Path, durability: Durability, *, read_only: bool) -> BoundedConnection:
    """Open a connection without implicit transactions, for one thread at a time."""
    mode = "ro" if read_only else "rwc"
    try:
        return _connect(path, mode, durability, read_only=read_only)
    except sqlite3.OperationalError as error:
        wal = beside(path, "-wal")
        # An immutable connection never sees a later commit, so a passing error, such as too many open files, must not lead to one.
        code = error.sqlite_errorcode & 0xFF
        is_apart = code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY) and not os.access(path.parent, os.W_OK)
        if not read_only or not is_apart or (wal.exists() and wal.stat().st_size > 0):
            raise
        # SQLite cannot share a file in WAL mode in a folder that cannot be written to. But nobody writes there.
        return _connect(path, "ro&immutable=1", durability, read_only=read_only)


def _connect(path: Path, mode: str, durability: Durability, *, read_only: bool) -> BoundedConnection:
    uri = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"
    db = sqlite3.connect(
        uri,
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=BUSY_TIMEOUT_S,
        cached_statements=256,
        factory=BoundedConnection,
    )
    try:
        db.bound(path)
        _configure(db, durability, read_only=read_only)
    except BaseException:
        db.close()
        raise
    return db


def _configure(db: sqlite3.Connection, durability: Durability, *, read_only: bool) -> None:
    db.execute(f"PRAGMA cache_size = {-(READER_CACHE_KIB if read_only else _CACHE_KIB)}")
    if read_only:
        db.execute("PRAGMA query_only = 1")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    else:
        # Negative means KiB. Of a number of pages SQLite takes the lowest eight bits for whether to spill at all, so 4,096 means never.
        db.execute(f"PRAGMA cache_spill = {-_SPILL_KIB}")
        db.execute(f"PRAGMA synchronous = {durability.name}")


def is_blank(db: sqlite3.Connection) -> bool:
    """Tell whether the database is empty, as after an interrupted creation."""
    blank: bool = db.execute("SELECT NOT EXISTS (SELECT 1 FROM sqlite_master)").fetchone()[0] == 1
    return blank


def create_log(db: sqlite3.Connection, topic: str | None) -> None:
    """Create the tables and set the topic, in one transaction.

    Raises:
        LocalProtocolError: No topic was given, or it is malformed.
    """
    if topic is None:
        raise LocalProtocolError("a new log needs a topic")
    check_topic(topic)
    with _transaction(db):
        _apply(db, load_migrations("sqlite"))
        db.execute("INSERT INTO gossiplog_log VALUES (1, ?, ?)", (topic, VERSION))
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def _apply(db: sqlite3.Connection, migrations: Sequence[tuple[str, str]]) -> None:
    for _, statements in migrations:
        for statement in split_statements(statements):
            db.execute(statement)
    db.execute(f"PRAGMA user_version = {len(load_migrations('sqlite'))}")


@contextlib.contextmanager
def place_to_read(path: Path) -> Iterator[Path]:
    """Yield the file to open read-only for a log: the log itself, or a copy in the present schema; see `readable`.

    Raises:
        StoreError: As `SqliteStore.open`.
    """
    with Translating(path), readable(path) as file:
        if file != path:
            # Other errors are raised when the copy is opened.
            with contextlib.suppress(sqlite3.Error, StoreError), contextlib.closing(connect(file, Durability.OFF, read_only=False)) as db:
                if 0 < read_version(db) < len(load_migrations("sqlite")):
                    check_log(db, path, None, True)
        yield file


@contextlib.contextmanager
def opened_reader(path: Path, topic: str | None = None) -> Iterator[BoundedConnection]:
    """Open a log read-only in this thread.

    Raises:
        StoreError: As `SqliteStore.open`.
    """
    check_file(path, create=False, read_only=True)
    with place_to_read(path) as file, contextlib.closing(connect(file, Durability.FULL, read_only=True)) as db:
        check_log(db, path, topic, False)
        yield db


def find_pending(path: Path) -> tuple[int, list[str]]:
    """Return a file's schema version and the names of the migrations that it lacks; see `pending_migrations`."""
    check_file(path, create=False, read_only=True)
    with (
        Translating(path),
        readable(path, copies_older=False) as file,
        contextlib.closing(connect(file, Durability.FULL, read_only=True)) as db,
    ):
        version = read_version(db)
    return version, [name for name, _ in load_migrations("sqlite")[version:]]


def read_version(db: sqlite3.Connection) -> int:
    """Return how many migrations the file has had."""
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    return version


def check_log(db: sqlite3.Connection, path: Path, topic: str | None, may_migrate: bool) -> str:
    """Check version and topic, migrate if that is needed and allowed, and return the topic.

    Raises:
        NewerVersion, ReadOnlyLog, TopicMismatch, ForeignFile: As `SqliteStore.open`.
    """
    (application_id,) = db.execute("PRAGMA application_id").fetchone()
    if application_id != APPLICATION_ID:
        if is_blank(db):
            raise LogNotFound(f"{path} is empty", hint=f"make it a log with `gossiplog init {path} --topic TOPIC`")
        raise ForeignFile(f"{path} is a database of another program", hint="it was left as it is; give another path")
    version, latest = read_version(db), len(load_migrations("sqlite"))
    if version > latest:
        message = f"{path} has schema {version}, {written_by(read_writer(db))} knows {latest}"
        raise NewerVersion(message, hint="upgrade gossiplog")
    check_schema(db, path, max(version, 0))
    if version < latest:
        if not may_migrate:
            raise ReadOnlyLog(f"{path} has schema {version}, and {latest} is needed", hint=f"run `gossiplog migrate {path}`")
        migrate_log(db)
    if may_migrate:
        # Not earlier: another program's file must not be changed, not even its journal mode.
        db.execute("PRAGMA journal_mode = WAL")
    row = db.execute("SELECT topic FROM gossiplog_log").fetchone()
    if row is None:
        raise ForeignFile(f"{path} has the tables of a log but no topic")
    found: str = row[0]
    if not isinstance(found, str) or not is_topic(found):
        raise DamagedLog(f"{path} has {found!r} for its topic")
    if topic is not None and topic != found:
        raise TopicMismatch(f"{path} has topic {found!r}, not {topic!r}")
    return found


def migrate_log(db: sqlite3.Connection) -> list[str]:
    """Apply missing migrations in one transaction; return their names."""
    with _transaction(db):
        pending = load_migrations("sqlite")[read_version(db) :]
        if pending:
            _apply(db, pending)
            db.execute("UPDATE gossiplog_log SET version = ?", (VERSION,))
    return [name for name, _ in pending]
