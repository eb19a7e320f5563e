"""A log in a SQLite file: one connection that writes and a few that read, each in its own thread."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import trio
from outcome import Outcome

from ...errors import ClosedError, ReadOnlyLog, SnapshotExpired, StoreError
from ...plan import Plan, run_plan
from ..base import Durability, Reader, Transaction
from ..statements import query
from ..sync_transaction import AwaitedTransaction
from ..writer_cache import WriterCache
from .answers import answer
from .beside import beside
from .bounds import BoundedConnection
from .connection import TrioConnection
from .errors import Translating
from .file import BUSY_TIMEOUT_S, READER_CACHE_KIB, SESSION_CACHE_KIB, check_file, check_log, connect, create_log, is_blank, place_to_read
from .lock import WriterLock
from .reading import back_up
from .transaction import begin, commit, in_transaction, rollback, write

T = TypeVar("T")

_READERS = 4
"""Connections for reading, opened when needed; further callers wait."""
WAL_BYTES_MAX = 32 * 1024 * 1024
"""When the write-ahead log has grown to this, it is emptied. That takes a moment without readers, so snapshots that may expire do."""
_BEGUN_BYTES = 4 * 1024 * 1024
"""More than a small transaction that is begun without waiting can add to it: a dozen pages per entry if entries are scattered."""
_SNAPSHOTS = 32
"""Snapshots held at a time. They have connections of their own, because other reads must not wait for a peer's sync."""


