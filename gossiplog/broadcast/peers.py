"""What the broadcast machine knows of one connected peer, and its push stream."""

from __future__ import annotations

from random import Random

from ..limits import Backoff
from ..pubsub.types import PeerId
from .events import Connected, PeerKind

TRUSTED_MIN = 20
"""New entries that a peer has brought when it is no stranger any more."""

PUSHED_MAX = 64
"""Entries that one peer has pushed and that are being inserted; of what comes faster only the key is kept, and a sync brings it."""


class Peer:
    """One connected peer.

    Attributes:
        id: Its peer id.
        kind: What the connection is good for.
        is_outbound: We dialled.
        address: As in `Connected`.
        is_push_open: A push stream stands.
        opened_at: The value of `Pushes.opened` since then.
        opens_push: It is ours to open.
        reopen_at: When we try again to open it; None while there is nothing to wait for.
        reopening: How long we wait for that.
        told_at: The value of `Pushes.changes` when it was last told our heads.
        settles_at: When it is told them once more, if there are others by then; None before that and afterwards.
        is_behind: A push was dropped: it has to be told our heads again.
        origin: Where it came from; see `Connected`.
        is_origin_shared: Others stand behind that.
        brought: New entries that it brought.
        pushed: Entries it pushed that are being inserted.
        is_checking: Our log is being asked about the heads in its last update.
        update: The update that came meanwhile; a later one takes its place, for heads stand for all before them.
        bringer: The rules under which it brings entries.
        broken_streams: Streams on which it broke the protocol.
    """

    __slots__ = (
        "address",
        "bringer",
        "broken_streams",
        "brought",
        "id",
        "is_behind",
        "is_checking",
        "is_origin_shared",
        "is_outbound",
        "is_push_open",
        "kind",
        "opened_at",
        "opens_push",
        "origin",
        "pushed",
        "reopen_at",
        "reopening",
        "settles_at",
        "told_at",
        "update",
    )

    def __init__(self, event: Connected, random: Random) -> None:
        self.id: PeerId = event.peer
        self.kind = event.kind
        self.is_outbound = event.is_outbound
        self.address = event.address
        self.origin = event.origin
        self.is_origin_shared = event.is_origin_shared
        self.bringer = event.bringer
        self.broken_streams = 0
        self.brought = 0
        self.is_push_open = False
        self.opened_at = 0
        self.opens_push = event.has_push and (event.kind is PeerKind.HUB or (event.kind is PeerKind.MESH and event.is_outbound))
        self.reopen_at: float | None = None
        self.reopening = Backoff(random)
        self.told_at = 0
        self.settles_at: float | None = None
        self.is_behind = False
        self.pushed = 0
        self.is_checking = False
        self.update: list[bytes] | None = None

    @property
    def is_trusted(self) -> bool:
        """Whether it has brought enough to be no stranger."""
        return self.brought >= TRUSTED_MIN
