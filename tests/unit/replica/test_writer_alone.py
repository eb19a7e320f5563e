"""What comes alone: it waits for nobody in the event loop, and is written as what goes through the queue."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from busy_loop import busy_neighbour
from log_support import SIGNERS, all_of, assert_whole, make, opened

from gossiplog import GossipLog
from gossiplog.entry.validation import Verdict
from gossiplog.errors import ClosedError, StorageFull


class HeldSigner:
    """A signer that waits, in the thread that writes, until it may sign: what is committed meanwhile is under way."""

    did, codec = SIGNERS[0].did, SIGNERS[0].codec

    def __init__(self) -> None:
        self.begun, self.may_sign = threading.Event(), threading.Event()

    def sign(self, data: bytes) -> bytes:
        self.begun.set()
        self.may_sign.wait()
        return SIGNERS[0].sign(data)


class Broken:
    """A signer that cannot."""

    did, codec = SIGNERS[0].did, SIGNERS[0].codec

    def sign(self, data: bytes) -> bytes:
        raise RuntimeError("no key")


@asynccontextmanager
async def idle_log(folder: Path) -> AsyncIterator[GossipLog]:
    """Open a log whose writer waits for work."""
    async with opened(folder / "app.db") as log:
        await trio.testing.wait_all_tasks_blocked()
        yield log


@asynccontextmanager
async def under_way(log: GossipLog, payload: Any, outcomes: list[Any]) -> AsyncIterator[tuple[trio.CancelScope, Callable[[], None]]]:
    """Hold an append while it is under way; it goes on when the function is called, at the end of the block at the latest."""
    signer, scope = HeldSigner(), trio.CancelScope()

    async def append() -> None:
        try:
            with scope:
                outcomes.append(await log.append(payload, signer=signer))
        except Exception as error:
            outcomes.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(append)
        await trio.to_thread.run_sync(signer.begun.wait)
        try:
            yield scope, signer.may_sign.set
        finally:
            signer.may_sign.set()


async def test_an_append_that_comes_alone_waits_for_a_busy_neighbour_twice_at_most(tmp_path: Path) -> None:
    """Each round of a busy event loop is time that a caller waits: one until the store is heard of, and one until the caller is."""
    async with idle_log(tmp_path) as log, busy_neighbour(0.02) as rounds:
        waited = []
        for number in range(12):
            before = rounds()
            await log.append(number)
            waited.append(rounds() - before)
        # The store's thread may be late, where others keep the cores busy.
        assert min(waited) <= 2
        await assert_whole(log)


async def test_a_hundred_who_append_all_the_time_are_all_served(tmp_path: Path) -> None:
    """Nobody is passed over: whoever has had an answer waits until the others have had theirs."""
    served = [0] * 100
    async with idle_log(tmp_path) as log, trio.open_nursery() as nursery:

        async def append(number: int) -> None:
            while min(served) < 5:
                await log.append(number)
                served[number] += 1
                assert served[number] <= min(served) + 2

        for number in range(100):
            nursery.start_soon(append, number)


async def test_tasks_that_append_at_once_share_commits_soon_though_they_began_apart(tmp_path: Path) -> None:
    """Two groups that took turns would cost each task two commits."""
    signers = [HeldSigner(), HeldSigner()]
    async with idle_log(tmp_path) as log:

        async def append(signer: HeldSigner | None) -> None:
            await log.append("first", signer=signer)
            for number in range(9):
                await log.append(number)

        async with trio.open_nursery() as nursery:
            for signer in signers:
                nursery.start_soon(append, signer)
                await trio.testing.wait_all_tasks_blocked()
                for _ in range(31):
                    nursery.start_soon(append, None)
                await trio.testing.wait_all_tasks_blocked()
            for signer in signers:
                await trio.to_thread.run_sync(signer.begun.wait)
                signer.may_sign.set()
        assert log.writer.commits.count <= 14
        assert await log.count() == 640
        await assert_whole(log)


async def test_what_comes_while_one_is_under_way_follows_it_in_one_line(tmp_path: Path) -> None:
    outcomes = list[Any]()
    told = list[list[Verdict] | BaseException]()
    async with idle_log(tmp_path) as log:
        elsewhere = await log.verify_many([make("elsewhere", signer=SIGNERS[1]).value])

        async def append(number: int) -> None:
            outcomes.append(await log.append(number))

        async with trio.open_nursery() as nursery, under_way(log, "alone", outcomes) as (_, go_on):
            for number in range(3):
                nursery.start_soon(append, number)
                await trio.testing.wait_all_tasks_blocked()
            assert log.insert_then(elsewhere, told.append)
            assert log.writer.waiting == 4 and outcomes == [] and told == []
            go_on()
        assert outcomes[0].payload == "alone"
        async with log.subscribe() as events:
            stored = [await anext(events) for _ in range(5)]
        assert [entry.payload for entry in stored] == ["alone", 0, 1, 2, "elsewhere"]
        assert [entry.parent_keys for entry in stored[:4]] == [(), *[(entry.key,) for entry in stored[:3]]]
        assert [len(outcome) for outcome in told if isinstance(outcome, list)] == [1]
        await assert_whole(log)


async def test_the_outcome_of_an_insert_that_comes_alone_is_told_later(tmp_path: Path) -> None:
    told = list[list[Verdict] | BaseException]()
    async with idle_log(tmp_path) as log:
        verdicts = await log.verify_many([make("elsewhere", signer=SIGNERS[1]).value])
        assert log.insert_then(verdicts, told.append)
        assert told == [] and log.writer.waiting == 0
        await log.append("next")
        (outcome,) = told
        assert isinstance(outcome, list) and outcome[0].is_new
        (entry,) = [entry for entry in await all_of(log) if entry.payload == "next"]
        assert entry.parent_keys == (verdicts[0].entry.key,)  # type: ignore[union-attr]


async def test_a_caller_that_is_cancelled_leaves_at_once_and_its_append_is_done(tmp_path: Path) -> None:
    outcomes = list[Any]()
    async with idle_log(tmp_path) as log:
        async with under_way(log, "alone", outcomes) as (scope, _):
            scope.cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert scope.cancelled_caught
        await log.append("next")
        assert outcomes == []
        assert [entry.payload for entry in await all_of(log)] == ["alone", "next"]
        await assert_whole(log)


async def test_what_fails_alone_is_its_callers_error_and_the_next_one_is_written(tmp_path: Path) -> None:
    async with idle_log(tmp_path) as log:
        await log.append("first")
        with pytest.raises(RuntimeError, match="no key"):
            await log.append("not signed", signer=Broken())
        assert log.writer.failures == {}
        pages = await log._store._writer.call(lambda db: db.execute("PRAGMA page_count").fetchone()[0])
        await log._store._writer.call(lambda db: db.execute(f"PRAGMA max_page_count = {pages}").fetchone())
        with pytest.raises(StorageFull, match=r"no space left for .*app\.db"):
            for number in range(100):
                await log.append([number, "x" * 900])
        assert log.writer.failures == {"StorageFull": 1} and log.writer.failure is not None
        await log._store._writer.call(lambda db: db.execute("PRAGMA max_page_count = 1000000").fetchone())
        await log.append("last")
        assert log.writer.failure is None
        await assert_whole(log)


async def test_a_log_that_is_closed_waits_for_what_is_under_way(tmp_path: Path) -> None:
    outcomes = list[Any]()
    async with trio.open_nursery() as nursery, idle_log(tmp_path) as log, under_way(log, "alone", outcomes) as (_, go_on):
        nursery.start_soon(append_late, log, outcomes)
        await trio.testing.wait_all_tasks_blocked()
        log.writer.close()
        with pytest.raises(ClosedError):
            await log.append("too late")
        assert outcomes == []
        go_on()
    assert [entry.payload for entry in outcomes] == ["alone", "waited"]
    async with opened(tmp_path / "app.db") as log:
        assert [entry.payload for entry in await all_of(log)] == ["alone", "waited"]
        await assert_whole(log)


async def append_late(log: GossipLog, outcomes: list[Any]) -> None:
    outcomes.append(await log.append("waited"))


async def test_a_log_that_is_cancelled_waits_for_what_is_under_way_and_nothing_else(tmp_path: Path) -> None:
    outcomes, signer = list[Any](), HeldSigner()

    async def append(log: GossipLog, payload: str) -> None:
        try:
            outcomes.append(await log.append(payload, signer=signer))
        except ClosedError as error:
            outcomes.append(error)

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with idle_log(tmp_path) as log:
                for payload in ("alone", "waits"):
                    nursery.start_soon(append, log, payload)
                    await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
                nursery.start_soon(let, signer)
                await trio.sleep_forever()
    assert outcomes[0].payload == "alone" and isinstance(outcomes[1], ClosedError)
    async with opened(tmp_path / "app.db") as log:
        assert [entry.payload for entry in await all_of(log)] == ["alone"]
        await assert_whole(log)


async def let(signer: HeldSigner) -> None:
    await trio.testing.wait_all_tasks_blocked()
    signer.may_sign.set()


async def test_a_listener_that_raises_ends_the_log_and_not_the_event_loop(tmp_path: Path) -> None:
    outcomes = list[Any]()

    def fail(entries: object) -> None:
        raise ZeroDivisionError("of a listener")

    async with trio.open_nursery() as nursery:
        with pytest.RaisesGroup(pytest.RaisesExc(ZeroDivisionError, match="of a listener"), flatten_subgroups=True):
            async with idle_log(tmp_path) as log:
                with log.watch_commits(fail):
                    nursery.start_soon(append_committed, log, outcomes)
                    await trio.sleep_forever()
    # It is committed, and its caller hears so.
    (appended,) = outcomes
    async with opened(tmp_path / "app.db") as log:
        assert await all_of(log) == [appended]
        await assert_whole(log)


async def append_committed(log: GossipLog, outcomes: list[Any]) -> None:
    outcomes.append(await log.append("committed"))
