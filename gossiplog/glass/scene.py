"""What one server knows of an entry and of its peers at one moment: what `why.py` judges over.

Source: docs/glass.md, "Why".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import DecodeError

__all__ = ["Holding", "Link", "Scene", "SetAside", "link_from", "scene_from"]


@dataclass(frozen=True, slots=True)
class SetAside:
    """An application could make nothing of an entry of the log; `since` is Unix time."""

    application: str
    reason: str
    since: float


@dataclass(frozen=True, slots=True)
class Holding:
    """What a log says of one entry.

    Attributes:
        is_stored: It is in the log.
        set_aside: Which applications set it aside.
        quarantined: Rule and reason, if a repair keeps it out of the log.
        void: Why the log's access rule refused it, or what it descends from; None if it did not.
        missing: Parents that it waits for; empty unless it waits.
        is_rejected: It was rejected, and is refused unread when it comes again.
    """

    is_stored: bool = False
    set_aside: Sequence[SetAside] = ()
    quarantined: tuple[str, str] | None = None
    void: str | None = None
    missing: Sequence[str] = ()
    is_rejected: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """One connected peer, as a server sees it.

    Attributes:
        peer: Its id.
        kind: `mesh`, `client` or `hub`.
        protocol: The pubsub protocol spoken with it; None for none.
        topics: What it subscribes to.
        peering: `full`, `metadata`, `fanout` or `none`.
        is_pushing: A push stream stands.
        is_heeded: What it sends by pubsub is read.
        is_syncing: A sync with it runs.
        score: None where none is kept.
        queued_bytes: What waits to be pushed to it.
        dropped: Messages for it that found no room.
        rights: What it may, where it is a client.
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


@dataclass(frozen=True, slots=True)
class Scene:
    """A server and its peers.

    Attributes:
        node: Its own peer id.
        topic: The log's.
        links: Who is connected, by peer id.
        banned: Who is banned, with the reason.
        refused: Of whom messages were refused, with the latest reason.
        dials: What cannot be reached, by address or peer id, with the reason.
        trouble: Why nothing can be stored at the moment; None while it can.
    """

    node: str
    topic: str
    links: Mapping[str, Link] = field(default_factory=dict)
    banned: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    dials: Mapping[str, str] = field(default_factory=dict)
    trouble: str | None = None


def scene_from(record: Mapping[str, Any], trouble: str | None = None) -> Scene:
    """Read a scene out of what `GET peers` answers.

    Raises:
        DecodeError: It is something else.
    """
    try:
        links = [link_from(one) for one in record["peers"]]
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


def link_from(record: Mapping[str, Any]) -> Link:
    """Read one peer of it; a server of an earlier version says less."""
    score, queue, counts = record.get("score"), record.get("queue", {}), record.get("counts", {})
    return Link(
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
    )
