"""What the broadcast machine knows of one connected peer, and its push stream."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from ..limits import Backoff
from ..pubsub.types import PeerId
from .allowance import Bringer
from .events import Connected, PeerKind

TRUSTED_MIN = 20
"""New entries that a peer has brought when it is no stranger any more."""

PUSHED_MAX = 64
"""Entries that one peer has pushed and that are being inserted; of what comes faster only the key is kept, and a sync brings it."""


@dataclass(slots=True, eq=False)
class LogPeer:
    """One connected peer.

    Attributes:
        opened_at: The value of `Pushes.opened` since then.
        opens_push: It is ours to open.
        reopen_at: When we try again to open it; None while there is nothing to wait for.
        reopening: How long we wait for that.
        told_at: The value of `Pushes.changes` when it was last told our heads.
        settles_at: When it is told them once more, if there are others by then; None before that and afterwards.
        is_behind: A push was dropped: it has to be told our heads again.
        is_origin_shared: Others stand behind that.
        pushed: Entries it pushed that are being inserted.
        is_checking: Our log is being asked about the heads in its last update.
        update: The update that came meanwhile; a later one takes its place, for heads stand for all before them.
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
        """Make one that has just connected."""
        kind = event.kind
        opens_push = event.has_push and (kind is PeerKind.HUB or (kind is PeerKind.MESH and event.is_outbound))
        whence = (event.address, event.origin, event.is_origin_shared)
        return LogPeer(event.peer, kind, event.is_outbound, *whence, event.bringer, opens_push, Backoff(random))

    @property
    def is_trusted(self) -> bool:
        """Whether it has brought enough to be no stranger."""
        return self.brought >= TRUSTED_MIN
