"""A peer's bounded send queue with two priorities, for drivers."""

from __future__ import annotations

from collections import deque

from .rpc import Rpc

RPCS_MAX = 256
"""RPCs of both priorities together."""


class Outbox:
    """RPCs that wait to be written to one peer. Control and our own messages are urgent; they go before forwarded messages.

    When the queue is full, a new urgent RPC replaces the newest one that is not urgent; any other RPC is refused. The driver reports each
    RPC that was replaced or refused to the router, by `SendFailed`.
    """

    __slots__ = ("_normal", "_urgent")

    def __init__(self) -> None:
        self._urgent: deque[Rpc] = deque()
        self._normal: deque[Rpc] = deque()

    def __len__(self) -> int:
        return len(self._urgent) + len(self._normal)

    def put(self, rpc: Rpc, *, is_urgent: bool) -> Rpc | None:
        """Queue an RPC. Returns the RPC that was dropped, this one or another; None if there was room."""
        dropped = None
        if len(self) >= RPCS_MAX:
            if not is_urgent or not self._normal:
                return rpc
            dropped = self._normal.pop()
        (self._urgent if is_urgent else self._normal).append(rpc)
        return dropped

    def pop(self) -> Rpc | None:
        """Remove and return the next RPC to write; None when there is none."""
        if self._urgent:
            return self._urgent.popleft()
        return self._normal.popleft() if self._normal else None
