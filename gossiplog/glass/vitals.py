"""The figures that a doctor looks at, whoever took them; None for what was not looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["HEADS_WARN", "Certificate", "Clock", "Disk", "LogFigures", "NetworkFigures", "PeerFigures", "Vitals"]

HEADS_WARN = 1_000
"""An update names as many heads as this, and an append has 256 parents at most."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Our clock beside another's.

    Attributes:
        ahead_s: How far ours is ahead of it.
        uncertain_s: By how much that may be wrong: half of the round trip, and the other's whole seconds.
    """

    ahead_s: float
    uncertain_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Disk:
    """Where a log lies: bytes that are free for us, and all bytes."""

    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Certificate:
    """A server's certificate: the name on it, and for how many seconds it is still good."""

    name: str
    left_s: float


@dataclass(frozen=True, slots=True)
class LogFigures:
    """What is in a log.

    Attributes:
        entries: How many.
        heads: How many, up to `HEADS_WARN` + 1.
        quarantined: How many.
        quarantined_lately: How many of them in the last hour.
        set_aside: How many entries each application set aside, up to 10,000 in all.
        looked_at: Entries whose place in the tree was looked at; 0 for none.
        faults: What was wrong with them.
    """

    entries: int
    heads: int
    quarantined: int = 0
    quarantined_lately: int = 0
    set_aside: Mapping[str, int] = field(default_factory=dict)
    looked_at: int = 0
    faults: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PeerFigures:
    """One connected peer.

    Attributes:
        peer: Its id.
        kind: `mesh`, `client` or `hub`.
        protocol: The pubsub protocol spoken with it; None for none.
        topics: What it subscribes to.
        score: Its score; None where none is kept.
        is_heeded: What it sends is read.
        queued_bytes: What waits to be pushed to it.
        dropped: Messages for it that found no room.
        refused: Messages of its that were refused.
        is_pushing: Entries and heads can be pushed to it.
    """

    peer: str
    kind: str
    protocol: str | None = None
    topics: Sequence[str] = ()
    score: float | None = None
    is_heeded: bool = True
    queued_bytes: int = 0
    dropped: int = 0
    refused: int = 0
    is_pushing: bool = True


@dataclass(frozen=True, slots=True)
class NetworkFigures:
    """One log's server.

    Attributes:
        topic: The log's.
        peers: Who is connected.
        hubs: URLs of the hubs that it is kept connected to.
        is_in_mesh: It is to find peers among servers.
        degree: Peers that get every entry by pubsub.
        is_spread: What is published now reaches as many peers at once as the router wants, or all that are subscribed.
        queue_bytes_max: How much may wait for one peer.
        dials: Addresses that cannot be reached, with the reason.
        banned: Who is banned, with the reason.
        quiet_s: For how long nothing new was stored.
        store_trouble: Why the log does not answer or store; None while it does.
        is_disk_full: The last commit failed for want of space.
        misplaced: What became of the file that the log was opened at, if it is no more there.
        waiting: Entries that wait to be verified.
    """

    topic: str
    peers: Sequence[PeerFigures] = ()
    hubs: Sequence[str] = ()
    is_in_mesh: bool = False
    degree: int = 0
    is_spread: bool = True
    queue_bytes_max: int = 4 * 2**20
    dials: Mapping[str, str] = field(default_factory=dict)
    banned: Mapping[str, str] = field(default_factory=dict)
    quiet_s: float = 0.0
    store_trouble: str | None = None
    is_disk_full: bool = False
    misplaced: str | None = None
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Vitals:
    """The figures of one moment; None for what was not looked at.

    Attributes:
        version: Of the program that is examined.
        our_version: Of the program that asks.
        clock: Our clock beside its.
        disk: Where the log lies.
        files: File descriptors: open, and the most there may be.
        certificate: The server's.
        log: What is in it.
        network: Who is connected.
    """

    version: str | None = None
    our_version: str | None = None
    clock: Clock | None = None
    disk: Disk | None = None
    files: tuple[int, int] | None = None
    certificate: Certificate | None = None
    log: LogFigures | None = None
    network: NetworkFigures | None = None
