"""What is read a page at a time there, and an entry at a time out there."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import trio

__all__ = ["Iteration"]

T = TypeVar("T")


class Iteration(Generic[T]):
    """One page at most is read ahead of whoever iterates, so that an entry does not cost a change of threads.

    Attributes:
        page: What was read and not yet given out.
    """

    def __init__(self, next_page: Callable[[], Awaitable[Sequence[T]]]) -> None:
        """Take the function that reads a page, and says with an empty one that there are no more."""
        self.page: deque[T] = deque()
        self._next_page = next_page
        self._turn = trio.Lock()

    async def fill(self) -> bool:
        """Read a page if there is none, and say whether there is one now. In the thread.

        The page lands here before the call returns, so that a caller who is cancelled meanwhile loses nothing.
        """
        async with self._turn:
            if not self.page:
                self.page.extend(await self._next_page())
            return bool(self.page)
