"""Processes that write without a pause take turns, one that comes now and then is next, and only who listens is told of commits."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import trio
import trio.testing
from log_support import SIGNERS, all_of, assert_whole, opened

from gossiplog import GossipLog
from gossiplog.store.postgres import transactions as postgres_transactions


def set_turn(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(postgres_transactions, "TURN_S", seconds)
    # On a busy machine, too, whoever goes on is one who does.
    monkeypatch.setattr(postgres_transactions, "RETURN_S", 1.0)


async def append_for_ever(log: GossipLog) -> None:
    while True:
        await log.append("busy")


@asynccontextmanager
async def busy(*logs: GossipLog) -> AsyncIterator[None]:
    """Append to each of the logs without a pause for the length of a block; what is cancelled at its end is still committed."""
    async with trio.open_nursery() as nursery:
        for log in logs:
            nursery.start_soon(append_for_ever, log)
        yield
        nursery.cancel_scope.cancel()


async def test_who_writes_without_a_pause_keeps_its_turn_and_hands_it_on(postgres, monkeypatch) -> None:
    set_turn(monkeypatch, 0.2)
    url = postgres.new_log()
    async with opened(url) as a, opened(url, signer=SIGNERS[1]) as b, opened(url, signer=SIGNERS[2]) as c:

        async def append(log: GossipLog, name: int) -> None:
            for _ in range(40):
                await log.append(name)

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for name, log in enumerate((a, b, c)):
                    nursery.start_soon(append, log, name)
        names = [entry.message.payload for entry in await all_of(a)]
        changes = sum(before != after for before, after in pairwise(names))
        # One after the other at every commit it would be 119.
        assert 2 <= changes < 60
        await assert_whole(c)


async def test_a_turn_ends_though_its_writer_never_pauses(postgres) -> None:
    url = postgres.new_log()
    async with opened(url) as a, opened(url, signer=SIGNERS[1]) as b, opened(url, signer=SIGNERS[2]) as c:
        with trio.fail_after(30):
            async with busy(a, b):
                for _ in range(50):
                    await c.append("too")
    async with opened(url) as log:
        await assert_whole(log)


async def test_a_process_that_has_not_written_lately_is_next_and_does_not_end_the_turn(postgres, monkeypatch) -> None:
    set_turn(monkeypatch, 5)
    url = postgres.new_log()
    # A turn lost for each would be 50 s; one or two may be, if the guest leaves while it is looked for.
    with trio.fail_after(30):
        async with opened(url) as a, busy(a):
            for number in range(10):
                async with opened(url, signer=SIGNERS[1]) as b:
                    entry = await b.append(["now and then", number])
                    while await b.heads() == [entry.id]:
                        pass
    async with opened(url) as log:
        await assert_whole(log)


async def test_a_writer_that_waits_for_its_turn_can_be_cancelled_and_the_log_closed(postgres, monkeypatch) -> None:
    set_turn(monkeypatch, 0.5)
    url = postgres.new_log()
    async with opened(url) as a, opened(url, signer=SIGNERS[1]) as b:
        await b.append("first")
        async with a._store.transaction():
            with trio.move_on_after(0.05) as scope:
                await b.append("second")
            assert scope.cancelled_caught
        with trio.fail_after(10):
            await a.append("third")
            await b.append("fourth")
        await assert_whole(a)


async def test_nobody_is_told_of_a_commit_who_does_not_listen(postgres) -> None:
    url = postgres.new_log()
    async with opened(url) as a, opened(url, signer=SIGNERS[1]) as b:
        told = count_notifications(a)
        await a.append("alone")
        assert told == []
        async with b.subscribe() as events:
            while b.poll_s < 1:
                await a.append("early")
                await anext(events)
            before = len(told)
            await a.append("heard")
            assert len(told) == before + 1


async def test_who_begins_to_listen_during_a_commit_that_saw_nobody_hears_of_it_at_its_end(postgres) -> None:
    url = postgres.new_log()
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    async with opened(url) as a, opened(url, signer=SIGNERS[1]) as b:
        woken: list[None] = []
        async with a._store.transaction() as transaction:
            assert not await is_heard(transaction)
            b._store.watch(lambda: woken.append(None))
            with trio.fail_after(10):
                while (await trio.to_thread.run_sync(postgres.sql, waiting))[0][0] == 0:
                    pass
            assert not b._store._database.is_listening and woken == []
        with trio.fail_after(10):
            while not woken:
                await trio.testing.wait_all_tasks_blocked(0.01)
        assert b._store._database.is_listening
        async with a._store.transaction() as transaction:
            assert await is_heard(transaction)


async def is_heard(transaction: Any) -> bool:
    async def look(writing: Any) -> bool:
        return writing.is_heard

    return await transaction._call(look)


def count_notifications(log: GossipLog) -> list[None]:
    """A list that grows with each commit that others are told of."""
    told: list[None] = []
    notifier = log._store._database._notifier
    note = notifier.note

    def count() -> None:
        told.append(None)
        note()

    notifier.note = count
    return told
