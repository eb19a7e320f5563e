"""Iterating over items that are read a page at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Pages(Generic[T]):
    """An asynchronous iterator that reads a page after it has returned all items of the one before.

    Unlike an asynchronous generator it may be left half way (`break`) without being closed. It checkpoints once per page, and a cancelled
    step loses nothing.

    Args:
        read_page: Reads the next page; an empty one means that there are no more.
    """

    def __init__(self, read_page: Callable[[], Awaitable[Sequence[T]]]) -> None:
        self._read_page = read_page
        self._page: deque[T] = deque()

    def __aiter__(self) -> Pages[T]:
        return self

    async def __anext__(self) -> T:
        try:
            return self._page.popleft()
        except IndexError:
            pass
        self._page.extend(await self._read_page())
        if not self._page:
            raise StopAsyncIteration
        return self._page.popleft()

    async def next_page(self) -> Sequence[T]:
        """Return the rest of the current page, or read the next one; empty if there are no more."""
        page, self._page = self._page, deque()
        return page or await self._read_page()

    async def aclose(self) -> None:
        """Do nothing. It exists for callers that close every iterator."""


def paged(read_after: Callable[[T | None], Awaitable[Sequence[T]]]) -> Pages[T]:
    """Iterate over records; `read_after` reads the page after a given record, and the first page for None."""
    last: T | None = None

    async def read_page() -> Sequence[T]:
        nonlocal last
        page = await read_after(last)
        last = page[-1] if page else last
        return page

    return Pages(read_page)


def bounded(items: Iterable[T], bytes_of: Callable[[T], int], *, count_max: int, bytes_max: int) -> Iterator[list[T]]:
    """Group items into lists of at most `count_max`; a list also ends with the item that makes it reach `bytes_max`."""
    waiting: list[T] = []
    size = 0
    for item in items:
        waiting.append(item)
        size += bytes_of(item)
        if len(waiting) == count_max or size >= bytes_max:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting
