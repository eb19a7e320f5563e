"""The queue before a log's writer: bounded, and emptied in the order in which it was filled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio
import trio.testing
from network_support import memory_log

from gossiplog import Entry, GossipLog
from gossiplog.entry.validation import Verdict
from gossiplog.errors import ClosedError
from gossiplog.log.writing import WAITING_MAX


@contextmanager
def held_back(log: GossipLog, monkeypatch: pytest.MonkeyPatch) -> Iterator[trio.Event]:
    """Let no commit begin before an event that is set, at the end of the block at the latest."""
    write, may_commit = log._store.write, trio.Event()

    async def held(plan: Any) -> Any:
        await may_commit.wait()
        return await write(plan)

    monkeypatch.setattr(log._store, "write", held)
    yield may_commit
    may_commit.set()


async def test_appends_beyond_the_queue_wait_and_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    more = 50
    appended, told = list[Entry](), list[list[Verdict] | BaseException]()
    async with memory_log(1) as log, memory_log(2) as author:
        verdicts = await log.verify_many([(await author.append("from elsewhere")).value])

        async def append(number: int) -> None:
            appended.append(await log.append(number))

        async with trio.open_nursery() as nursery:
            with held_back(log, monkeypatch) as may_commit:
                nursery.start_soon(append, 0)
                await trio.testing.wait_all_tasks_blocked()
                for number in range(WAITING_MAX + more):
                    nursery.start_soon(append, number)
                await trio.testing.wait_all_tasks_blocked()
                assert log.writer.waiting == WAITING_MAX
                assert not log.insert_then(verdicts, told.append)
                may_commit.set()
        assert len(appended) == await log.count() == 1 + WAITING_MAX + more
        assert log.insert_then(verdicts, told.append)
        await trio.testing.wait_all_tasks_blocked()
        (outcome,) = told
        assert not isinstance(outcome, BaseException) and outcome[0].is_new


async def test_log_that_is_closed_commits_what_waits_and_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[list[Verdict] | BaseException]()
    async with memory_log(1) as log, memory_log(2) as author:
        verdicts = await log.verify_many([(await author.append("from elsewhere")).value])
        with held_back(log, monkeypatch):
            assert log.insert_then(verdicts, told.append)
            await trio.testing.wait_all_tasks_blocked()
            log.writer.close()
            with pytest.raises(ClosedError):
                log.insert_then(verdicts, told.append)
            with pytest.raises(ClosedError):
                await log.append("late")
            assert told == []
        await trio.testing.wait_all_tasks_blocked()
        (outcome,) = told
        assert not isinstance(outcome, BaseException) and outcome[0].is_new
        assert await log.count() == 1
