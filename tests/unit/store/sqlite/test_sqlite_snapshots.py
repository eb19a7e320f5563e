"""Snapshots that are held, what they cost the file, and the right to write to it."""

import os
import subprocess
import sys
from contextlib import AsyncExitStack

import pytest
import trio
from log_support import opened

import gossiplog
from gossiplog.entry import Ed25519Signer
from gossiplog.errors import LogBusy, SnapshotExpired
from gossiplog.log.requests import ReadCount
from gossiplog.plan import ask
from gossiplog.store.sqlite import store as sqlite
from gossiplog.store.sqlite.lock import WriterLock


async def test_snapshots_that_are_held_keep_no_other_read_waiting(tmp_path):
    async with gossiplog.open(tmp_path / "log.db", topic="a.example.com", signer=Ed25519Signer.from_seed(bytes(32))) as log:
        entry = await log.append(1)
        held = [log.snapshot() for _ in range(32)]
        for snapshot in held:
            await snapshot.__aenter__()
        with trio.fail_after(60):
            assert (await log.get(entry.id)).key == entry.key
            await log.append(2)
        for snapshot in held:
            await snapshot.__aexit__(None, None, None)
        assert len(log._store._idle) <= 4, "the connections of the snapshots are given back"


PROGRAM = """
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import trio

import gossiplog
from gossiplog.log.requests import ReadPage
from gossiplog.plan import ask


def rss_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 // 10**6


async def main():
    async with gossiplog.open(sys.argv[1], read_only=True) as log, AsyncExitStack() as held:
        before = rss_mb()
        for _ in range(32):
            snapshot = await held.enter_async_context(log.snapshot())
            page = await snapshot.run(ask(ReadPage(None, None, False, 8)))
            while page:
                page = await snapshot.run(ask(ReadPage(page[-1][0], None, False, 8)))
        print(rss_mb() - before)


trio.run(main)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_snapshots_that_have_read_everything_hold_little_of_it(tmp_path):
    path = tmp_path / "log.db"
    async with opened(path) as log:
        await log.append_many([n, "x" * 60_000] for n in range(200))
    ran = await trio.run_process([sys.executable, "-c", PROGRAM, str(path)], capture_stdout=True, stderr=subprocess.STDOUT, check=False)
    # Of 12 MB each; a page that is read at once comes besides.
    assert ran.returncode == 0 and int(ran.stdout) < 120, ran.stdout.decode()


@pytest.fixture
def small_wal(monkeypatch):
    monkeypatch.setattr(sqlite, "WAL_BYTES_MAX", 1024 * 1024)


def wal_bytes(path):
    return path.with_name(path.name + "-wal").stat().st_size


async def test_snapshots_that_overlap_do_not_let_the_write_ahead_log_grow_without_end(tmp_path, small_wal):
    path = tmp_path / "log.db"
    peak, expired = 0, 0
    async with opened(path) as log:
        held = []
        for number in range(60):
            # There is always an older one when the next begins.
            holding = AsyncExitStack()
            held.append((holding, await log.count(), await holding.enter_async_context(log.snapshot(may_expire=True))))
            await log.append_many([f"{number} {at} {'x' * 500}" for at in range(200)])
            peak = max(peak, wal_bytes(path))
            if len(held) > 8:
                holding, count, snapshot = held.pop(0)
                try:
                    assert (await snapshot.run(ask(ReadCount())))[0] == count
                except SnapshotExpired:
                    expired += 1
                await holding.aclose()
        for holding, _, _ in held:
            await holding.aclose()
        assert 0 < expired < 60
        # A commit of 200 entries goes beyond the bound before it is seen.
        assert peak < 2 * 1024 * 1024
        assert path.stat().st_size > 3 * peak


async def test_a_snapshot_that_must_last_does_and_the_log_is_emptied_after_it(tmp_path, small_wal):
    path = tmp_path / "log.db"
    async with opened(path) as log:
        await log.append(0)
        async with log.snapshot() as snapshot:
            for number in range(10):
                await log.append_many([f"{number} {'x' * 10_000}"] * 40)
            assert (await snapshot.run(ask(ReadCount())))[0] == 1
            assert wal_bytes(path) > 3 * 1024 * 1024
        for number in range(4):
            await log.append_many([f"{number} {'x' * 10_000}"] * 40)
        assert wal_bytes(path) < 2 * 1024 * 1024


async def test_one_large_transaction_leaves_no_large_file_behind(tmp_path, small_wal):
    path = tmp_path / "log.db"
    async with opened(path) as log:
        await log.append_many(["x" * 50_000] * 100)
        assert wal_bytes(path) == 0
        await log.append("goes on")
        assert (await log.fsck()).is_clean


def test_a_forked_child_does_not_keep_the_writers_lock(tmp_path):
    """It may live for long after its parent, killed in the middle."""
    path = tmp_path / "log.db"
    lock = WriterLock.acquire(path)
    (reading, writing), (waiting, going) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b".")
        os.read(waiting, 1)
        os._exit(0)
    try:
        os.read(reading, 1)
        with pytest.raises(LogBusy, match=r"this process has .* open for writing already"):
            WriterLock.acquire(path)
        # What becomes of a lock whose process is killed, which releases nothing: its descriptors are closed.
        os.close(lock._descriptor)
        again = WriterLock.acquire(path)
        again.release()
    finally:
        os.write(going, b".")
        os.waitpid(child, 0)
        for descriptor in (reading, writing, waiting, going):
            os.close(descriptor)
        lock._descriptor = -1
        lock.release()
