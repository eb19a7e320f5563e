"""Work on many items, in order; and the nursery that raises what its body raises."""

import pytest
import trio
import trio.testing

from gossiplog.tasks.nursery import open_service_nursery
from gossiplog.tasks.ordered import map_ordered


async def test_results_come_in_the_order_of_the_items_whatever_the_order_of_their_ends() -> None:
    async def wait(number: int) -> int:
        for _ in range(20 - number):
            await trio.lowlevel.checkpoint()
        return number * number

    for count in (0, 1, 2, 20):
        async with map_ordered(wait, range(count), ahead=7) as results:
            assert [result async for result in results] == [number * number for number in range(count)]


async def test_no_more_calls_are_begun_than_wanted_ahead() -> None:
    begun: list[int] = []

    async def note(number: int) -> int:
        begun.append(number)
        return number

    async with map_ordered(note, range(100), ahead=5) as results:
        for taken in range(1, 20):
            await anext(results)
            await trio.testing.wait_all_tasks_blocked()
            assert len(begun) <= taken + 5


@pytest.mark.parametrize("count", [1, 10])
async def test_what_a_call_raises_is_raised_as_it_is(count) -> None:
    async def fail(number: int) -> int:
        if number == count - 1:
            raise KeyError(number)
        return number

    with pytest.raises(KeyError):
        async with map_ordered(fail, range(count), ahead=3) as results:
            async for _ in results:
                pass


async def test_what_the_body_raises_ends_the_calls_and_is_raised_as_it_is() -> None:
    async def hang(number: int) -> int:
        if number:
            await trio.sleep_forever()
        return number

    with pytest.raises(ZeroDivisionError):
        async with map_ordered(hang, range(5), ahead=3) as results:
            await anext(results)
            raise ZeroDivisionError


async def test_a_service_nursery_passes_cancellation_on() -> None:
    with trio.CancelScope() as scope:
        async with open_service_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_a_service_nursery_cancels_its_tasks_at_the_end_of_the_block_or_waits_for_them() -> None:
    done = trio.Event()

    async def work() -> None:
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        done.set()

    async with open_service_nursery() as nursery:
        nursery.start_soon(work)
    assert not done.is_set()
    async with open_service_nursery(waits=True) as nursery:
        nursery.start_soon(work)
    assert done.is_set()
    with pytest.raises(ZeroDivisionError):
        async with open_service_nursery(waits=True) as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise ZeroDivisionError


async def test_a_service_nursery_groups_what_its_tasks_raise() -> None:
    async def fail() -> None:
        raise KeyError("task")

    with pytest.raises(ExceptionGroup) as caught:
        async with open_service_nursery() as nursery:
            nursery.start_soon(fail)
            await trio.sleep_forever()
    assert isinstance(caught.value.exceptions[0], KeyError)
