"""Memory that clients may hold together, where each alone is within bounds: of too many, whoever has held some the longest gives way."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from ..errors import ClosedError

__all__ = ["Budget", "GaveWay", "Holder", "Memory"]

_BODIES_BYTES_MAX = 32 * 2**20
_ANSWERS_BYTES_MAX = 32 * 2**20


class GaveWay(ClosedError):
    """A block was ended because others needed its memory."""


class Holder:
    """What one client holds.

    Attributes:
        size: In bytes.
    """

    __slots__ = ("_budget", "_scope", "size")

    def __init__(self, budget: Budget, scope: trio.CancelScope) -> None:
        self.size = 0
        self._budget = budget
        self._scope = scope

    def take(self, size: int) -> None:
        """Hold this many bytes from now on, more or fewer than before."""
        self._budget._take(self, size)


class Budget:
    """A number of bytes for all.

    Args:
        bytes_max: How many. The only holder left may have more: what one may hold is limited where it is taken.

    Attributes:
        size: Bytes that are held.
        given_way: How often a holder had to give way.
    """

    def __init__(self, bytes_max: int) -> None:
        self.size = 0
        self.given_way = 0
        self._bytes_max = bytes_max
        # In the order in which they began to hold something.
        self._holders: OrderedDict[Holder, None] = OrderedDict()

    @contextmanager
    def hold(self) -> Iterator[Holder]:
        """Hold memory for the length of a block.

        Raises:
            GaveWay: The block was cancelled, for others needed the memory.
        """
        with trio.CancelScope() as scope:
            holder = Holder(self, scope)
            try:
                yield holder
            finally:
                self._take(holder, 0)
        if scope.cancelled_caught:
            raise GaveWay("others needed the memory")

    def _take(self, holder: Holder, size: int) -> None:
        self.size += size - holder.size
        holder.size = size
        if size == 0:
            self._holders.pop(holder, None)
            return
        self._holders.setdefault(holder)
        while self.size > self._bytes_max and len(self._holders) > 1:
            oldest = next(iter(self._holders))
            self.given_way += 1
            oldest._scope.cancel()
            self._take(oldest, 0)


class Memory:
    """What a server's clients may hold of its memory over plain HTTP.

    Attributes:
        bodies: Bodies of requests that have begun to arrive.
        answers: Entries that were read for one client and wait to be sent.
    """

    def __init__(self) -> None:
        self.bodies = Budget(_BODIES_BYTES_MAX)
        self.answers = Budget(_ANSWERS_BYTES_MAX)
