"""The ids of pubsub's protocols, and what each of them promises."""

from __future__ import annotations

from enum import Flag, auto

FLOODSUB = "/floodsub/1.0.0"
RANDOMSUB = "/randomsub/1.0.0"
MESHSUB_1_0 = "/meshsub/1.0.0"
MESHSUB_1_1 = "/meshsub/1.1.0"
MESHSUB_1_2 = "/meshsub/1.2.0"
MESHSUB_1_3 = "/meshsub/1.3.0"
CHOKE = "/gossiplog/choke/1.0.0"
EPISUB = "/gossiplog/episub/1.0.0"


class Feature(Flag):
    """What a protocol id promises."""

    NONE = 0
    MESH = auto()
    """GRAFT, PRUNE and gossip."""
    PX = auto()
    """Peer exchange and backoff in PRUNE."""
    IDONTWANT = auto()
    EXTENSIONS = auto()
    """Each side announces its extensions in its first RPC."""
    CHOKE = auto()
    OVERLAY = auto()
    """Episub's messages."""


FEATURES = {
    FLOODSUB: Feature.NONE,
    RANDOMSUB: Feature.NONE,
    MESHSUB_1_0: Feature.MESH,
    MESHSUB_1_1: Feature.MESH | Feature.PX,
    MESHSUB_1_2: Feature.MESH | Feature.PX | Feature.IDONTWANT,
    MESHSUB_1_3: Feature.MESH | Feature.PX | Feature.IDONTWANT | Feature.EXTENSIONS,
    CHOKE: Feature.MESH | Feature.PX | Feature.IDONTWANT | Feature.CHOKE,
    EPISUB: Feature.OVERLAY,
}
