"""The events of a broadcast machine: the arguments of `Broadcast.handle`.

The router's requests to a log (`Validate`, `AnotherSource`) are among them unchanged. An event that no longer makes sense, because the peer
has left or the token is unknown, changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from ..entry.message import Entry
from ..entry.validation import Verdict
from ..errors import CommitError, GossipLogError
from ..pubsub.actions import AnotherSource, Validate
from ..pubsub.events import TimerFired
from ..pubsub.types import PeerId
from ..sync.result import SyncResult
from .allowance import Bringer


class PeerKind(Enum):
    """What a connection can be used for. Source: docs/spec/sync.md, "Mode A" and "Mode B"."""

    MESH = "mesh"
    """A server: pubsub, a push stream that the dialler opens, and syncs both ways."""
    CLIENT = "client"
    """A WebSocket client of ours. It opens the push stream; a push stream opened by us would end its process."""
    HUB = "hub"
    """The WebSocket server that we are a client of. We open the push stream."""


@dataclass(frozen=True, slots=True)
class StartBroadcast:
    """The first event of all.

    Attributes:
        may_foresee: Only verification and our disk decide what the log stores: there is no access rule and no other process.
    """

    may_foresee: bool = False


@dataclass(frozen=True, slots=True)
class StopBroadcast:
    """The last event of all: the log leaves, and the router may go on for other logs."""


@dataclass(frozen=True, slots=True)
class Connected:
    """A peer's first connection is open.

    Attributes:
        protocol: The pubsub protocol that both speak; None without pubsub, as over a plain WebSocket.
        address: The remote IP address; None if it has none or is exempt from counting.
        has_push: It speaks our push protocol; False for a peer that takes part in pubsub alone.
        origin: Where it came from, whatever its id: an IPv4 address, or the /64 of an IPv6 address; None if unknown.
        is_origin_shared: Others share the origin, as behind loopback or a proxy, so it is never banned.
    """

    peer: PeerId
    kind: PeerKind
    is_outbound: bool
    protocol: str | None = None
    address: str | None = None
    has_push: bool = True
    origin: str | None = None
    is_origin_shared: bool = False
    bringer: Bringer = field(default_factory=Bringer)


@dataclass(frozen=True, slots=True)
class Disconnected:
    """A peer's last connection closed, which ends a running sync with it.

    The `SyncFinished` of that sync is still needed, however late, as the entries that it brought have to be passed on.
    """

    peer: PeerId


@dataclass(frozen=True, slots=True)
class PubsubChanged:
    """A connected peer of the mesh has begun to speak pubsub, or ended it (None). For the `SharedRouter`."""

    peer: PeerId
    protocol: str | None


@dataclass(frozen=True, slots=True)
class PushChanged:
    """A connected peer of the mesh says whether it speaks our push protocol."""

    peer: PeerId
    has_push: bool


@dataclass(slots=True)
class BatchBrought:
    """Entries came by a sync or a POST, whose bringer waits for the verdicts.

    Attributes:
        ticket: Identifies the answer, `BatchDecided`.
        way: `sync`, `reconcile` or `post`.
        entries: For each, the 20-byte key under which it came, and its VALUE; both unchecked. The caller compares the keys.
    """

    ticket: int
    way: str
    entries: Sequence[tuple[bytes, bytes]]
    bringer: Bringer


@dataclass(slots=True)
class BatchVerified:
    """The answer to a `VerifyBatch`.

    Attributes:
        verdicts: One for each value.
        next_max: The most entries that the queue's next batch may have; None for the usual limit. See `LogTurns`.
    """

    token: int
    verdicts: Sequence[Verdict]
    next_max: int | None = None


@dataclass(frozen=True, slots=True)
class NotStored:
    """No entry of an `InsertBatch` is stored, because of a fault of ours.

    Attributes:
        reason: The fault, in words.
        may_be_of_one: One of the entries may keep back the others, as a rule or an application raised, not the store.
    """

    reason: str
    may_be_of_one: bool = False

    @classmethod
    def because(cls, error: BaseException) -> NotStored:
        """Make one from an exception that a log raised."""
        reason = str(error) if isinstance(error, GossipLogError) else f"{type(error).__name__}: {error}"
        return cls(reason, isinstance(error, CommitError) or not isinstance(error, GossipLogError))


@dataclass(slots=True)
class BatchInserted:
    """The answer to an `InsertBatch`: the log's verdict about each entry, after the commit."""

    token: int
    outcome: Sequence[Verdict] | NotStored


@dataclass(slots=True)
class EntriesCommitted:
    """The log has new entries, of peers or our own. Comes before the `BatchInserted` of a batch.

    If other processes write to the log, it may come later, when we hear of their entries and ours.
    """

    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class PushOpened:
    """A push stream with the peer is open, whichever side opened it."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class PushClosed:
    """The push stream ended, or `OpenPush` failed, while the connection goes on."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class PushReceived:
    """A message came on a push stream.

    Attributes:
        data: Its bytes without the length prefix, at most 4 MiB, unchecked.
    """

    peer: PeerId
    data: bytes


@dataclass(frozen=True, slots=True)
class PushDropped:
    """A `Push` was dropped for one peer because its queue was full."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class Misbehaved:
    """A peer broke the protocol on a stream that only the driver sees. Many of these make one offence, as does a single grave one."""

    peer: PeerId
    reason: str
    is_grave: bool = False


@dataclass(frozen=True, slots=True)
class LogAnswered:
    """The plan of an `AskLog` returned this."""

    token: int
    answer: Any


@dataclass(frozen=True, slots=True)
class SyncFinished:
    """The session of a `StartSync` is over, however it ended.

    Attributes:
        token: Of the `StartSync`; the peer may have come back and another session with it begun.
    """

    peer: PeerId
    result: SyncResult
    token: int


@dataclass(frozen=True, slots=True)
class SyncServed:
    """A peer has pulled from a state of our log that is no longer the latest."""

    peer: PeerId


SpreadingEvent: TypeAlias = (
    Validate
    | AnotherSource
    | TimerFired
    | StartBroadcast
    | StopBroadcast
    | Connected
    | Disconnected
    | PushChanged
    | PushOpened
    | PushClosed
    | PushReceived
    | PushDropped
    | Misbehaved
    | LogAnswered
    | SyncFinished
    | SyncServed
)
"""The events of the spreading that come from outside."""
Event: TypeAlias = SpreadingEvent | BatchBrought | BatchVerified | BatchInserted | EntriesCommitted
"""All events that a driver reports."""
