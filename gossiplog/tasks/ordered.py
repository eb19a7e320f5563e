"""Concurrent work on many items, with the results in the order of the items."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from itertools import islice
from typing import Generic, TypeVar

import trio

from .nursery import open_service_nursery

T = TypeVar("T")
R = TypeVar("R")


class _Call(Generic[R]):
    """A call in progress; `result` is set before `ready`."""

    def __init__(self) -> None:
        self.ready = trio.Event()
        self.result: R | None = None


class Results(Generic[R]):
    """The results, in the order of the items."""

    def __init__(self, taken: AsyncGenerator[R, None], waiting: Sequence[_Call[R]]) -> None:
        self._taken = taken
        self._waiting = waiting

    @property
    def has_more_ready(self) -> bool:
        """Whether the next result is here already."""
        return len(self._waiting) > 0 and self._waiting[0].ready.is_set()

    def __aiter__(self) -> Results[R]:
        return self

    async def __anext__(self) -> R:
        return await anext(self._taken)


@asynccontextmanager
async def map_ordered(function: Callable[[T], Awaitable[R]], items: Sequence[T], *, ahead: int) -> AsyncIterator[Results[R]]:
    """Call `function` for each item, at most `ahead` calls beyond the last result taken, and iterate over the results.

    Memory holds at most `ahead` results. If a call raises, the next result taken raises the same error, and the other calls are cancelled.
    """
    if len(items) <= 1:
        async with aclosing(_one_by_one(function, items)) as taken:
            yield Results(taken, ())
        return
    waiting: deque[_Call[R]] = deque()
    failure: list[Exception] = []

    async def run(call: _Call[R], item: T) -> None:
        try:
            call.result = await function(item)
        except Exception as error:
            failure.append(error)
        call.ready.set()

    async with open_service_nursery() as nursery:

        async def take() -> AsyncGenerator[R, None]:
            rest = iter(items)
            while True:
                for item in islice(rest, ahead - len(waiting)):
                    waiting.append(_Call())
                    nursery.start_soon(run, waiting[-1], item)
                if not waiting:
                    return
                await waiting[0].ready.wait()
                if failure:
                    raise failure[0]
                yield waiting.popleft().result  # type: ignore[misc]

        async with aclosing(take()) as taken:
            yield Results(taken, waiting)


async def _one_by_one(function: Callable[[T], Awaitable[R]], items: Sequence[T]) -> AsyncGenerator[R, None]:
    for item in items:
        yield await function(item)
