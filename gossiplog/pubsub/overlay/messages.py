"""Episub's messages: HyParView membership and Plumtree's control, one overlay a topic.

Source: "Episub: Proximity Aware Epidemic PubSub for libp2p", section "Protocol Messages".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from ..types import MessageId, PeerId, Topic

__all__ = [
    "Disconnected",
    "ForwardJoin",
    "GetNodes",
    "Leaving",
    "Neighbor",
    "NeighborKind",
    "Nodes",
    "OverlayMessage",
    "Shuffle",
    "ShuffleReply",
    "TreeGraft",
    "TreeIHave",
    "TreePrune",
    "WalkJoin",
]


@dataclass(frozen=True, slots=True)
class GetNodes:
    """GETNODES: ask a contact for members of the topic."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class Nodes:
    """NODES: the answer, a sample of the sender's views."""

    topic: Topic
    peers: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class WalkJoin:
    """JOIN: `peer` looks for a random neighbour; walks at random until somebody takes it or `ttl` is 0."""

    topic: Topic
    peer: PeerId
    ttl: int


@dataclass(frozen=True, slots=True)
class ForwardJoin:
    """FORWARDJOIN: `peer` has joined; everybody on the walk adds it to the passive view."""

    topic: Topic
    peer: PeerId
    ttl: int


class NeighborKind(IntEnum):
    """What a NEIGHBOR message is for."""

    REQUEST = 0
    """The sender asks to become a neighbour."""
    ACCEPT = 1
    """The sender took us into its active view; also the answer to a JOIN."""
    LINKS = 2
    """Only news of the sender's links, for stabilisation and optimisation."""


@dataclass(frozen=True, slots=True)
class Neighbor:
    """NEIGHBOR: establish an active link, or tell what links the sender has.

    Attributes:
        topic: Which overlay.
        kind: Request, acceptance or news.
        is_random: The link is meant to be one of the random ones (a join, or a sender with fewer than C_rand links).
        random_links: How many random links the sender has.
        peers: The sender's active view.
    """

    topic: Topic
    kind: NeighborKind
    is_random: bool
    random_links: int
    peers: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class Disconnected:
    """DISCONNECT: the link is ended, or a request for one refused. The sender stays a member of the topic."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class Leaving:
    """LEAVE: `peer` left the topic; spreads while it removes someone, or until `ttl` is 0."""

    topic: Topic
    peer: PeerId
    ttl: int


@dataclass(frozen=True, slots=True)
class Shuffle:
    """SHUFFLE: `peer` offers a sample of its views; walks at random until `ttl` is 0."""

    topic: Topic
    peer: PeerId
    peers: tuple[PeerId, ...]
    ttl: int


@dataclass(frozen=True, slots=True)
class ShuffleReply:
    """SHUFFLEREPLY: a sample of the answering node's passive view."""

    topic: Topic
    peers: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class TreeIHave:
    """Plumtree's IHAVE: messages not pushed to the receiver, each with the hops it took to the sender, plus one."""

    topic: Topic
    summary: tuple[tuple[MessageId, int], ...]


@dataclass(frozen=True, slots=True)
class TreeGraft:
    """Plumtree's GRAFT: make the link an edge of the tree again and send these messages; `ids` may be empty."""

    topic: Topic
    ids: tuple[MessageId, ...]


@dataclass(frozen=True, slots=True)
class TreePrune:
    """Plumtree's PRUNE: the link brought a duplicate; announce on it, push no more."""

    topic: Topic


OverlayMessage: TypeAlias = (
    GetNodes
    | Nodes
    | WalkJoin
    | ForwardJoin
    | Neighbor
    | Disconnected
    | Leaving
    | Shuffle
    | ShuffleReply
    | TreeIHave
    | TreeGraft
    | TreePrune
)
