"""The calendar queue against a heap."""

import math
from heapq import heappop, heappush
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossiplog.sim.queue import CalendarQueue


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 5, allow_nan=False)), max_size=200), st.sampled_from([0.001, 0.009, 1.0, 50.0]))
def test_events_come_back_in_the_order_of_a_heap(steps: list[tuple[bool, float]], width_s: float) -> None:
    queue, heap, numbers, now = CalendarQueue(width_s), [], count(), 0.0
    for is_push, delay in steps:
        if is_push:
            event = (now + delay, next(numbers), "payload")
            queue.push(event)
            heappush(heap, event)
        elif heap:
            event = heappop(heap)
            assert next(queue.drain(math.inf)) == event
            now = event[0]
    assert list(queue.drain(math.inf)) == [heappop(heap) for _ in range(len(heap))]


def test_drain_leaves_what_lies_beyond_the_end() -> None:
    queue = CalendarQueue()
    for number, time_s in enumerate((0.5, 0.1, 0.3, 0.30001)):
        queue.push((time_s, number))
    assert [event[0] for event in queue.drain(0.3)] == [0.1, 0.3]
    assert [event[0] for event in queue.drain(9.0)] == [0.30001, 0.5]


def test_event_pushed_while_draining_takes_its_place() -> None:
    queue = CalendarQueue(1.0)
    queue.push((0.1, 0))
    queue.push((0.9, 1))
    seen = []
    for event in queue.drain(1.0):
        seen.append(event[0])
        if len(seen) == 1:
            queue.push((0.5, 2))
    assert seen == [0.1, 0.5, 0.9]


def test_width_must_be_positive() -> None:
    with pytest.raises(ValueError, match="width_s 0"):
        CalendarQueue(0)
