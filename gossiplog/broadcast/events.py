"""What may happen to a broadcast machine: the arguments of `Broadcast.handle`.

What the router asks of a log (`Validate`, `AnotherSource`) is handed on as it is. An event that no longer makes sense
(the peer has gone, the token is unknown) changes nothing.
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
    """What a connection is good for. Source: docs/spec/sync.md, "Mode A" and "Mode B"."""

    MESH = "mesh"
    """A server: pubsub, a push stream that the dialler opens, syncs both ways."""
    CLIENT = "client"
    """A WebSocket client of ours. It opens the push stream; a push stream opened by us would end its process."""
    HUB = "hub"
    """The WebSocket server that we are a client of. We open the push stream."""


@dataclass(frozen=True, slots=True)
class StartBroadcast:
    """The first event of all.

    Attributes:
        may_foresee: Nothing but verification and our disk decides what the log stores: no access rule, and no other process.
    """

    may_foresee: bool = False


@dataclass(frozen=True, slots=True)
class StopBroadcast:
    """The last event of all: the log leaves, while the router may go on for others."""


@dataclass(frozen=True, slots=True)
class Connected:
    """A peer's first connection is open.

    Attributes:
        protocol: The pubsub protocol that both speak; None without pubsub, as over a plain WebSocket.
        address: The remote IP address; None when it has none or is exempt from counting.
        has_push: It speaks our push protocol; False for a stranger who takes part in pubsub alone.
        origin: Where it came from, whatever it calls itself: an IPv4 address, the /64 of an IPv6 address; None where nothing is known.
        is_origin_shared: Others stand behind that, as behind loopback or a proxy: it is never banned.
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
    """A peer's last connection closed. A sync with it that is running ends as well; its `SyncFinished` is still needed, even late, for
    what it brought before is to be told to the others.
    """

    peer: PeerId


@dataclass(frozen=True, slots=True)
class PubsubChanged:
    """A connected peer of the mesh has begun with pubsub, or ended it. For the `SharedRouter`."""

    peer: PeerId
    protocol: str | None


@dataclass(frozen=True, slots=True)
class PushChanged:
    """A connected peer of the mesh says whether it speaks our push protocol, which it may not have said before."""

    peer: PeerId
    has_push: bool


@dataclass(slots=True)
class BatchBrought:
    """Entries came whose bringer waits for their verdicts: those of a sync, or one that was posted.

    Attributes:
        ticket: For the answer, `BatchDecided`.
        way: `sync`, `reconcile` or `post`.
        entries: The key under which each came, 20 bytes, and its VALUE; unchecked. The caller compares the keys.
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
        next_max: How many entries the queue's next batch may have; None for as many as there are. See `LogTurns`.
    """

    token: int
    verdicts: Sequence[Verdict]
    next_max: int | None = None


@dataclass(frozen=True, slots=True)
class NotStored:
    """Nothing of an `InsertBatch` is stored, through a fault of ours.

    Attributes:
        reason: The fault, in words.
        may_be_of_one: An entry of it may be what keeps back the others: a rule or an application raised, not the store.
    """

    reason: str
    may_be_of_one: bool = False

    @classmethod
    def because(cls, error: BaseException) -> NotStored:
        """Explain what a log raised."""
        reason = str(error) if isinstance(error, GossipLogError) else f"{type(error).__name__}: {error}"
        return cls(reason, isinstance(error, CommitError) or not isinstance(error, GossipLogError))


@dataclass(slots=True)
class BatchInserted:
    """The answer to an `InsertBatch`: the log's verdict about each entry, after the commit."""

    token: int
    outcome: Sequence[Verdict] | NotStored


@dataclass(slots=True)
class EntriesCommitted:
    """The log has new entries, of peers and of our own. Told before the `BatchInserted` of those that were handed over.

    Where other processes write to the log it may be told later, when we hear of their entries and ours.
    """

    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class PushOpened:
    """A push stream to the peer stands, opened by either side."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class PushClosed:
    """The push stream ended, or `OpenPush` came to nothing, while the connection goes on."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class PushReceived:
    """One message came on a push stream.

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
    """A peer broke the protocol on a stream that is the driver's own business; many of them make an offence, or one that is grave."""

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
    """A peer has pulled from a state of our log that is not the latest any more."""

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
"""What the spreading is told of the outside."""
Event: TypeAlias = SpreadingEvent | BatchBrought | BatchVerified | BatchInserted | EntriesCommitted
"""What a driver tells."""
