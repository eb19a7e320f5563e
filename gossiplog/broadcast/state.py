"""What a broadcast machine shows of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..pubsub.router import RouterState
from ..pubsub.types import PeerId
from .events import PeerKind


@dataclass(frozen=True, slots=True)
class BroadcastState:
    """The machine at one moment, as values that a page or a terminal can draw.

    Attributes:
        kinds: Connected peers by kind.
        pushing: Peers that a push stream stands with.
        offences: Who brought what was rejected, connected or not, and how often; five bans.
        bans: Who is banned, until which of the driver's seconds, and why; some have run out.
        sizes: How much is in each container that a peer can feed, by name.
    """

    router: RouterState
    kinds: Mapping[PeerId, PeerKind]
    pushing: tuple[PeerId, ...]
    offences: Mapping[str, int]
    bans: Sequence[tuple[str, float, str]]
    sizes: Mapping[str, int]
    sizes_max: Mapping[str, int]
