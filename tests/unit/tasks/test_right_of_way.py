"""Right of way: which steps of tasks wait for short work, and for how long."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from gossiplog.tasks.right_of_way import PATIENCE_S, Courtesy, giving_way, right_of_way


@pytest.fixture
def busy() -> Courtesy:
    courtesy = Courtesy()
    courtesy.until = inf
    return courtesy


@asynccontextmanager
async def spinning(courtesy: Courtesy) -> AsyncIterator[list[float]]:
    """Run a task that is never done, and note the time of each of its steps."""
    steps: list[float] = []

    async def spin() -> None:
        while True:
            steps.append(trio.current_time())
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(giving_way, courtesy, spin)
        await pass_by(2)
        yield steps
        nursery.cancel_scope.cancel()


async def pass_by(number: int) -> None:
    for _ in range(number):
        await trio.lowlevel.checkpoint()


async def test_busy_task_begins_no_step_while_the_way_is_taken(busy: Courtesy) -> None:
    way = right_of_way()
    async with spinning(busy) as steps:
        way.take("one")
        way.take("two")
        before = len(steps)
        await pass_by(10)
        way.leave("one")
        way.leave("unknown")
        await pass_by(10)
        assert len(steps) == before
        way.leave("two")
        await pass_by(10)
        assert len(steps) > before + 5


async def test_what_the_short_work_has_started_goes_before_the_busy_task(busy: Courtesy) -> None:
    for _ in range(20):
        way, order = right_of_way(), list[str]()

        async def flush() -> None:
            order.append("flush")

        async with spinning(busy) as steps, trio.open_nursery() as nursery:
            way.take("short")
            await pass_by(3)
            before = len(steps)
            nursery.start_soon(flush)
            way.leave("short")
            while len(steps) == before:
                await trio.lowlevel.checkpoint()
            order.append("busy")
        assert order == ["flush", "busy"]


async def test_task_whose_lane_is_not_busy_waits_for_nobody() -> None:
    async with spinning(Courtesy()) as steps:
        right_of_way().take("short")
        before = len(steps)
        await pass_by(10)
        assert len(steps) >= before + 9


async def test_short_work_that_takes_long_has_the_way_for_half_of_the_time_at_most(busy: Courtesy, mock_clock: MockClock) -> None:
    way = right_of_way()
    async with spinning(busy) as steps:
        way.take("stuck")
        for _ in range(20):
            way.take("next")
            before = len(steps)
            await pass_by(10)
            assert len(steps) == before
            mock_clock.jump(PATIENCE_S)
            await pass_by(10)
            assert len(steps) > before, "its patience is over"
            way.leave("next")
            mock_clock.jump(PATIENCE_S)


async def test_outcome_of_a_step_is_what_it_would_have_been(busy: Courtesy) -> None:
    async def fail(event: trio.Event) -> str:
        try:
            await event.wait()
        finally:
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()
        return "done"

    event, outcomes = trio.Event(), list[str]()

    async def call() -> None:
        outcomes.append(await giving_way(busy, fail, event))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)
        await wait_all_tasks_blocked()
        event.set()
    assert outcomes == ["done"]
    with trio.move_on_after(0) as scope:
        await giving_way(busy, fail, trio.Event())
    assert scope.cancelled_caught

    async def wrong() -> None:
        await trio.lowlevel.checkpoint()
        raise KeyError("wrong")

    with pytest.raises(KeyError, match="wrong"):
        await giving_way(busy, wrong)


async def test_cancelled_task_does_not_wait_for_the_way(busy: Courtesy) -> None:
    right_of_way().take("short")
    with trio.move_on_after(0) as scope:
        await giving_way(busy, trio.sleep_forever)
    assert scope.cancelled_caught
    right_of_way().leave("short")


async def test_task_is_busy_if_much_came_in_one_of_its_steps_and_no_other_task_is() -> None:
    way, courtesies = right_of_way(), [Courtesy(), Courtesy()]

    async def work(brings_much: bool) -> None:
        await trio.lowlevel.checkpoint()
        if brings_much:
            way.note_busy(7.0)

    async with trio.open_nursery() as nursery:
        for courtesy, brings_much in zip(courtesies, (True, False), strict=True):
            nursery.start_soon(giving_way, courtesy, work, brings_much)
    way.note_busy(9.0)  # in nobody's step
    assert [courtesy.until for courtesy in courtesies] == [7.0, 0.0]


async def test_block_takes_the_way_unless_its_lane_gives_way_itself(busy: Courtesy) -> None:
    way = right_of_way()
    async with spinning(busy) as steps:
        with way.taken(Courtesy()):
            before = len(steps)
            await pass_by(5)
            assert len(steps) == before
        with way.taken(busy):
            await pass_by(8)
            assert len(steps) > before


async def test_thread_waits_between_items_but_not_for_ever() -> None:
    way, got, begun = right_of_way(), list[int](), threading.Event()

    def work(ends: bool) -> None:
        for item in way.in_steps(range(3)):
            got.append(item)
            begun.set()
        assert ends or len(got) == 3

    way.take("short")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, work, True)
        await wait_all_tasks_blocked()
        assert got == []
        way.leave("short")
    assert got == [0, 1, 2]
    got.clear()
    way.take("stuck")
    await trio.to_thread.run_sync(work, False)
    assert got == [0, 1, 2]
