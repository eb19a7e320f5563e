"""The server goes away, comes back, or is slow: callers wait or are told, and nothing is half done, lost or doubled."""

import asyncio
import os
import secrets
from collections.abc import Iterator

import asyncpg
import pytest
import trio
import trio.testing
from log_support import SIGNERS, all_of, assert_whole, make, opened
from postgres_support import PostgresServer, running_server

from gossiplog.errors import ClosedError, CommitError, ConnectionLost, LogBusy, StoreUnavailable
from gossiplog.log.requests import ReadCount
from gossiplog.plan import ask
from gossiplog.store.postgres import pool as postgres_pool
from gossiplog.store.postgres.errors import DatabaseFailed
from gossiplog.store.postgres.transactions import Fetcher


@pytest.fixture(scope="module")
def frail() -> Iterator[PostgresServer]:
    """A server that tests may stop."""
    with running_server() as server:
        yield server


@pytest.fixture
def standing(frail: PostgresServer) -> PostgresServer:
    """The same, running."""
    if not frail.is_running:
        frail.start()
    return frail


@pytest.mark.parametrize("way", ["stop", "immediate", "kill"])
async def test_callers_wait_for_a_server_that_restarts(standing, way) -> None:
    async with opened(standing.new_log(), durability="full") as log:
        await log.append_many(range(20))
        done: list[object] = []

        async def append(number: int) -> None:
            done.append((await log.append(["during", number])).message.payload)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(append, 0)
            ways = {"kill": standing.kill, "stop": standing.stop, "immediate": lambda: standing.stop("immediate")}
            await trio.to_thread.run_sync(ways[way])
            for number in range(1, 20):
                nursery.start_soon(append, number)
            nursery.start_soon(log.count)
            await trio.testing.wait_all_tasks_blocked(0.02)
            await trio.to_thread.run_sync(standing.start)
        stored = [entry.message.payload for entry in await all_of(log)][20:]
        # The one whose connection broke under it, too: nothing of it was stored, so it was done again.
        assert sorted(done) == sorted(stored) == [["during", number] for number in range(20)]
        await assert_whole(log)


async def test_a_caller_that_waits_for_a_server_can_be_cancelled_and_one_that_waits_too_long_is_told(standing, monkeypatch) -> None:
    async with opened(standing.new_log()) as log:
        entry = await log.append(1)
        await trio.to_thread.run_sync(standing.stop)
        with trio.move_on_after(0.2) as scope:
            await log.get(entry.id)
        assert scope.cancelled_caught
        # A cancelled append goes on waiting for the server, and those after it wait for that.
        monkeypatch.setattr(postgres_pool, "PATIENCE_S", 0.6)
        with trio.move_on_after(0.2) as scope:
            await log.append(2)
        assert scope.cancelled_caught
        with pytest.raises(StoreUnavailable, match="the server does not answer"):
            await log.get(entry.id)
        with pytest.raises(StoreUnavailable):
            await log.append(3)
        monkeypatch.setattr(postgres_pool, "PATIENCE_S", 30)
        await trio.to_thread.run_sync(standing.start)
        await log.append(4)
        await assert_whole(log)


async def test_a_log_is_closed_at_once_though_its_server_is_gone(standing) -> None:
    with trio.fail_after(10):
        async with opened(standing.new_log()) as log:
            await log.append(1)
            async with log.subscribe() as events:
                await anext(events)
                await trio.to_thread.run_sync(standing.kill)
    with pytest.raises(ClosedError):
        await log.count()


