"""Right of way among the tasks of an event loop: short work is not held up by tasks that have much to do.

**Theory of operation.** A step of a task, from one wait to the next, cannot be interrupted, and short work takes several steps. If it met
steps of busy tasks between all of its own, it would take several times as long. So a busy task is run by `giving_way`: it begins no step
while the way is taken. Short work takes the way (`take`) and leaves it at its end (`leave`). So it waits for the step that is running when
it comes, and for no other.

A task gives way only while its `Courtesy` says so: that of a log, or of a connection that brought much (`note_busy`).

**Invariants.**
1. A way that was taken without a break for `PATIENCE_S` is free for as long, whoever takes it: short work gets half of the time at most.
2. Only the moment of a step changes: a step gets the outcome that it would have had. A task that is cancelled does not wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterable, Iterator
from contextlib import contextmanager
from types import coroutine
from typing import Any, TypeVar, TypeVarTuple

import trio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

PATIENCE_S = 0.05
"""The longest wait of a step, in seconds."""


class Courtesy:
    """How long the tasks that share it give way.

    Attributes:
        until: The time of the event loop at which they cease to.
    """

    __slots__ = ("until",)

    def __init__(self) -> None:
        self.until = 0.0


class RightOfWay:
    """The way of one event loop; see the module's docstring. Get it by `right_of_way`."""

    def __init__(self) -> None:
        self.now = trio.lowlevel.current_clock().current_time
        # That of the task whose step is running; None if it never gives way.
        self.courtesy: Courtesy | None = None
        self._takers: set[Hashable] = set()
        self._taken_at = 0.0
        self._free_until = 0.0
        # For threads.
        self._is_free = threading.Event()
        self._is_free.set()
        self._left = trio.lowlevel.ParkingLot()

    def take(self, taker: Hashable) -> None:
        """Take the way for short work. Taking it twice is as taking it once."""
        if not self._takers:
            self._taken_at = self.now()
            self._is_free.clear()
        self._takers.add(taker)

    def leave(self, taker: Hashable) -> None:
        """Leave the way. No effect for one that has not taken it."""
        if taker in self._takers:
            self._takers.discard(taker)
            if not self._takers:
                self._is_free.set()
                self._left.unpark_all()

    def note_busy(self, until: float) -> None:
        """Note that the task whose step is running has much to do. It gives way until then, if `giving_way` runs it."""
        if self.courtesy is not None:
            self.courtesy.until = until

    @contextmanager
    def taken(self, courtesy: Courtesy) -> Iterator[None]:
        """Take the way for the length of a block, unless its own work gives way."""
        if courtesy.until > self.now():
            yield
            return
        taker = object()
        self.take(taker)
        try:
            yield
        finally:
            self.leave(taker)

    def in_steps(self, items: Iterable[T]) -> Iterator[T]:
        """Yield items in a thread. Each waits until the way is free, all of them together for `PATIENCE_S` at most."""
        ends_at = time.monotonic() + PATIENCE_S
        for item in items:
            if not self._is_free.is_set():
                self._is_free.wait(max(0.0, ends_at - time.monotonic()))
            yield item

    async def wait(self) -> None:
        """Wait until the way is free and those who left it have sent what they had to send."""
        while self._takers and (now := self.now()) >= self._free_until:
            ends_at = self._taken_at + PATIENCE_S
            if now >= ends_at:
                self._takers.clear()
                self._is_free.set()
                self._free_until = now + PATIENCE_S
            with trio.CancelScope(shield=True, deadline=ends_at):
                await self._left.park()
            # Connections are flushed in the pass after the step that gave them something to send.
            await trio.lowlevel.cancel_shielded_checkpoint()


_WAY: trio.lowlevel.RunVar[RightOfWay] = trio.lowlevel.RunVar("right of way")


def right_of_way() -> RightOfWay:
    """Return the way of this event loop."""
    try:
        return _WAY.get()
    except LookupError:
        _WAY.set(way := RightOfWay())
        return way


async def giving_way(courtesy: Courtesy, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    """Call an asynchronous function and return or raise what it does. Its steps after the first give way."""
    return await _step_by_step(right_of_way(), courtesy, function(*args).__await__())


@coroutine
def _step_by_step(way: RightOfWay, courtesy: Courtesy, steps: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
    def step(resume: Callable[[Any], Any], outcome: Any) -> Any:
        way.courtesy = courtesy
        try:
            return resume(outcome)
        finally:
            way.courtesy = None

    try:
        trap = step(steps.send, None)
        while True:
            try:
                value = yield trap
                if courtesy.until > way.now():
                    yield from way.wait().__await__()
            except BaseException as error:
                trap = step(steps.throw, error)
            else:
                trap = step(steps.send, value)
    except StopIteration as stop:
        result: T = stop.value
        return result
