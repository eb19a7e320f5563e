"""The timers of a machine: one task sleeps until the first of them is due."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import trio

from ...pubsub.types import TimerToken


class Timers:
    """Fires each token once, at the time it was last set to. `set` is O(1), firing O(tokens): there are a handful."""

    def __init__(self, fire: Callable[[TimerToken], None]) -> None:
        self._fire = fire
        self._due: dict[TimerToken, float] = {}
        self._sleep = trio.CancelScope()

    def set(self, token: TimerToken, at: float) -> None:
        """Fire at a time of `trio.current_time`, in place of the time that was set before."""
        self._due[token] = at
        if at < self._sleep.deadline:
            self._sleep.deadline = at

    async def run(self) -> None:
        """Fire for ever."""
        due = self._due
        while True:
            while due and due[token := min(due, key=due.__getitem__)] <= trio.current_time():
                del due[token]
                self._fire(token)
            with trio.CancelScope(deadline=min(due.values(), default=inf)) as self._sleep:
                await trio.sleep_forever()
