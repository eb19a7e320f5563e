"""What the streams of a service need of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ...broadcast import BroadcastState, Event
from ...entry.validation import Verdict
from ...pubsub.types import PeerId
from ...replica.log import Replica
from ..transport.stream import Connection
from .figures import Figures
from .intake import Strangers
from .peers import Peer

__all__ = ["OPEN_S", "Owner"]

OPEN_S = 10.0
"""How long opening a stream may take."""


class Owner(Protocol):
    """The service that streams belong to.

    Attributes:
        log: Its log.
        topic: The log's topic.
        protocols: The protocols of pubsub that its router speaks, the preferred one first.
        peers: Who is connected.
        strangers: Whom of them has to wait.
        figures: What it has done so far.
    """

    log: Replica
    topic: str
    peers: dict[PeerId, Peer]
    strangers: Strangers
    figures: Figures
    protocols: tuple[str, ...]

    def tell(self, event: Event) -> None:
        """Hand an event to the broadcast machine."""
        ...

    def count(self, name: str, number: int = 1) -> None:
        """Count what happened, under a name."""
        ...

    def observed(self, kind: str, peer: str | None = None, **columns: Any) -> None:
        """Have the observer take a fact, if there is one."""
        ...

    def dial_anew(self, id: PeerId, connection: Connection) -> None:
        """Close a connection, and dial its peer again."""
        ...

    def set_pubsub(self, id: PeerId, protocol: str | None) -> None:
        """Note that a peer speaks pubsub, or speaks it no longer."""
        ...

    def is_heeded(self, peer: PeerId) -> bool:
        """Say whether the router reads what a peer sends."""
        ...

    def state(self) -> BroadcastState:
        """Show the machine as values."""
        ...

    async def insert_synced(self, peer: Peer, way: str, entries: Sequence[tuple[bytes, bytes]]) -> list[Verdict]:
        """Insert what a sync with a peer brought."""
        ...
