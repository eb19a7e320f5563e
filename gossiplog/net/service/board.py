"""A ring of facts that one can wait at."""

from __future__ import annotations

import secrets

import trio

from ...glass import Fact, Ring

__all__ = ["Board"]


class Board:
    """Facts, and whoever waits for more of them.

    Attributes:
        ring: Keeps the facts.
        boot: Names this run of the process: numbers of facts mean something within it alone.
    """

    def __init__(self) -> None:
        self.ring = Ring()
        self.boot = secrets.token_hex(6)
        self._more: trio.Event | None = None

    def add(self, fact: Fact) -> None:
        """Take a fact."""
        self.ring.add(fact)
        more = self._more
        if more is not None:
            self._more = None
            more.set()

    async def wait(self, seq: int) -> None:
        """Wait until there is a fact at this place of the ring."""
        await trio.lowlevel.checkpoint()
        while self.ring.next <= seq:
            if self._more is None:
                self._more = trio.Event()
            await self._more.wait()
