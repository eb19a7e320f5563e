"""A nursery for tasks that serve the body of a block, and whose end is the body's end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

__all__ = ["open_service_nursery"]


@asynccontextmanager
async def open_service_nursery() -> AsyncIterator[trio.Nursery]:
    """Open a nursery that raises what its body raises as it is, where trio's own would raise it in a group.

    A body that raises cancels the tasks; one that ends waits for them. What a task raises still comes in a group, as it is nobody's
    to expect.
    """
    raised: BaseException | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except BaseException as error:
            # Raised again below, outside of the nursery, Cancelled as much as any other.
            raised = error
            nursery.cancel_scope.cancel()
    if raised is not None:
        raise raised
