"""A busy event loop, in which each round is something that whoever waits would notice."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

__all__ = ["busy_neighbour"]


@asynccontextmanager
async def busy_neighbour(step_s: float) -> AsyncIterator[Callable[[], int]]:
    """Have a task hold the loop for so long in each of its rounds; yield a function that says how many rounds there have been."""
    rounds = 0

    async def work() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            time.sleep(step_s)
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        await trio.lowlevel.checkpoint()
        yield lambda: rounds
        nursery.cancel_scope.cancel()
