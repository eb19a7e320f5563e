"""Sleeper: one task that is woken up by others."""

from __future__ import annotations

import trio
import trio.testing

from gossiplog.tasks.sleeper import Sleeper


async def test_a_task_sleeps_until_it_is_woken_and_can_sleep_again() -> None:
    sleeper, turns = Sleeper(), list[int]()

    async def sleep_twice() -> None:
        for turn in range(2):
            await sleeper.sleep()
            turns.append(turn)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sleep_twice)
        await trio.testing.wait_all_tasks_blocked()
        assert sleeper.is_asleep and turns == []
        sleeper.wake()
        sleeper.wake()
        assert not sleeper.is_asleep
        await trio.testing.wait_all_tasks_blocked()
        assert sleeper.is_asleep and turns == [0]
        sleeper.wake()
    assert turns == [0, 1]


async def test_to_wake_nobody_does_nothing_and_is_not_remembered() -> None:
    sleeper = Sleeper()
    sleeper.wake()
    with trio.move_on_after(0) as scope:
        await sleeper.sleep()
    assert scope.cancelled_caught and not sleeper.is_asleep
    sleeper.wake()
    await trio.lowlevel.checkpoint()
