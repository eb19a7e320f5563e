"""A limit on the memory that clients hold together, where each alone is within bounds. Beyond it, the client that has held some the longest
gives way.

Memory is counted where answers are written (`asgi.py`) and where bodies are read (`requests.py`), so it is counted for every endpoint.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from ...errors import ClosedError

_BODIES_BYTES_MAX = 32 * 2**20
_ANSWERS_BYTES_MAX = 32 * 2**20


class GaveWay(ClosedError):
    """A block was ended because others needed its memory."""


class Holder:
    """The memory that one client holds.

    Attributes:
        shared: Bytes that others may hold as well.
    """

    __slots__ = ("_budget", "_scope", "shared", "size")

    def __init__(self, budget: Budget, scope: trio.CancelScope) -> None:
        self.size = 0
        self.shared: bytes | None = None
        self._budget = budget
        self._scope = scope

    def take(self, size: int) -> None:
        """Set the number of bytes held from now on."""
        self._budget._take(self, size)


class Budget:
    """A budget of bytes for all clients.

    Args:
        bytes_max: The budget. A single holder may exceed it, because what one may hold is limited elsewhere.
    """

    def __init__(self, bytes_max: int) -> None:
        self.size = 0
        self._bytes_max = bytes_max
        # In the order in which they began to hold memory.
        self._holders: OrderedDict[Holder, None] = OrderedDict()
        # By the identity of the shared bytes, the number of holders.
        self._sharers: dict[int, int] = {}

    @contextmanager
    def hold(self, shared: bytes | None = None) -> Iterator[Holder]:
        """Hold memory for the length of a block.

        Args:
            shared: Bytes held from the beginning; they count once, however many hold them.

        Raises:
            GaveWay: The block was cancelled because others needed the memory.
        """
        with trio.CancelScope() as scope:
            holder = Holder(self, scope)
            try:
                if shared is not None:
                    self._share(holder, shared)
                yield holder
            finally:
                self._let_go(holder)
        if scope.cancelled_caught:
            raise GaveWay("others needed the memory")

    def _take(self, holder: Holder, size: int) -> None:
        self.size += size - holder.size
        holder.size = size
        self._holders.setdefault(holder)
        self._make_room()

    def _share(self, holder: Holder, shared: bytes) -> None:
        holder.shared = shared
        count = self._sharers.get(id(shared), 0)
        self._sharers[id(shared)] = count + 1
        self.size += 0 if count else len(shared)
        self._holders.setdefault(holder)
        self._make_room()

    def _make_room(self) -> None:
        while self.size > self._bytes_max and len(self._holders) > 1:
            oldest = next(iter(self._holders))
            oldest._scope.cancel()
            self._let_go(oldest)

    def _let_go(self, holder: Holder) -> None:
        self._holders.pop(holder, None)
        self.size -= holder.size
        holder.size = 0
        shared, holder.shared = holder.shared, None
        if shared is not None:
            left = self._sharers.pop(id(shared)) - 1
            if left:
                self._sharers[id(shared)] = left
            else:
                self.size -= len(shared)


class Memory:
    """What a server's clients may hold of its memory over plain HTTP.

    Attributes:
        decoding: One large body at a time, which takes twenty times its length.
    """

    def __init__(self) -> None:
        self.bodies = Budget(_BODIES_BYTES_MAX)
        self.answers = Budget(_ANSWERS_BYTES_MAX)
        self.decoding = trio.CapacityLimiter(1)
