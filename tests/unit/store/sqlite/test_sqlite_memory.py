"""What a connection keeps of the file in memory."""

import contextlib

import pytest
from log_support import opened

from gossiplog.store.base import Durability
from gossiplog.store.sqlite.file import connect

MIB = 1024 * 1024
ROW_BYTES = 2_000


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "kept.db"
    with contextlib.closing(connect(path, Durability.OFF, read_only=False)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE rows (value)")
    return path


def test_a_transaction_of_more_than_the_cache_stays_in_memory_and_a_huge_one_does_not(path):
    wal = path.with_name(path.name + "-wal")
    with contextlib.closing(connect(path, Durability.OFF, read_only=False)) as db:
        assert db.execute("PRAGMA cache_size").fetchone() == (-4 * 1024,)
        db.execute("BEGIN IMMEDIATE")
        before = wal.stat().st_size
        db.executemany("INSERT INTO rows VALUES (zeroblob(?))", [(ROW_BYTES,)] * (12 * MIB // ROW_BYTES))
        assert wal.stat().st_size == before
        db.executemany("INSERT INTO rows VALUES (zeroblob(?))", [(ROW_BYTES,)] * (8 * MIB // ROW_BYTES))
        assert wal.stat().st_size > before
        db.execute("ROLLBACK")
        assert db.execute("SELECT count(*) FROM rows").fetchone() == (0,)


async def test_a_connection_that_reads_keeps_little_and_less_while_a_peers_session_has_it(tmp_path):
    async with opened(tmp_path / "log.db") as log:
        await log.append(1)
        store = log._store
        async with store.snapshot(may_expire=True) as session, store.snapshot() as ours:
            assert [await held._reader.call(cache_size) for held in (session, ours)] == [(-256,), (-1024,)]
        assert len(store._idle) == 2
        assert [await reader.call(cache_size) for reader in store._idle] == [(-1024,)] * 2


def cache_size(db):
    return db.execute("PRAGMA cache_size").fetchone()