class SqliteStore:
    """The store behind one file. Make one with `SqliteStore.open`."""

    poll_s = 0.2

    def __init__(self, path: Path, file: Path, topic: str, writer: TrioConnection | None) -> None:
        self.topic = topic
        self.location = str(path)
        self.is_read_only = writer is None
        # Another process may write only where we do not hold the lock.
        self.is_shared = writer is None
        self._path = path
        # What readers open: the file at the path, or a copy of it.
        self._file = file
        self._writer = writer
        # Not a trio.Lock, which belongs to a task: `begin_write` is in none.
        self._write_turn = trio.Semaphore(1, max_value=1)
        self._tail = WriterCache()
        self._idle: list[TrioConnection] = []
        self._readers = trio.Semaphore(_READERS)
        self._snapshots = trio.Semaphore(_SNAPSHOTS)
        self._expirable: set[_Snapshot] = set()
        self._wal = beside(file, "-wal")
        self._wal_bytes_max = WAL_BYTES_MAX
        # Held while the write-ahead log is emptied: a snapshot that began meanwhile would prevent it.
        self._emptying = trio.Lock()
        self._is_closed = False

    @classmethod
    @asynccontextmanager
    async def open(
        cls, path: Path, *, topic: str | None, create: bool, read_only: bool, durability: Durability
    ) -> AsyncIterator[SqliteStore]:
        """Open a file, or create it, and close it at the end.

        Args:
            path: The file. SQLite keeps `…-wal` and `…-shm` beside it, and we `…-lock`. Files beside it are checked before it is opened.
            topic: The topic that the log must have; None for any. Needed to create.
            read_only: Never write. Any number of processes may read beside the one that writes. The folder stays as it was: a file that is
                not whole, or has an earlier schema, is copied and read as of this moment.

        Raises:
            LogNotFound: There is no such file, and `create` is false.
            ForeignFile: The file is no log, or a file beside it is not SQLite's.
            DamagedLog: The log cannot be read, or writing would lose a file beside it.
            NewerVersion: A later version of this program wrote it.
            TopicMismatch: It has another topic.
            ReadOnlyLog: It cannot be written to, or needs a migration.
            LogBusy: Another process is writing to it.
        """
        check_file(path, create=create and not read_only, read_only=read_only)
        async with AsyncExitStack() as stack:
            file = path
            if read_only:
                file = await stack.enter_async_context(_readable(path))
            else:
                stack.callback(WriterLock.acquire(path).release)
            yield await stack.enter_async_context(cls._opened(path, file, topic, durability, create=create, read_only=read_only))

    @classmethod
    @asynccontextmanager
    async def _opened(
        cls, path: Path, file: Path, topic: str | None, durability: Durability, *, create: bool = False, read_only: bool = False
    ) -> AsyncIterator[SqliteStore]:
        connection = await _connect(path, file, durability, read_only=read_only)
        store: SqliteStore | None = None
        try:
            if create and not read_only and await _call(path, connection, is_blank):
                await _call(path, connection, create_log, topic)
            found = await _call(path, connection, check_log, path, topic, not read_only)
            store = cls(path, file, found, None if read_only else connection)
            if read_only:
                store._idle.append(connection)
            yield store
        finally:
            # A hop ends with its statement, so this takes as long as the statements that are running.
            with trio.CancelScope(shield=True):
                if store is not None:
                    await store._close_readers()
                if store is None or not read_only:
                    await connection.close()

    def watch(self, wake: Callable[[], None]) -> None:
        """Do nothing: there is no notification of writes to a file."""

    async def read(self, plan: Plan[T]) -> T:
        """Run a plan on one snapshot, in one hop."""
        async with self._reader(self._readers) as reader:
            return await _call(self._path, reader, _read, plan)

    @asynccontextmanager
    async def snapshot(self, *, may_expire: bool = False) -> AsyncIterator[Reader]:
        """Hold one snapshot for many plans."""
        async with self._reader(self._snapshots) as reader:
            snapshot = _Snapshot(self, reader)
            try:
                async with self._emptying:
                    await _call(self._path, reader, _begin_snapshot, SESSION_CACHE_KIB if may_expire else READER_CACHE_KIB)
                if may_expire:
                    self._expirable.add(snapshot)
                yield snapshot
            finally:
                self._expirable.discard(snapshot)
                with trio.CancelScope(shield=True):
                    await snapshot.end()
                if not may_expire:
                    # It may have prevented the write-ahead log from being emptied; try again at the next commit.
                    self._wal_bytes_max = WAL_BYTES_MAX

    async def write(self, plan: Plan[T]) -> T:
        """Run a plan as one transaction, in one hop."""
        writer = self._get_writer()
        await _acquire(self._write_turn)
        try:
            result: T = await writer.call(write, plan, self._path, self._tail)
            if self._is_wal_large():
                await self._empty_wal(writer)
            return result
        finally:
            self._write_turn.release()

    # Ctrl-C must not come between taking the turn and handing the plan over, or the turn would never be given back.
    @trio.lowlevel.enable_ki_protection
    def begin_write(self, plan: Plan[T], then: Callable[[Outcome[T]], None]) -> bool:
        """Begin a transaction in one hop, unless another one is open, or the write-ahead log may have to be emptied after it."""
        writer = self._get_writer()
        if self._is_wal_large(_BEGUN_BYTES):
            return False
        try:
            self._write_turn.acquire_nowait()
        except trio.WouldBlock:
            return False

        def finish(result: Outcome[T]) -> None:
            self._write_turn.release()
            then(result)

        writer.post(finish, write, plan, self._path, self._tail)
        return True

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Open a transaction for a body that awaits."""
        writer = self._get_writer()
        async with self._write_turn:
            await _call(self._path, writer, begin)
            try:
                yield AwaitedTransaction(partial(_call, self._path, writer, in_transaction, self._path, self._tail))
                # A cancellation from here on takes effect after the commit.
                with trio.CancelScope(shield=True):
                    await _call(self._path, writer, commit)
                    if self._is_wal_large():
                        await self._empty_wal(writer)
            except BaseException:
                self._tail.forget()
                with trio.CancelScope(shield=True):
                    await _call(self._path, writer, rollback)
                raise

    @asynccontextmanager
    async def rehearsal(self) -> AsyncIterator[SqliteStore]:
        """Open a copy of the present state for writing. Its errors name the original's path."""
        folder = await trio.to_thread.run_sync(partial(tempfile.TemporaryDirectory, prefix="gossiplog-"))
        try:
            copy = Path(folder.name) / "log"
            async with self._reader(self._readers) as reader:
                await _call(self._path, reader, back_up, copy)
            async with self._opened(self._path, copy, self.topic, Durability.OFF) as store:
                yield store
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(folder.cleanup)

    async def size_bytes(self) -> int:
        """Return the size of the file and its write-ahead log."""
        self.check_open()
        files = (self._path, self._wal)
        return sum(file.stat().st_size for file in files if file.exists())

    def check_open(self) -> None:
        """Raise ClosedError once the log is closed."""
        if self._is_closed:
            raise ClosedError("the log is closed")

    @asynccontextmanager
    async def _reader(self, places: trio.Semaphore) -> AsyncIterator[TrioConnection]:
        await trio.lowlevel.checkpoint_if_cancelled()
        await _acquire(places)
        try:
            self.check_open()
            if self._idle:
                reader = self._idle.pop()
            else:
                reader = await _connect(self._path, self._file, Durability.FULL, read_only=True)
            try:
                yield reader
            finally:
                if self._is_closed or len(self._idle) >= _READERS:
                    with trio.CancelScope(shield=True):
                        await reader.close()
                else:
                    self._idle.append(reader)
        finally:
            places.release()

    def _is_wal_large(self, spare: int = 0) -> bool:
        try:
            return os.stat(self._wal).st_size + spare > self._wal_bytes_max  # noqa: PTH116  (at each commit)
        except OSError:
            return False

    async def _empty_wal(self, writer: TrioConnection) -> None:
        """End snapshots that may expire, and empty the write-ahead log. If others are reading in it, try again when it has grown."""
        with trio.CancelScope(shield=True):
            async with self._emptying:
                for snapshot in list(self._expirable):
                    await snapshot.end()
                try:
                    is_empty = await _call(self._path, writer, _empty_wal)
                except StoreError:
                    # The commit stands. If the disk fails, the next commit raises it.
                    is_empty = False
        self._wal_bytes_max = WAL_BYTES_MAX if is_empty else self._wal_bytes_max + WAL_BYTES_MAX

    async def _close_readers(self) -> None:
        self._is_closed = True
        while self._idle:
            await self._idle.pop().close()

    def _get_writer(self) -> TrioConnection:
        if self._writer is None:
            raise ReadOnlyLog(f"{self._path} is open read-only")
        self.check_open()
        return self._writer


