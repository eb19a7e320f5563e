"""Following a log: subscriptions and durable cursors."""

from contextlib import suppress
from random import Random
from typing import Any

import pytest
import trio
import trio.testing
from log_support import make

from gossiplog.entry import Entry
from gossiplog.errors import LocalProtocolError, StorageFull, StoreError
from gossiplog.log.requests import WriteCursor
from gossiplog.replica import subscription
from gossiplog.replica.subscription import Subscription


async def take(events, count: int) -> list[Entry]:
    return [await anext(events) for _ in range(count)]


async def test_a_follower_gets_what_is_there_and_what_comes(open_log) -> None:
    async with open_log() as log, trio.open_nursery() as nursery:
        await log.append_many(range(300))
        got: list[object] = []

        async def follow() -> None:
            async with log.subscribe() as events:
                async for entry in events:
                    got.append(entry.message.payload)
                    if len(got) == 303:
                        return

        nursery.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(300, 303):
            await log.append(number)
    assert got == list(range(303))


async def test_a_follower_from_now_gets_only_what_comes(open_log) -> None:
    async with open_log() as log:
        await log.append_many(range(10))
        async with log.subscribe(from_now=True) as events:
            await log.append("next")
            assert [entry.message.payload for entry in await take(events, 1)] == ["next"]


async def test_followers_get_entries_in_the_order_of_their_arrival(open_log) -> None:
    async with open_log() as log:
        await log.append_many(range(5))
        late = make("low clock, late arrival")
        await log.insert(late.value)
        async with log.subscribe() as events:
            assert (await take(events, 6))[-1].key == late.key


async def test_a_cursor_goes_on_behind_what_was_acknowledged(open_log) -> None:
    async with open_log() as log:
        entries = await log.append_many(range(20))
        async with log.subscribe(cursor="indexer") as events:
            got = await take(events, 10)
            await events.ack(got[4])
        async with log.subscribe(cursor="indexer") as events:
            assert [entry.key for entry in await take(events, 15)] == [entry.key for entry in entries[5:]]
        async with log.subscribe(cursor="other") as events:
            assert (await take(events, 1))[0].key == entries[0].key


async def test_a_cursor_survives_the_end_of_the_process(open_durable) -> None:
    async with open_durable() as log:
        entries = await log.append_many(range(6))
        async with log.subscribe(cursor="indexer") as events:
            got = await take(events, 4)
            await events.ack(got[2])
    async with open_durable() as log, log.subscribe(cursor="indexer", from_now=True) as events:
        assert [entry.key for entry in await take(events, 3)] == [entry.key for entry in entries[3:]]


