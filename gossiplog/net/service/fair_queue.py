"""A queue in which nobody waits for what others have put in, however much that is."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["FairQueue"]

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Lanes that are taken from in turn, one item each. O(1) an item; a lane is there for as long as something is in it."""

    def __init__(self) -> None:
        # Each item with its number in the order of arrival.
        self._lanes: OrderedDict[Hashable, deque[tuple[int, T]]] = OrderedDict()
        self._arrived = 0
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def put(self, lane: Hashable, item: T) -> None:
        """Put an item at the end of a lane."""
        self._lanes.setdefault(lane, deque()).append((self._arrived, item))
        self._arrived += 1
        self._size += 1

    def take(self, is_full: Callable[[T], bool]) -> list[T]:
        """Take items from the lanes in turn, at least one, and return them in the order in which they arrived.

        Args:
            is_full: Told of each item that is taken; says whether that was enough.
        """
        taken: list[tuple[int, T]] = []
        while self._lanes:
            lane, items = next(iter(self._lanes.items()))
            taken.append(items.popleft())
            if items:
                self._lanes.move_to_end(lane)
            else:
                del self._lanes[lane]
            if is_full(taken[-1][1]):
                break
        self._size -= len(taken)
        taken.sort(key=lambda each: each[0])
        return [item for _, item in taken]