class Break:
    """Breaks the connection at a COMMIT: before it is sent, or when it was done and only the answer is missing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_done: bool, times: int = 1) -> None:
        self.left = times
        execute = Fetcher.execute

        async def breaking(fetcher: Fetcher, script: str) -> None:
            if not script.endswith("COMMIT") or self.left == 0:
                await execute(fetcher, script)
                return
            self.left -= 1
            if is_done:
                await execute(fetcher, script)
            fetcher._connection.terminate()
            raise DatabaseFailed(ConnectionResetError("the cable is cut"))

        monkeypatch.setattr(Fetcher, "execute", breaking)


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("has_apply", [True, False])
async def test_a_commit_whose_answer_is_lost_is_done_once(postgres, monkeypatch, is_done, has_apply) -> None:
    async def apply(entries, tx) -> None:
        pass

    async with opened(postgres.new_log(), apply=apply if has_apply else None) as log:
        await log.append("first")
        breaker = Break(monkeypatch, is_done=is_done)
        entry = await log.append("second")
        assert breaker.left == 0
        verdicts = await log.insert_many([make(number).value for number in range(300)])
        assert all(verdict.is_new for verdict in verdicts)
        breaker.left = 1
        await log.append_many(range(5))
        assert [entry.message.payload for entry in await all_of(log)].count("second") == 1
        assert await log.has(entry.id)
        assert await log.count() == 307
        await assert_whole(log)


@pytest.mark.parametrize("has_apply", [True, False])
async def test_a_write_whose_connection_breaks_before_its_commit_is_begun_again(postgres, monkeypatch, has_apply) -> None:
    async def apply(entries, tx) -> None:
        await tx.execute("SELECT 1")

    async with opened(postgres.new_log(), apply=apply if has_apply else None) as log:
        await log.append("first")
        fetch, left = Fetcher.__call__, 3

        async def breaking(fetcher: Fetcher, statement: str, *parameters: object) -> list[object]:
            nonlocal left
            if left == 0:
                return await fetch(fetcher, statement, *parameters)
            left -= 1
            fetcher._connection.terminate()
            # What asyncpg says when the server's last words come between two messages of a request.
            raise DatabaseFailed(asyncpg.InternalClientError("cannot switch to state 12; another operation (2) is in progress"))

        monkeypatch.setattr(Fetcher, "__call__", breaking)
        await log.append("second")
        assert left == 0
        assert [entry.message.payload for entry in await all_of(log)] == ["first", "second"]
        await assert_whole(log)


async def test_a_commit_is_done_again_as_often_as_it_is_lost(postgres, monkeypatch) -> None:
    async with opened(postgres.new_log()) as log:
        Break(monkeypatch, is_done=False, times=4)
        await log.append(1)
        assert await log.count() == 1


async def test_a_commit_that_was_lost_is_planned_again_when_another_process_has_written_since(postgres, monkeypatch) -> None:
    url = postgres.new_log()
    async with opened(url) as log, opened(url, signer=SIGNERS[1]) as other:
        await log.append(1)
        begin = log._store._database.begin
        is_first = True

        async def begin_late(call):
            nonlocal is_first
            if not is_first:
                # Between the loss and the question what became of it.
                log._store._database.begin = begin
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asyncio.sleep(0), asyncio.get_running_loop()))
                trio.from_thread.run(other.append, "between", trio_token=token)
            is_first = False
            return await begin(call)

        token = trio.lowlevel.current_trio_token()
        Break(monkeypatch, is_done=False)
        log._store._database.begin = begin_late
        await log.append(2)
        first, between, second = await all_of(log)
        assert [entry.message.payload for entry in (first, between, second)] == [1, "between", 2]
        assert second.message.parents == (between.id,)
        await assert_whole(log)


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_lost_commit_without_an_entry_is_not_called_undone(postgres, monkeypatch, is_done) -> None:
    """Nothing in the log says whether what an application wrote was committed."""
    async with opened(postgres.new_log()) as log:
        await log.append("first")
        Break(monkeypatch, is_done=is_done)
        with pytest.raises(StoreUnavailable, match="nobody can say") as raised:
            async with log._store.transaction() as tx:
                await tx.execute(f"CREATE TABLE notes_{is_done} (text text)")
        assert not isinstance(raised.value, ConnectionLost)
        await log.append("second")
        await assert_whole(log)


async def test_a_cursor_is_moved_though_the_connection_is_lost(postgres, monkeypatch) -> None:
    async with opened(postgres.new_log()) as log:
        entries = await log.append_many(range(4))
        async with log.subscribe(cursor="x") as events:
            for _ in range(3):
                last = await anext(events)
            Break(monkeypatch, is_done=False)
            await events.ack(last)
        async with log.subscribe(cursor="x") as events:
            assert (await anext(events)).key == entries[3].key


async def test_a_read_whose_connection_is_killed_is_told_and_the_next_one_works(postgres) -> None:
    url = postgres.new_log()
    async with opened(f"{url}&application_name=victim") as log:
        await log.append_many(range(10))
        async with log.snapshot() as snapshot:
            assert await snapshot.run(ask(ReadCount())) == (10, 10)
            kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'victim'"
            await trio.to_thread.run_sync(postgres.sql, kill)
            with pytest.raises(StoreUnavailable):
                await snapshot.run(ask(ReadCount()))
        assert await log.count() == 10
        await log.append(11)
        await assert_whole(log)


async def test_a_process_that_holds_the_lock_for_too_long_is_named_as_the_reason(postgres) -> None:
    url = postgres.new_log()
    async with opened(f"{url}&lock_timeout=100") as log, opened(url, signer=SIGNERS[1]) as other:
        await log.append(1)
        async with other._store.transaction():
            with pytest.raises(LogBusy, match=rf"^gossiplog, process {os.getpid()} on .* \(server process \d+\) has been writing"):
                await log.append(2)
        await log.append(3)
        assert await log.count() == 2


async def test_a_process_that_hangs_within_a_transaction_loses_it(postgres) -> None:
    url = postgres.new_log()
    async with opened(url) as log, opened(f"{url}&idle_in_transaction_session_timeout=200", signer=SIGNERS[1]) as other:
        hanging = trio.Event()

        async def hang() -> None:
            with pytest.raises(StoreUnavailable):
                async with other._store.transaction() as transaction:
                    hanging.set()
                    await log.append("meanwhile")
                    await transaction.execute("SELECT 1")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hang)
            await hanging.wait()
        assert await log.count() == 1
        await other.append("goes on")
        await assert_whole(log)


async def test_an_application_whose_table_others_hold_is_told_and_nothing_is_stored(postgres) -> None:
    table = f"held{secrets.token_hex(3)}"

    async def apply(entries, tx) -> None:
        await tx.execute(f"UPDATE {table} SET a = a + 1")

    await postgres_execute(postgres, f"CREATE TABLE {table} (a INTEGER); INSERT INTO {table} VALUES (1)")
    async with opened(f"{postgres.new_log()}&lock_timeout=300", apply=apply) as log:
        await log.append("fine")
        locked, release = trio.Event(), trio.Event()

        def hold() -> None:
            async def run() -> None:
                connection = await asyncpg.connect(postgres.url())
                try:
                    async with connection.transaction():
                        await connection.execute(f"UPDATE {table} SET a = 9")
                        trio.from_thread.run_sync(locked.set)
                        await asyncio.to_thread(trio.from_thread.run, release.wait, trio_token=token)
                finally:
                    await connection.close()

            asyncio.run(run())

        token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, hold)
            await locked.wait()
            try:
                with pytest.raises(CommitError, match="lock timeout"):
                    await log.append("waits")
            finally:
                release.set()
        await log.append("again")
        assert await log.count() == 2
        await assert_whole(log)


async def postgres_execute(server: PostgresServer, statement: str) -> None:
    await trio.to_thread.run_sync(server.sql, statement)