class _Snapshot:
    def __init__(self, store: SqliteStore, reader: TrioConnection) -> None:
        self._store = store
        self._reader = reader
        self._turn = trio.Lock()
        self._is_over = False

    async def run(self, plan: Plan[T]) -> T:
        return await self._read(_run, plan)

    async def query(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return await self._read(query, statement, parameters)

    async def _read(self, function: Callable[..., T], *args: Any) -> T:
        async with self._turn:
            self._store.check_open()
            if self._is_over:
                raise SnapshotExpired(f"the snapshot of {self._store._path} has expired", hint="take a new snapshot")
            return await _call(self._store._path, self._reader, function, *args)

    async def end(self) -> None:
        """End the transaction, after the plan that is being run."""
        async with self._turn:
            if not self._is_over:
                self._is_over = True
                await _call(self._store._path, self._reader, _end_snapshot)


async def _acquire(turn: trio.Semaphore) -> None:
    """Take a turn, without a round of the event loop if it is free. The hop that follows is a checkpoint."""
    try:
        turn.acquire_nowait()
    except trio.WouldBlock:
        await turn.acquire()


@asynccontextmanager
async def _readable(path: Path) -> AsyncIterator[Path]:
    """As `place_to_read`, in a thread. A copy is removed even if this is cancelled."""
    place = place_to_read(path)
    file = await trio.to_thread.run_sync(place.__enter__)
    try:
        yield file
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(place.__exit__, None, None, None)


async def _connect(path: Path, file: Path, durability: Durability, *, read_only: bool) -> TrioConnection:
    connection = TrioConnection(partial(connect, file, durability, read_only=read_only))
    with Translating(path):
        await connection
    return connection


async def _call(path: Path, connection: TrioConnection, function: Callable[..., T], *args: Any) -> T:
    with Translating(path):
        return await connection.call(function, *args)


def _run(db: BoundedConnection, plan: Plan[T]) -> T:
    try:
        return run_plan(plan, partial(answer, db))
    except Exception as error:
        # SQLite keeps a closed file open while a cursor is alive, and the frames of an error hold cursors.
        cause: BaseException | None = error
        while cause is not None:
            traceback.clear_frames(cause.__traceback__)
            cause = cause.__context__
        raise


def _begin_snapshot(db: sqlite3.Connection, cache_kib: int) -> None:
    db.execute(f"PRAGMA cache_size = {-cache_kib}")
    db.execute("BEGIN")
    # SQLite takes the snapshot at the first read.
    db.execute("SELECT id FROM gossiplog_log").fetchone()


def _end_snapshot(db: sqlite3.Connection) -> None:
    rollback(db)
    db.execute(f"PRAGMA cache_size = {-READER_CACHE_KIB}")


def _empty_wal(db: sqlite3.Connection) -> bool:
    """Checkpoint and truncate the write-ahead log, if within a tenth of a second there is a moment without readers."""
    db.execute("PRAGMA busy_timeout = 100")
    try:
        (is_busy, _, _) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not is_busy
    finally:
        db.execute(f"PRAGMA busy_timeout = {1000 * BUSY_TIMEOUT_S:.0f}")


def _read(db: BoundedConnection, plan: Plan[T]) -> T:
    db.execute("BEGIN")
    try:
        return _run(db, plan)
    finally:
        rollback(db)
