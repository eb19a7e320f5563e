"""Reading a page at a time in the thread, and giving out an entry at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class Iteration(Generic[T]):
    """At most one page is read ahead, so that not every entry costs a change of threads.

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
