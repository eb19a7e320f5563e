"""Connected peers: their ids, the abilities of their protocols, and their topics."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from .events import PeerConnected
from .protocol_ids import FEATURES, Features
from .router import PeerState, ScoreParts
from .rpc import Extensions
from .types import PeerId, Topic

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Peer:
    """One connected peer.

    Attributes:
        features: What its protocol promises.
        is_meshable: It may be in a mesh: its protocol has meshes, and it is no direct peer.
        topics: The topics it subscribes to, in the order it announced them; at most `topics_per_peer_max`.
        extensions: The extensions announced in its first RPC; None before it.
        is_tested: It sent the test extension's message.
        dropped: RPCs that its full queue refused.
        dropped_unreported: Of these, the ones since the last `SlowPeer`.
    """

    id: PeerId
    protocol: str
    is_outbound: bool
    is_direct: bool
    features: Features
    is_meshable: bool
    topics: dict[Topic, None] = field(default_factory=dict)
    extensions: Extensions | None = None
    is_tested: bool = False
    dropped: int = 0
    dropped_unreported: int = 0

    @staticmethod
    def of(event: PeerConnected, *, is_direct: bool) -> Peer:
        """Make the peer of a new connection."""
        features = FEATURES.get(event.protocol, Features())
        is_meshable = features.mesh and not is_direct
        return Peer(event.peer, event.protocol, event.is_outbound, is_direct, features, is_meshable)

    def state(self, score: ScoreParts | None, backoff_until: float | None) -> PeerState:
        """Show the peer as a value, together with its score and the end of its back-off."""
        return PeerState(
            self.id,
            self.protocol,
            self.is_outbound,
            self.is_direct,
            tuple(self.topics),
            score,
            self.dropped,
            self.extensions,
            self.is_tested,
            backoff_until,
        )


def choose(items: list[T], count: int, rng: Random) -> list[T]:
    """Draw `count` distinct items, or all, in random order. Reorders `items`. O(count).

    The first steps of a Fisher-Yates shuffle; a third of the cost of `rng.sample` for the few that routers draw.
    """
    size = len(items)
    count = min(count, size)
    random = rng.random
    for index in range(count):
        other = index + int(random() * (size - index))
        items[index], items[other] = items[other], items[index]
    return items if count == size else items[:count]
