"""What a server knows of its peers, as `why` and the doctor look at it: the answer to `GET peers`, here or from another server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import DecodeError


@dataclass(frozen=True, slots=True)
class PeerLink:
    """One connected peer, as a server sees it.

    Attributes:
        kind: `mesh`, `client` or `hub`.
        protocol: The pubsub protocol spoken with it; None for none.
        peering: `full`, `metadata`, `fanout` or `none`.
        is_heeded: Whether what it sends by pubsub is read.
        score: None if none is kept.
        queued_bytes: Bytes that wait to be pushed to it.
        dropped: Messages to it that found no room.
        rights: The rights of a client.
        refused: The peer's messages that were refused.
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
        links: The connected peers, by peer id.
        banned: Peers, with the reason.
        refused: Peers with refused messages, with the latest reason.
        dials: Addresses and peer ids that cannot be reached, with the reason.
        trouble: Why nothing can be stored at the moment; None if it can.
    """

    node: str
    topic: str
    links: Mapping[str, PeerLink] = field(default_factory=dict)
    banned: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    dials: Mapping[str, str] = field(default_factory=dict)
    trouble: str | None = None


def scene_from(record: Mapping[str, Any], trouble: str | None = None) -> Scene:
    """Read a scene from the answer to `GET peers`.

    Raises:
        DecodeError: It is something else.
    """
    try:
        links = [_link_from(one) for one in record["peers"]]
        return Scene(
            str(record["me"]),
            str(record["topic"]),
            {link.peer: link for link in links},
            {str(one["peer"]): str(one.get("reason", "")) for one in record.get("bans", ())},
            {str(one["peer"]): str(one["reason"]) for one in record.get("refused", ())},
            {str(one["address"]): str(one["reason"]) for one in record.get("dials", ())},
            trouble,
        )
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise DecodeError(f"no list of peers: {error}") from None


def _link_from(record: Mapping[str, Any]) -> PeerLink:
    """Read one of its peers; a server of an earlier version says less."""
    score, queue, counts = record.get("score"), record.get("queue", {}), record.get("counts", {})
    return PeerLink(
        str(record["peer"]),
        str(record["kind"]),
        record.get("protocol"),
        tuple(record.get("topics") or ()),
        str(record.get("peering", "none")),
        bool(record.get("pushing", True)),
        bool(record.get("heeded", True)),
        bool(record.get("syncing")),
        None if score is None else float(score["total"]),
        int(queue.get("bytes", 0)),
        int(counts.get("dropped", 0)) + int(queue.get("dropped", 0)),
        frozenset(record.get("rights", ("push", "pull"))),
        int(counts.get("messages refused", 0)),
    )
