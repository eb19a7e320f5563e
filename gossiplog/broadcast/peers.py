"""The broadcast machine's record of one connected peer and its push stream."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from ..limits import Backoff
from ..pubsub.types import PeerId
from .allowance import Bringer
from .events import Connected, PeerKind

TRUSTED_MIN = 20
"""A peer that has brought this many new entries is no longer a stranger."""

PUSHED_MAX = 64
"""Pushed entries of one peer that may be inserted at a time. Of any more only the key is kept, and a sync fetches them."""


@dataclass(slots=True, eq=False)
class LogPeer:
    """One connected peer.

    Attributes:
        opened_at: The value of `Pushes.opened` when its push stream opened.
        opens_push: The push stream is ours to open.
        reopen_at: When we try to open the stream again; None if we do not wait for that.
        reopening: The pauses before that.
        told_at: The value of `Pushes.changes` when the peer was last told our heads.
        settles_at: When a new peer is told our heads once more if they have changed; None otherwise.
        is_behind: A push was dropped, so the peer has to be told our heads again.
        is_origin_shared: Others share its origin, as behind a proxy.
        pushed: Number of its pushed entries that are being inserted.
        is_checking: Our log is being asked about the heads in its last update.
        update: The latest update that came meanwhile. It replaces earlier ones, as heads stand for all their ancestors.
        broken_streams: Streams on which it broke the protocol.
    """

    id: PeerId
    kind: PeerKind
    is_outbound: bool
    address: str | None
    origin: str | None
    is_origin_shared: bool
    bringer: Bringer
    opens_push: bool
    reopening: Backoff
    broken_streams: int = 0
    brought: int = 0
    is_push_open: bool = False
    opened_at: int = 0
    reopen_at: float | None = None
    told_at: int = 0
    settles_at: float | None = None
    is_behind: bool = False
    pushed: int = 0
    is_checking: bool = False
    update: list[bytes] | None = None

    @staticmethod
    def of(event: Connected, random: Random) -> LogPeer:
        """Return the record of a peer that has just connected."""
        kind = event.kind
        opens_push = event.has_push and (kind is PeerKind.HUB or (kind is PeerKind.MESH and event.is_outbound))
        whence = (event.address, event.origin, event.is_origin_shared)
        return LogPeer(event.peer, kind, event.is_outbound, *whence, event.bringer, opens_push, Backoff(random))

    @property
    def is_trusted(self) -> bool:
        """Whether it has brought enough to be no stranger."""
        return self.brought >= TRUSTED_MIN
