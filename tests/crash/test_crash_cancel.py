"""Cancellation at every step that the event loop makes while something is written.

Each operation is run again and again, cancelled one step later each time, until it gets through. Afterwards the log is whole, has all of
the operation or none of it, and takes the next append.
"""

import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing
from log_support import SIGNERS, all_of, assert_whole, make, opened

from gossiplog.entry import Entry

STEPS_MAX = 400


class CancelAtStep(trio.abc.Instrument):
    """Cancels a scope after the given number of steps of any task, writer and workers included."""

    def __init__(self, scope: trio.CancelScope, step: int) -> None:
        self.scope = scope
        self.left = step

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if self.left == 0:
            self.scope.cancel()


async def cancelled_at(step: int, operation: Callable[[], Awaitable[object]]) -> bool:
    """Run an operation, cancelled at this step; return whether it got through."""
    is_done = False
    with trio.CancelScope() as scope:
        instrument = CancelAtStep(scope, step)
        trio.lowlevel.add_instrument(instrument)
        try:
            await operation()
            is_done = True
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return is_done


async def cancel_everywhere(operation: Callable[[], Awaitable[object]], check: Callable[[bool], Awaitable[None]]) -> int:
    """Cancel an operation at each of its steps in turn; return how many there are."""
    for step in range(1, STEPS_MAX):
        is_done = await cancelled_at(step, operation)
        await check(is_done)
        if is_done:
            return step
    raise AssertionError("it never got through")


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def location(request: pytest.FixtureRequest) -> str | Path:
    """Where to keep a log, in each store in turn."""
    if request.param == "postgres":
        server = request.getfixturevalue("postgres")
        return server.new_log()
    return ":memory:" if request.param == "memory" else request.getfixturevalue("tmp_path") / "app.db"


async def keep(entries, tx) -> None:
    await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("apply", [None, keep])
async def test_an_append_cancelled_anywhere_is_there_whole_or_not_at_all(location, apply) -> None:
    async with opened(location, apply=apply) as log:
        count = number = 0

        async def append() -> None:
            nonlocal number
            number += 1
            await log.append_many([[number, part] for part in range(4)])

        async def check(is_done: bool) -> None:
            nonlocal count
            # This waits for the writer, which may still be at what was cancelled.
            await log.append("next")
            added = [entry.message.payload for entry in (await all_of(log))[count:]]
            whole = [[number, part] for part in range(4)] + ["next"]
            assert added == whole or (added == ["next"] and not is_done)
            count += len(added)
            await assert_whole(log)

        assert await cancel_everywhere(append, check) > 1


def chain(number: int, size: int) -> list[Entry]:
    """Entries in a row, the first one by another author than the rest."""
    entries = [make([number, 0])]
    while len(entries) < size:
        entries.append(make([number, len(entries)], [entries[-1]], SIGNERS[1]))
    return entries


async def test_an_insert_cancelled_anywhere_leaves_whole_histories(location) -> None:
    # More than is verified in one piece and less than one commit; fewer where each attempt is a transaction of a server's.
    size = 120 if str(location).startswith("postgresql") else 300
    async with opened(location) as log:
        batch = chain(0, size)
        count = number = 0

        async def insert() -> None:
            await log.insert_many([entry.value for entry in batch])

        async def check(is_done: bool) -> None:
            nonlocal count, number
            await log.append("next")
            added = await log.count() - count - 1
            assert added == len(batch) or (added == 0 and not is_done)
            count += added + 1
            if added:
                number += 1
                batch[:] = chain(number, size)

        await cancel_everywhere(insert, check)
        await assert_whole(log)


async def test_a_sync_cancelled_anywhere_can_be_done_again(location) -> None:
    async with opened(":memory:", signer=SIGNERS[1]) as other, opened(location) as log:
        await other.append_many(range(150))

        async def sync() -> None:
            await log.sync(other)

        async def check(is_done: bool) -> None:
            if is_done:
                assert {entry.key for entry in await all_of(other)} <= {entry.key for entry in await all_of(log)}
            else:
                await other.append("more")

        await cancel_everywhere(sync, check)
        await assert_whole(log)


