"""The ids of pubsub's protocols, and what each of them promises."""

from __future__ import annotations

from dataclasses import dataclass

FLOODSUB = "/floodsub/1.0.0"
RANDOMSUB = "/randomsub/1.0.0"
MESHSUB_1_0 = "/meshsub/1.0.0"
MESHSUB_1_1 = "/meshsub/1.1.0"
MESHSUB_1_2 = "/meshsub/1.2.0"
MESHSUB_1_3 = "/meshsub/1.3.0"
CHOKE = "/gossiplog/choke/1.0.0"
EPISUB = "/gossiplog/episub/1.0.0"


@dataclass(frozen=True, slots=True)
class Features:
    """What a protocol id promises.

    Attributes:
        mesh: GRAFT, PRUNE and gossip.
        px: Peer exchange and backoff in PRUNE.
        extensions: Each side announces its extensions in its first RPC.
        overlay: Episub's messages.
    """

    mesh: bool = False
    px: bool = False
    idontwant: bool = False
    extensions: bool = False
    choke: bool = False
    overlay: bool = False


FEATURES = {
    FLOODSUB: Features(),
    RANDOMSUB: Features(),
    MESHSUB_1_0: Features(mesh=True),
    MESHSUB_1_1: Features(mesh=True, px=True),
    MESHSUB_1_2: Features(mesh=True, px=True, idontwant=True),
    MESHSUB_1_3: Features(mesh=True, px=True, idontwant=True, extensions=True),
    CHOKE: Features(mesh=True, px=True, idontwant=True, choke=True),
    EPISUB: Features(overlay=True),
}
