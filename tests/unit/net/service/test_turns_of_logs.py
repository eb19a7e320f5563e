"""Turns between the logs of a process: a log to which much comes at once leaves room for what comes to others."""

from __future__ import annotations

import gc
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from network_support import memory_log

from gossiplog import Entry, GossipLog, Verdict
from gossiplog.broadcast.allowance import Bringer
from gossiplog.broadcast.log_turns import LIGHT_BURST, PART, PIECE
from gossiplog.net.service.service import Service, open_service

MANY = 6 * PIECE


async def chain(number: int, topic: str, count: int) -> list[tuple[bytes, bytes]]:
    """Entries, each upon the one before, as a sync brings them."""
    async with memory_log(number, topic) as log:
        return [(entry.key, entry.value) for entry in await log.append_many(list(range(count)))]


@asynccontextmanager
async def served(number: int, topic: str) -> AsyncIterator[tuple[GossipLog, Service, list[int]]]:
    """A log on the network, and how many entries each of its commits had."""
    commits: list[int] = []

    def note(entries: Sequence[Entry]) -> None:
        commits.append(len(entries))

    async with memory_log(number, topic) as log, open_service(log) as service:
        with log.watch_commits(note):
            yield log, service, commits


async def test_sync_of_a_log_that_is_alone_is_one_commit() -> None:
    entries = await chain(1, "flooded", MANY)
    async with served(2, "flooded") as (_, service, commits):
        verdicts = await service.intake.take_in("sync", entries, Bringer())
        assert all(verdict.is_new for verdict in verdicts)
        assert commits == [MANY]


async def test_large_sync_beside_another_log_goes_in_in_pieces_between_which_that_log_has_its_turn() -> None:
    entries, posts = await chain(1, "flooded", MANY), await chain(1, "quiet", LIGHT_BURST)
    async with served(2, "flooded") as (_, flooded, commits), served(3, "quiet") as (_, quiet, _):
        await quiet.intake.take_in("post", posts[:1], Bringer())
        between: list[int] = []
        async with trio.open_nursery() as nursery:

            async def sync() -> None:
                verdicts = await flooded.intake.take_in("sync", entries, Bringer())
                # In order, though each piece is verified in another task.
                assert all(verdict.is_new for verdict in verdicts)
                nursery.cancel_scope.cancel()

            nursery.start_soon(sync)
            for post in posts[1:]:
                (verdict,) = await quiet.intake.take_in("post", [post], Bringer())
                assert verdict.is_new
                between.append(len(commits))
                while len(commits) == between[-1]:
                    await trio.sleep(0.001)
        assert max(commits) <= PIECE and sum(commits) == MANY
        assert len(set(between)) > 2, "entries of the other log came in between"


async def test_piece_is_verified_by_parts_only_while_logs_contend(monkeypatch: pytest.MonkeyPatch) -> None:
    verified: list[int] = []
    verify_many = GossipLog.verify_many

    async def count(log: GossipLog, values: Sequence[bytes]) -> list[Verdict]:
        verified.append(len(values))
        return await verify_many(log, values)

    monkeypatch.setattr(GossipLog, "verify_many", count)
    entries, posts = await chain(1, "flooded", 2 * PIECE), await chain(1, "quiet", 1)
    async with served(2, "flooded") as (_, flooded, _), served(3, "quiet") as (_, quiet, _):
        await flooded.intake.take_in("sync", entries[:PIECE], Bringer())
        assert verified == [PIECE]
        await quiet.intake.take_in("post", posts, Bringer())
        verdicts = await flooded.intake.take_in("sync", entries[PIECE:], Bringer())
        assert all(verdict.is_new for verdict in verdicts)
        assert set(verified[1:]) == {PART}


async def test_sync_whose_caller_is_cancelled_ends_with_the_piece_that_is_under_way() -> None:
    entries, posts = await chain(1, "flooded", MANY), await chain(1, "quiet", 2)
    async with served(2, "flooded") as (log, flooded, commits), served(3, "quiet") as (_, quiet, _):
        await quiet.intake.take_in("post", posts[:1], Bringer())
        with trio.CancelScope() as scope, log.watch_commits(lambda entries: scope.cancel()):
            await flooded.intake.take_in("sync", entries, Bringer())
        assert scope.cancelled_caught and 0 < sum(commits) <= PIECE
        # The rest is left to the next sync, and nobody waits for its turn.
        (verdict,) = await quiet.intake.take_in("post", posts[1:], Bringer())
        assert verdict.is_new
        assert all(verdict.accepted for verdict in await flooded.intake.take_in("sync", entries, Bringer()))
        assert sum(commits) == MANY


async def test_service_that_ends_tells_of_what_it_has_not_taken_in() -> None:
    entries, posts = await chain(1, "flooded", MANY), await chain(1, "quiet", 1)
    async with served(3, "quiet") as (_, quiet, _), served(2, "flooded") as (log, flooded, _):
        await quiet.intake.take_in("post", posts, Bringer())
        with log.watch_commits(lambda entries: flooded.stop()):
            verdicts = await flooded.intake.take_in("sync", entries, Bringer())
        stored = sum(verdict.is_new for verdict in verdicts)
        assert len(verdicts) == MANY and stored < MANY and {verdict.rule for verdict in verdicts[-1:]} == {"storage"}
        # Nobody waits for its turn.
        (verdict,) = await quiet.intake.take_in("post", (await chain(4, "quiet", 1)), Bringer())
        assert verdict.is_new


@pytest.mark.parametrize("has_other", [False, True])
async def test_threads_give_the_lock_away_sooner_and_collect_less_garbage_only_while_logs_contend(*, has_other: bool) -> None:
    usual, collects = sys.getswitchinterval(), gc.get_threshold()
    entries, posts = await chain(1, "flooded", MANY), await chain(1, "quiet", 1)
    async with served(2, "flooded") as (_, flooded, _), served(3, "quiet") as (_, quiet, _):
        if has_other:
            await quiet.intake.take_in("post", posts, Bringer())
        await flooded.intake.take_in("sync", entries, Bringer())
        assert (sys.getswitchinterval() < usual) is (gc.get_threshold()[2] > collects[2]) is has_other
    assert (sys.getswitchinterval(), gc.get_threshold()) == (usual, collects)


@pytest.mark.parametrize("steps", range(0, 60, 6))
async def test_log_that_ends_while_its_work_waits_leaves_their_turns_to_the_others(steps: int) -> None:
    ends, goes_on, posts = await chain(1, "ends", MANY), await chain(1, "lasting", MANY), await chain(1, "quiet", 1)
    async with served(3, "quiet") as (_, quiet, _), served(4, "lasting") as (_, other, commits), trio.open_nursery() as nursery:
        await quiet.intake.take_in("post", posts, Bringer())
        async with served(2, "ends") as (_, service, _):
            nursery.start_soon(other.intake.take_in, "sync", goes_on, Bringer())
            for first in range(0, MANY, PIECE // 2):
                nursery.start_soon(service.intake.take_in, "sync", ends[first : first + PIECE // 2], Bringer())
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
        with trio.fail_after(60):
            while sum(commits) < MANY:
                await trio.sleep(0.001)
