"""A server's knowledge of its peers, for `why` and the doctor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PeerLink:
    """One connected peer, as a server sees it.

    Attributes:
        kind: `mesh`, `client` or `hub`.
        protocol: The common pubsub protocol; None if there is none.
        peering: `full`, `metadata`, `fanout` or `none`.
        is_pushing: Whether it exchanges this log's entries with us over a push stream.
        is_heeded: Whether its pubsub messages are read.
        score: None if no score is kept.
        queued_bytes: Bytes that wait to be sent to it.
        dropped: Messages to it that were dropped because a queue was full.
        rights: The rights of a client.
        refused: How many of its messages were refused.
    """

    peer: str
    kind: str
    protocol: str | None = None
    topics: Sequence[str] = ()
    peering: str = "none"
    is_pushing: bool = False
    is_heeded: bool = True
    is_syncing: bool = False
    score: float | None = None
    queued_bytes: int = 0
    dropped: int = 0
    rights: frozenset[str] = frozenset({"push", "pull"})
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Scene:
    """A server and its peers.

    Attributes:
        node: The server's peer id.
        links: The connected peers, by peer id.
        banned: The reason of the ban, by peer id.
        refused: The latest reason why a message was refused, by peer id.
        dials: The reason, by the address or peer id that cannot be reached.
        trouble: Why nothing can be stored at the moment; None if entries can be stored.
    """

    node: str
    topic: str
    links: Mapping[str, PeerLink] = field(default_factory=dict)
    banned: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    dials: Mapping[str, str] = field(default_factory=dict)
    trouble: str | None = None
