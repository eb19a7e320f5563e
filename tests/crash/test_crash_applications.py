"""Commits and rebuilds with an application, broken off at each of their statements: by a crash, by the database, by a disk that is full.

A crash is a copy of the files as they are before a statement: that is what the end of the process would leave of them.
"""

import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copyfile

import pytest
from log_support import SIGNERS, all_of, assert_whole, make, opened, remove_log

from gossiplog.errors import StorageFull, StoreError
from gossiplog.store.sqlite import file
from gossiplog.store.sqlite.bounds import BoundedConnection

from .versioned import assert_tables_follow, notes

Operation = Callable[[Path, bool], Awaitable[None]]
FIRST = make("first")
OTHERS = [make("bad", [], SIGNERS[2]), make("b", [FIRST], SIGNERS[1]), make("c", [FIRST], SIGNERS[2])]
STEPS_MAX = 400


class Steps:
    """Calls a function before each statement of the operation in its block."""

    def __init__(self, before: Callable[[int, sqlite3.Connection], None]) -> None:
        self.count = 0
        self._before = before

    def __enter__(self) -> "Steps":
        Watched.steps = self
        return self

    def __exit__(self, *_: object) -> None:
        Watched.steps = None

    def on_statement(self, db: sqlite3.Connection) -> None:
        self.count += 1
        self._before(self.count, db)


class Watched(BoundedConnection):
    """A connection whose statements are steps."""

    steps: Steps | None = None

    def execute(self, *arguments):
        with self._step():
            return super().execute(*arguments)

    def executemany(self, *arguments):
        with self._step():
            return super().executemany(*arguments)

    @contextmanager
    def _step(self) -> Iterator[None]:
        if self.steps is not None:
            self.steps.on_statement(self)
        try:
            yield
        finally:
            if self._path is not None:
                self.bound(self._path)


async def commit(path: Path, is_async: bool) -> None:
    async with opened(path, app=notes(1, is_async=is_async)) as log:
        await log.insert_many([entry.value for entry in OTHERS])


async def rebuild(path: Path, is_async: bool) -> None:
    async with opened(path, app=notes(2, is_async=is_async)):
        pass


async def follow(path: Path, is_async: bool) -> None:
    async with opened(path) as log:
        await log.insert_many([entry.value for entry in OTHERS])
    async with opened(path, app=notes(1, is_async=is_async)):
        pass


async def retry(path: Path, is_async: bool) -> None:
    async with opened(path, app=notes(1, is_async=is_async)) as log:
        await log.retry_set_aside()


@pytest.fixture(params=[False, True], ids=["def", "async def"])
def is_async(request) -> bool:
    return request.param


@pytest.fixture(params=[commit, rebuild, follow, retry], ids=lambda operation: operation.__name__)
def operation(request) -> Operation:
    return request.param


@pytest.fixture
async def path(tmp_path, monkeypatch) -> Path:
    """A log with the application's first version, on connections whose statements are steps, and that keep hardly a page in memory."""
    async with opened(tmp_path / "made.db", app=notes(1)) as log:
        await log.insert_many([FIRST.value, make("bad", [FIRST]).value])
        await log.append_many(["a", "after"])
    monkeypatch.setattr(file, "BoundedConnection", Watched)
    monkeypatch.setattr(file, "_CACHE_KIB", 1)
    monkeypatch.setattr(file, "_SPILL_KIB", 1)
    copyfile(tmp_path / "made.db", tmp_path / "app.db")
    return tmp_path / "app.db"


async def check(path: Path) -> None:
    """Whatever it was that broke off, catching up makes tables of what is there that a rebuild would make too."""
    async with opened(path) as log:
        payloads = sorted(str(entry.payload) for entry in await all_of(log))
        await assert_whole(log)
    before = ["a", "after", "bad", "first"]
    assert payloads in (before, sorted([*before, "b", "bad", "c"]))
    with sqlite3.connect(path) as db:
        ((version, behind),) = db.execute("SELECT version, behind FROM gossiplog_applications").fetchall()
    db.close()
    if behind is not None:
        async with opened(path, app=notes(version)):
            pass
    await assert_tables_follow(path)


async def test_a_crash_before_any_statement_leaves_the_tables_whole(path, operation, is_async) -> None:
    images: list[tuple[bytes, bytes]] = []
    wal = path.with_name(path.name + "-wal")

    def keep(number: int, db: sqlite3.Connection) -> None:
        image = path.read_bytes(), wal.read_bytes() if wal.exists() else b""
        if not images or image != images[-1]:
            images.append(image)

    with Steps(keep) as steps:
        await operation(path, is_async)
    assert len(images) > 3 and steps.count > 20
    for number, (main, ahead) in enumerate(images):
        image = path.with_name(f"{number}.db")
        image.write_bytes(main)
        image.with_name(image.name + "-wal").write_bytes(ahead)
        await check(image)
        remove_log(image)


@pytest.mark.slow
async def test_an_error_of_the_database_in_any_statement_leaves_the_tables_whole(path, operation, is_async) -> None:
    made = path.with_name("made.db")

    for broken in range(1, STEPS_MAX):

        def interrupt(number: int, db: sqlite3.Connection, broken: int = broken) -> None:
            if number == broken:
                # SQLite itself breaks the statement off; one that writes takes the whole transaction with it.
                db.set_progress_handler(lambda: 1, 1)

        with Steps(interrupt) as steps, suppress(StoreError):
            await operation(path, is_async)
        await check(path)
        remove_log(path)
        copyfile(made, path)
        if steps.count < broken:
            return
    raise AssertionError("it never got through")


async def test_a_disk_that_is_full_at_any_page_leaves_the_tables_whole(path, is_async) -> None:
    async with opened(path, app=notes(1, is_async=is_async)) as log:
        pages = (await log._store._writer.call(lambda db: db.execute("PRAGMA page_count").fetchone()))[0]
        failures = 0
        for spare in range(20):
            await log._store._writer.call(lambda db, most=pages + spare: db.execute(f"PRAGMA max_page_count = {most}").fetchone())
            root = await log.root()
            try:
                await log.insert_many([make("x" * 3_000, [], signer).value for signer in SIGNERS])
            except StorageFull:
                failures += 1
                assert await log.root() == root
            else:
                break
        assert failures > 2
        await assert_whole(log)
    await assert_tables_follow(path)
