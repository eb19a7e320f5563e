"""Work on many items at once, and take the results in the order of the items."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Generic, TypeVar

import trio

from .nursery import open_service_nursery

T = TypeVar("T")
R = TypeVar("R")


class Results(Generic[R]):
    """The results, in the order of the items."""

    def __init__(self, taken: AsyncGenerator[R, None], ready: Sequence[trio.Event]) -> None:
        self._taken = taken
        self._ready = ready
        self._count = 0

    @property
    def has_more_ready(self) -> bool:
        """Whether the next result is here already."""
        return self._count < len(self._ready) and self._ready[self._count].is_set()

    def __aiter__(self) -> Results[R]:
        return self

    async def __anext__(self) -> R:
        result = await anext(self._taken)
        self._count += 1
        return result


@asynccontextmanager
async def map_ordered(function: Callable[[T], Awaitable[R]], items: Sequence[T], *, ahead: int) -> AsyncIterator[Results[R]]:
    """Call `function` for each item, `ahead` calls at most beyond the result that was taken last, and iterate over the results.

    What a call raises ends the rest of them, and is raised where the result would have been taken.
    """
    if len(items) <= 1:
        async with aclosing(_one_by_one(function, items)) as taken:
            yield Results(taken, ())
        return
    results: list[R | None] = [None] * len(items)
    ready = [trio.Event() for _ in items]
    failure: list[Exception] = []

    async def call(index: int) -> None:
        try:
            results[index] = await function(items[index])
        except Exception as error:
            failure.append(error)
        ready[index].set()

    async with open_service_nursery() as nursery:

        async def take() -> AsyncGenerator[R, None]:
            started = 0
            for index in range(len(items)):
                while started < min(len(items), index + ahead):
                    nursery.start_soon(call, started)
                    started += 1
                await ready[index].wait()
                if failure:
                    raise failure[0]
                result, results[index] = results[index], None
                yield result  # type: ignore[misc]

        async with aclosing(take()) as taken:
            yield Results(taken, ready)
        nursery.cancel_scope.cancel()


async def _one_by_one(function: Callable[[T], Awaitable[R]], items: Sequence[T]) -> AsyncGenerator[R, None]:
    for item in items:
        yield await function(item)
