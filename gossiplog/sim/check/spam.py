"""What an attacker says to a router to fill its memory, waste its time, or turn it against others: well-formed, and of no use."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ...pubsub.rpc import (
    Control,
    ForwardJoin,
    GetNodes,
    IHave,
    Leaving,
    Neighbor,
    NeighborKind,
    Nodes,
    OverlayMessage,
    PeerRecord,
    Prune,
    Rpc,
    Shuffle,
    Subscription,
    TreeGraft,
    TreeIHave,
    TreePrune,
    WalkJoin,
)
from ...pubsub.types import MessageId, PeerId, Topic

__all__ = ["spam"]

IDS_MAX = 60
GHOSTS = 8


def spam(rng: random.Random, topic: Topic, peers: Sequence[PeerId], heard: Sequence[MessageId], *, has_overlay: bool) -> Rpc:
    """Make one RPC of spam.

    Args:
        rng: Chooses what kind of spam it is.
        topic: The log's.
        peers: Real ones, to be spoken ill of.
        heard: Real messages.
        has_overlay: The receiver understands episub's messages.
    """
    ghosts = [PeerId(f"ghost {rng.randrange(10**6)}") for _ in range(GHOSTS)]
    ids = tuple(MessageId(rng.randbytes(32)) for _ in range(rng.randint(1, IDS_MAX)))
    real = tuple(rng.choices(heard, k=min(IDS_MAX, len(heard)))) if heard else ()
    if has_overlay:
        return Rpc(overlay=tuple(_overlay(rng, topic, ghosts, peers, ids, real) for _ in range(rng.randint(1, 6))))
    prune = Prune(topic, tuple(PeerRecord(ghost) for ghost in ghosts), rng.choice((None, 0, 1, 60, 10**6)))
    match rng.randrange(6):
        case 0:
            control = Control(graft=(topic,) * 5)
        case 1:
            control = Control(prune=(prune,) * 5)
        case 2:
            control = Control(ihave=(IHave(topic, ids),))
        case 3:
            control = Control(iwant=real + ids)
        case 4:
            control = Control(idontwant=real + ids)
        case _:
            others = [Subscription(Topic(ghost), True) for ghost in ghosts]
            return Rpc(subscriptions=(*others, Subscription(topic, False), Subscription(topic, True)))
    return Rpc(control=control)


def _overlay(
    rng: random.Random,
    topic: Topic,
    ghosts: Sequence[PeerId],
    peers: Sequence[PeerId],
    ids: tuple[MessageId, ...],
    real: tuple[MessageId, ...],
) -> OverlayMessage:
    ghost, victim = rng.choice(ghosts), rng.choice(peers)
    said: tuple[OverlayMessage, ...] = (
        WalkJoin(topic, ghost, rng.randrange(300)),
        ForwardJoin(topic, ghost, rng.randrange(300)),
        Leaving(topic, victim, rng.randrange(300)),
        Neighbor(topic, rng.choice(list(NeighborKind)), rng.random() < 0.5, rng.randrange(9), tuple(ghosts)),
        Shuffle(topic, victim, tuple(ghosts), rng.randrange(300)),
        Nodes(topic, tuple(ghosts)),
        GetNodes(topic),
        TreeIHave(topic, tuple((message_id, rng.randrange(256)) for message_id in ids)),
        TreeGraft(topic, real),
        TreePrune(topic),
    )
    return rng.choice(said)
