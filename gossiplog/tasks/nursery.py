"""A nursery for tasks that serve the body of a block, and finding the error in an exception group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def open_service_nursery(*, waits: bool = False) -> AsyncIterator[trio.Nursery]:
    """Open a nursery whose tasks are cancelled at the end of the block.

    An exception of the body is raised as it is; trio's own nursery raises it in a group. An exception of a task, which no caller expects,
    still comes in a group.

    Args:
        waits: The end of the block waits for the tasks instead, unless the body raised.
    """
    raised: BaseException | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except BaseException as error:
            # Raised again below, outside of the nursery. This includes `Cancelled`.
            raised = error
        if raised is not None or not waits:
            nursery.cancel_scope.cancel()
    if raised is not None:
        raise raised


def first_error(error: BaseException) -> BaseException:
    """Return the first error in nested exception groups, or a KeyboardInterrupt if there is one."""
    leaves: list[BaseException] = []
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if isinstance(each, BaseExceptionGroup):
            waiting.extend(reversed(each.exceptions))
        else:
            leaves.append(each)
    return next((leaf for leaf in leaves if isinstance(leaf, KeyboardInterrupt)), leaves[0])
