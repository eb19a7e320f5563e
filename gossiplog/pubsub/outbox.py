"""A peer's bounded queue in two priorities, for drivers."""

from __future__ import annotations

from collections import deque

from .rpc import Rpc

RPCS_MAX = 256
"""RPCs of both priorities together."""


class Outbox:
    """RPCs that wait to be written to one peer. Control and own messages go before forwarded ones.

    When it is full, a new urgent RPC takes the place of the newest one that is not urgent; anything else is refused. Whatever
    is turned out or refused, the driver tells the router of with `SendFailed`.
    """

    __slots__ = ("_normal", "_urgent")

    def __init__(self) -> None:
        self._urgent: deque[Rpc] = deque()
        self._normal: deque[Rpc] = deque()

    def __len__(self) -> int:
        return len(self._urgent) + len(self._normal)

    def put(self, rpc: Rpc, *, is_urgent: bool) -> Rpc | None:
        """Queue an RPC. Returns the one that was dropped for want of room: this one or another; None if there was room."""
        dropped = None
        if len(self) >= RPCS_MAX:
            if not is_urgent or not self._normal:
                return rpc
            dropped = self._normal.pop()
        (self._urgent if is_urgent else self._normal).append(rpc)
        return dropped

    def pop(self) -> Rpc | None:
        """Take the next RPC to write; None when there is none."""
        if self._urgent:
            return self._urgent.popleft()
        return self._normal.popleft() if self._normal else None