@pytest.mark.parametrize("kind", ["read", "iterate", "ancestors", "fsck", "snapshot", "ack", "replay", "repair"])
async def test_anything_else_cancelled_anywhere_leaves_the_log_usable(kind, tmp_path) -> None:
    async with opened(tmp_path / "app.db", apply=keep) as log:
        count = {"fsck": 60, "repair": 4}.get(kind, 300)
        # A repair writes itself; over what is appended, each of the hundreds that follow has to go.
        every, steps = 8 if kind == "repair" else 1, 0
        entries = await log.append_many(range(count))

        async def operation() -> None:
            match kind:
                case "read":
                    await log.is_ancestor(entries[0].id, entries[-1].id)
                case "iterate":
                    assert len(await all_of(log)) >= count
                case "ancestors":
                    assert len([entry async for entry in log.ancestors(entries[-1].id)]) == count - 1
                case "fsck":
                    assert (await log.fsck()).is_clean
                case "repair":
                    with sqlite3.connect(tmp_path / "app.db") as db:
                        db.execute("INSERT OR IGNORE INTO gossiplog_nodes VALUES (0, x'', x'')")
                    db.close()
                    report = await log.fsck(repair=True)
                    assert report.is_clean and report.repaired is not None
                case "snapshot":
                    async with log.snapshot() as snapshot:
                        await snapshot.run(iter_nothing())
                case "ack":
                    async with log.subscribe(cursor="x") as events:
                        await events.ack(await anext(events))
                case "replay":
                    await log.rebuild()

        async def check(is_done: bool) -> None:
            nonlocal steps
            steps += 1
            if steps % every == 0 or is_done:
                await log.append("next")

        await cancel_everywhere(operation, check)
        if kind == "repair":
            await log.fsck(repair=True)
        # All connections that read are still good for it.
        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(all_of, log)
        await assert_whole(log)


def iter_nothing():
    return None
    yield


async def test_a_log_that_is_cancelled_anywhere_with_its_writer_is_whole_when_it_is_opened_again(tmp_path) -> None:
    path = tmp_path / "app.db"
    acknowledged: list[Entry] = []
    number = 0

    async def append_some(log, task: int) -> None:
        for part in range(3):
            acknowledged.extend(await log.append_many([[number, task, part, half] for half in "ab"]))

    async def session() -> None:
        nonlocal number
        number += 1
        async with opened(path, apply=keep) as log, trio.open_nursery() as nursery:
            for task in range(3):
                nursery.start_soon(append_some, log, task)

    async def check(is_done: bool) -> None:
        async with opened(path) as log:
            stored = await all_of(log)
            await assert_whole(log, stored)
        assert {entry.key for entry in acknowledged} <= {entry.key for entry in stored}
        halves = [tuple(entry.message.payload[:3]) for entry in stored]
        assert all(halves.count(half) == 2 for half in set(halves))

    await cancel_everywhere(session, check)


async def test_a_caller_outside_of_a_log_that_ends_is_told(tmp_path) -> None:
    """The log's own block is cancelled while others wait for it; they must not wait for ever."""
    outcomes: list[str] = []

    async def hang(entries, tx) -> None:
        await trio.sleep_forever()

    async def append(log, number: int) -> None:
        try:
            await log.append(number)
        except Exception as error:
            outcomes.append(type(error).__name__)

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with opened(tmp_path / "app.db", apply=hang) as log:
                for number in range(1_500):
                    nursery.start_soon(append, log, number)
                await trio.testing.wait_all_tasks_blocked(0.01)
                scope.cancel()
                await trio.sleep_forever()
    assert outcomes == ["ClosedError"] * 1_500
    async with opened(tmp_path / "app.db") as log:
        assert await log.count() == 0
        await log.append(1)
        await assert_whole(log)
