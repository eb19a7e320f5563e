"""A nursery for tasks that serve the body of a block, and whose end is the body's end; and the error in a nursery's group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def open_service_nursery() -> AsyncIterator[trio.Nursery]:
    """Open a nursery that raises what its body raises as it is, where trio's own would raise it in a group.

    A body that raises cancels the tasks; otherwise its end waits for them. What a task raises still comes in a group, as it is nobody's
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


def first_error(error: BaseException) -> BaseException:
    """Take an error out of the groups that nurseries wrap it in; of several, an interrupt counts first."""
    leaves: list[BaseException] = []
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if isinstance(each, BaseExceptionGroup):
            waiting.extend(reversed(each.exceptions))
        else:
            leaves.append(each)
    return next((leaf for leaf in leaves if isinstance(leaf, KeyboardInterrupt)), leaves[0])
