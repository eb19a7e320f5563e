"""aiosqlite on trio: what we replace of it, and what holds when a call is cancelled."""

import gc
import inspect
import sqlite3
import threading
import weakref
from functools import partial

import aiosqlite.core
import pytest
import trio
from log_support import opened

from gossiplog.store.sqlite.answers import _select_in
from gossiplog.store.sqlite.connection import TrioConnection


def connector():
    return sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)


def test_aiosqlite_makes_futures_only_where_we_replaced_it() -> None:
    places = {
        name
        for name, member in inspect.getmembers(aiosqlite.core.Connection)
        if inspect.isfunction(member) and "create_future" in inspect.getsource(member)
    }
    assert places == {"_connect", "_execute", "stop"} or places == {"_connect", "_execute"}
    assert places <= set(vars(TrioConnection)) | {"stop"}


async def test_a_call_runs_in_the_threads_own_time_and_raises_what_it_raises() -> None:
    connection = TrioConnection(connector)
    await connection
    thread = await connection.call(lambda db: threading.current_thread())
    assert thread is not threading.current_thread()
    assert await connection.call(lambda db, a: db.execute("SELECT ? + 1", (a,)).fetchone(), 41) == (42,)
    with pytest.raises(sqlite3.OperationalError):
        await connection.call(lambda db: db.execute("nonsense"))
    await connection.close()
    await connection.close()
    assert not thread.is_alive()
    with pytest.raises(ValueError, match="no active connection"):
        await connection.call(lambda db: None)


async def test_a_thread_that_waits_holds_nothing_of_its_last_call() -> None:
    class Page:
        """What can be watched, as a list cannot."""

    connection = TrioConnection(connector)
    await connection
    asked = Page()
    page = await connection.call(lambda db, _: Page(), asked)
    gone = [weakref.ref(asked), weakref.ref(page)]
    del asked, page
    with trio.fail_after(30):
        while any(each() is not None for each in gone):
            await trio.sleep(0.01)
            gc.collect()
    await connection.close()


async def test_a_cancelled_call_waits_for_its_statement() -> None:
    connection = TrioConnection(connector)
    await connection
    begun, go_on = threading.Event(), threading.Event()
    done = []

    def work(db: sqlite3.Connection) -> None:
        begun.set()
        go_on.wait()
        done.append(True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.call, work)
        await trio.to_thread.run_sync(begun.wait)
        nursery.cancel_scope.cancel()
        go_on.set()
    assert done == [True]
    await connection.close()


async def test_a_connection_that_cannot_be_made_leaves_no_thread() -> None:
    before = threading.active_count()

    def fail():
        raise sqlite3.OperationalError("no")

    with pytest.raises(sqlite3.OperationalError):
        await TrioConnection(fail)
    await trio.testing.wait_all_tasks_blocked()
    assert threading.active_count() <= before + 1


async def test_a_closed_log_leaves_no_thread_of_a_connection(tmp_path) -> None:
    def connections() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if "connection" in thread.name.lower() or thread.name.startswith("Thread-")}

    before = connections()  # of whatever ran here before, and may end meanwhile
    async with opened(tmp_path / "app.db") as log, trio.open_nursery() as nursery:
        await log.append(1)
        for _ in range(9):
            nursery.start_soon(log.count)
    assert connections() <= before


async def test_a_reader_that_is_in_use_while_its_log_closes_is_closed_as_well(tmp_path) -> None:
    before = threading.active_count()
    begun, go_on = threading.Event(), threading.Event()

    def slow():
        begun.set()
        go_on.wait()
        return 7
        yield

    async with trio.open_nursery() as nursery:
        async with opened(tmp_path / "app.db") as log:
            nursery.start_soon(partial(log.run, slow()))
            await trio.to_thread.run_sync(begun.wait)
        go_on.set()
    assert threading.active_count() <= before + 2


def test_rows_that_were_read_by_half_outlive_their_connection() -> None:
    """As the frames of an error do; under pytest, what is raised while they are forgotten fails the test."""
    db = connector()
    db.executescript("CREATE TABLE keys (key BLOB PRIMARY KEY); INSERT INTO keys VALUES (x'01'), (x'02'), (x'03')")
    rows = iter(_select_in(db, "SELECT key FROM keys WHERE key IN", [b"\1", b"\2", b"\3"]))
    assert next(rows) == (b"\1",)
    db.close()
    del rows
    gc.collect()
