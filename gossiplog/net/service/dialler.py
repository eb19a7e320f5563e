"""What the service asks of a mesh: to connect, to disconnect and to measure."""

from __future__ import annotations

from typing import Protocol

from ...pubsub.types import PeerId

__all__ = ["Dialler"]


class Dialler(Protocol):
    """Who makes connections for the router. Each call returns at once; the answers come through `Service.tell`."""

    def connect(self, peer: PeerId, record: bytes | None, source: PeerId | None) -> None:
        """Dial a peer that another one may have named, then attach the connection, or tell `ConnectFailed`."""
        ...

    def disconnect(self, peer: PeerId) -> None:
        """The router has no more use for the connection."""
        ...

    def probe(self, peer: PeerId) -> None:
        """Measure the round trip, and tell `Probed`."""
        ...
