"""The table of connections: who is connected, and what they said of themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import trio

from ...pubsub.types import PeerId
from ..transport.muxed import MuxedConnection
from ..transport.stream import Connection
from .addresses import Address
from .identify import Identity

__all__ = ["Peering", "Peerings"]


@dataclass(eq=False, slots=True)
class Peering:
    """One connection that is past its handshake and its introduction.

    Attributes:
        connection: The muxed connection.
        identity: What the peer said of itself last.
        opened_at: Seconds on trio's clock.
        dialled: The address that we dialled; None if the peer did.
        is_counted: Its address counts against peers that share it; not for loopback and exempt ones.
    """

    connection: MuxedConnection
    identity: Identity
    opened_at: float
    dialled: Address | None
    is_counted: bool


class Peerings:
    """The connections that are ready, by peer, in the order in which the peers came."""

    def __init__(self) -> None:
        self._by_peer: dict[PeerId, list[Peering]] = {}
        self._added = trio.Event()

    def all(self) -> list[Peering]:
        """Return all of them, those with one peer side by side."""
        return [peering for peerings in self._by_peer.values() for peering in peerings]

    def peers(self) -> list[PeerId]:
        """Return who is connected."""
        return list(self._by_peer)

    def with_peer(self, peer: PeerId) -> Sequence[Peering]:
        """Return the connections with one peer, the oldest first."""
        return self._by_peer.get(peer, ())

    @contextmanager
    def holding(self, peering: Peering) -> Iterator[None]:
        """Hold a connection in the table for the length of a block."""
        peer = peering.connection.peer
        self._by_peer.setdefault(peer, []).append(peering)
        added, self._added = self._added, trio.Event()
        added.set()
        try:
            yield
        finally:
            self._by_peer[peer].remove(peering)
            if not self._by_peer[peer]:
                del self._by_peer[peer]

    async def wait_for(self, connection: Connection) -> Peering:
        """Return the entry of a connection, once it is in the table."""
        while True:
            for peering in self.with_peer(connection.peer):
                if peering.connection is connection:
                    return peering
            await self._added.wait()
