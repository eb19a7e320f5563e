"""The broadcast machine's timers: a heap, and one deadline that a single task sleeps towards."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import trio

from ...pubsub.types import TimerToken


class Timers:
    """Fires each token once, at the time it was last set to. There are a handful of tokens, so the heap stays small."""

    def __init__(self, fire: Callable[[TimerToken], None]) -> None:
        self._fire = fire
        self._due: dict[TimerToken, float] = {}
        self._heap: list[tuple[float, TimerToken]] = []
        self._sleep: trio.CancelScope | None = None

    def set(self, token: TimerToken, at: float) -> None:
        """Fire at a time of `trio.current_time`, in place of any earlier time of this token."""
        self._due[token] = at
        heapq.heappush(self._heap, (at, token))
        if self._sleep is not None and at < self._sleep.deadline:
            self._sleep.deadline = at

    async def run(self) -> None:
        """Fire for ever."""
        while True:
            with trio.CancelScope(deadline=self._heap[0][0] if self._heap else float("inf")) as self._sleep:
                await trio.sleep_forever()
            self._sleep = None
            while self._heap and self._heap[0][0] <= trio.current_time():
                at, token = heapq.heappop(self._heap)
                if self._due.get(token) == at:
                    del self._due[token]
                    self._fire(token)
