"""The simulator's event queue: a calendar of buckets, each sorted once when its time comes."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any, TypeAlias

Event: TypeAlias = tuple[Any, ...]
"""`(time, seq, …)`: seconds, then a number unique within the run, so that the rest is never compared."""


class CalendarQueue:
    """Hold events and give them back in order of time, then of `seq`.

    An event is appended to the bucket of its time, and a bucket is sorted when the clock enters it. That costs a third of one heap
    over all events: with 100,000 of them pending, each push and pop of a heap walks cold memory. An event whose time lies in the
    bucket being emptied, or earlier, goes to a small second heap.

    Args:
        width_s: Seconds that one bucket spans, > 0. Best is a little less than the smallest latency: then a message sent while a
            bucket is emptied never arrives in the same bucket.
    """

    __slots__ = ("_current", "_days", "_future", "_late", "_open", "_per_s")

    def __init__(self, width_s: float = 0.009) -> None:
        if width_s <= 0:
            raise ValueError(f"width_s {width_s}, expected > 0")
        self._per_s = 1.0 / width_s
        self._future: dict[int, list[Event]] = {}
        self._days: list[int] = []
        self._current: list[Event] = []
        self._late: list[Event] = []
        self._open = -1

    def push(self, event: Event) -> None:
        """Add an event. O(1), or O(log n) in the events of the bucket being emptied."""
        day = int(event[0] * self._per_s)
        if day <= self._open:
            heappush(self._late, event)
            return
        bucket = self._future.get(day)
        if bucket is None:
            self._future[day] = [event]
            heappush(self._days, day)
        else:
            bucket.append(event)

    def drain(self, until_s: float) -> Iterator[Event]:
        """Yield events in order up to and including `until_s`; later events stay. Events may be pushed meanwhile."""
        late = self._late
        while True:
            current = self._current
            while current or late:
                is_late = late and (not current or late[0] < current[-1])
                event = late[0] if is_late else current[-1]
                if event[0] > until_s:
                    return
                if is_late:
                    heappop(late)
                else:
                    current.pop()
                yield event
            if not self._days:
                return
            self._open_next()

    def _open_next(self) -> None:
        self._open = heappop(self._days)
        bucket = self._future.pop(self._open)
        bucket.sort(reverse=True)
        self._current = bucket