class Counted:
    """Counts how often a cursor is written to a log."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self.writes = 0
        self.failure: StoreError | None = None

    async def keep(self, request: WriteCursor) -> None:
        self.writes += 1
        if self.failure is not None:
            raise self.failure
        await self._log.writer.submit(request)


async def test_many_acks_are_one_commit(open_log, mock_clock) -> None:
    async with open_log() as log, trio.open_nursery() as nursery:
        await log.append_many(range(1_000))
        counted = Counted(log)
        events = Subscription(log, "indexer", 0, counted.keep)
        nursery.start_soon(events.keep_acks)
        for _ in range(1_000):
            await events.ack(await anext(events))
        # The first, and, as the clock stands still, all others when they are waited for.
        await events.flush()
        assert counted.writes <= 2
        await events.flush()
        assert counted.writes <= 2
        nursery.cancel_scope.cancel()


async def test_acks_are_kept_however_the_block_ends(open_log) -> None:
    async with open_log() as log:
        entries = await log.append_many(range(20))
        for number in range(6):
            with trio.CancelScope() as scope, suppress(ZeroDivisionError):
                async with log.subscribe(cursor="indexer") as events:
                    got = await take(events, 3)
                    assert got[0].key == entries[3 * number].key
                    await events.ack(got[1])
                    await events.ack(got[2])
                    if number % 3 == 0:
                        scope.cancel()
                        await trio.sleep_forever()
                    assert number % 3 == 1 or 1 / 0


async def test_block_may_be_left_by_another_task_than_entered_it(open_log) -> None:
    async with open_log() as log:
        await log.append(1)

        async def serve():
            async with log.subscribe(cursor="browser") as events:
                async for entry in events:
                    await events.ack(entry)
                    yield entry

        # As a server does that begins a response in one task and sends it in another.
        served = serve()
        await anext(served)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(served.aclose)
        async with log.subscribe(cursor="browser") as events:
            last = await log.append(2)
            assert (await anext(events)).key == last.key


async def test_ack_that_could_not_be_kept_is_told_and_tried_again(open_log, autojump_clock) -> None:
    async with open_log() as log, trio.open_nursery() as nursery:
        await log.append_many(range(4))
        counted = Counted(log)
        counted.failure = StorageFull("no space")
        events = Subscription(log, "indexer", 0, counted.keep)
        nursery.start_soon(events.keep_acks)
        await events.ack(await anext(events))
        await trio.sleep(1)
        with pytest.raises(StorageFull):
            await events.ack(await anext(events))
        with pytest.raises(StorageFull):
            await events.flush()
        counted.failure = None
        await events.flush()
        nursery.cancel_scope.cancel()
        async with log.subscribe(cursor="indexer") as again:
            assert (await take(again, 1))[0].message.payload == 2


async def test_a_name_that_is_new_begins_with_now_if_that_is_wanted(open_log) -> None:
    async with open_log() as log:
        await log.append(1)
        async with log.subscribe(cursor="indexer", from_now=True) as events:
            await log.append(2)
            assert (await take(events, 1))[0].message.payload == 2


async def test_acknowledging_what_was_not_delivered_is_a_mistake(open_log) -> None:
    async with open_log() as log:
        entries = await log.append_many(range(3))
        async with log.subscribe() as events:
            with pytest.raises(LocalProtocolError, match="without a cursor"):
                await events.ack((await take(events, 1))[0])
        async with log.subscribe(cursor="indexer") as events:
            (first,) = await take(events, 1)
            with pytest.raises(LocalProtocolError, match="not waiting"):
                await events.ack(entries[2])
            await events.ack(first)
            with pytest.raises(LocalProtocolError, match="not waiting"):
                await events.ack(first)


async def test_the_name_of_a_cursor_has_at_most_500_characters(open_log) -> None:
    # They take the most bytes, and nothing compresses them.
    name = "".join(map(chr, Random(1).sample(range(0x10000, 0x110000), 501)))
    async with open_log() as log:
        await log.append("first")
        async with log.subscribe(cursor=name[1:]) as events:
            await events.ack((await take(events, 1))[0])
        with pytest.raises(LocalProtocolError, match="501 characters"):
            async with log.subscribe(cursor=name):
                pass


async def test_two_followers_cannot_have_one_cursor(open_log) -> None:
    async with open_log() as log, log.subscribe(cursor="indexer"):
        with pytest.raises(LocalProtocolError, match="in use"):
            async with log.subscribe(cursor="indexer"):
                pass
        async with log.subscribe(cursor="other"), log.subscribe(), log.subscribe():
            pass


async def test_a_follower_that_never_acknowledges_is_stopped(open_log, monkeypatch) -> None:
    monkeypatch.setattr(subscription, "UNACKED_MAX", 1_000)
    async with open_log() as log:
        await log.append_many(range(1_001))
        async with log.subscribe(cursor="indexer") as events:
            got = await take(events, 1_000)
            with pytest.raises(LocalProtocolError, match="without an ack"):
                await anext(events)
            await events.ack(got[-1])
            assert (await anext(events)).message.payload == 1_000


async def test_a_cancelled_wait_loses_nothing(open_log) -> None:
    async with open_log() as log, log.subscribe() as events:
        for number in range(5):
            with trio.CancelScope() as scope:
                scope.cancel()
                await anext(events)
            await log.append(number)
            with trio.CancelScope() as scope:
                scope.cancel()
                await anext(events)
            assert (await anext(events)).message.payload == number


@pytest.mark.parametrize("name", ["a\0b", "a\ud800"])
async def test_a_cursor_whose_name_not_every_database_stores_is_refused_by_each(open_log, name: str) -> None:
    async with open_log() as log:
        with pytest.raises(LocalProtocolError, match="cursor"):
            async with log.subscribe(cursor=name):
                pass
