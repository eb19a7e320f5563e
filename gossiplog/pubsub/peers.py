"""Connected peers: who they are, what their protocol can do, which topics they are in."""

from __future__ import annotations

from random import Random
from typing import TypeVar

from .events import PeerConnected
from .protocol_ids import FEATURES, Feature
from .router import PeerState, ScoreParts
from .rpc import Extensions
from .types import PeerId, Topic

T = TypeVar("T")


class Peer:
    """One connected peer.

    Attributes:
        is_outbound: We dialled.
        topics: Those it subscribes to, in order; bounded by `topics_per_peer_max`.
        has_mesh: It knows meshes; else it is served as floodsub.
        has_px: It knows backoff and peer exchange.
        has_choke: It knows CHOKE and UNCHOKE.
        has_overlay: It is an episub peer.
        has_extensions: It may say what it can do beyond its protocol.
        extensions: What it said of that in its first RPC; None before that.
        is_tested: It sent the test extension's message.
        dropped: RPCs that its queue refused, ever.
        dropped_untold: The same since the last `SlowPeer`.
    """

    __slots__ = (
        "dropped",
        "dropped_untold",
        "extensions",
        "has_choke",
        "has_extensions",
        "has_idontwant",
        "has_mesh",
        "has_overlay",
        "has_px",
        "id",
        "is_direct",
        "is_outbound",
        "is_tested",
        "protocol",
        "topics",
    )

    def __init__(self, event: PeerConnected, *, is_direct: bool) -> None:
        features = FEATURES.get(event.protocol, Feature.NONE)
        self.id: PeerId = event.peer
        self.protocol = event.protocol
        self.is_outbound = event.is_outbound
        self.is_direct = is_direct
        self.topics: dict[Topic, None] = {}
        self.has_mesh = Feature.MESH in features
        self.has_px = Feature.PX in features
        self.has_idontwant = Feature.IDONTWANT in features
        self.has_choke = Feature.CHOKE in features
        self.has_overlay = Feature.OVERLAY in features
        self.has_extensions = Feature.EXTENSIONS in features
        self.extensions: Extensions | None = None
        self.is_tested = False
        self.dropped = 0
        self.dropped_untold = 0

    def state(self, score: ScoreParts | None, backoff_until: float | None) -> PeerState:
        """Show the peer as a value, with its score, and until when it is not grafted."""
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
