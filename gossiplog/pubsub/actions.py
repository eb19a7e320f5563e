"""The actions that `Router.handle` returns, for its driver to carry out in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from .rpc import Message, Rpc
from .types import MessageId, PeerId, TimerToken, Topic


@dataclass(slots=True)
class SendRpc:
    """Send one RPC to each of some connected peers. Not frozen for speed (see `rpc.py`); treat it as if it were.

    The driver answers with `SendFailed` for each peer that has disconnected or whose queue is full, and with nothing for the others.

    Attributes:
        peers: The recipients, distinct, in the order of sending; at least one.
        rpc: One object for all of them; encode it once.
        is_urgent: It has control or messages of our own, so it is sent before forwarded messages and dropped after them (`Outbox`).
    """

    peers: Sequence[PeerId]
    rpc: Rpc
    is_urgent: bool = False


@dataclass(slots=True)
class Validate:
    """Validate a message and answer with `Validated`. Not frozen for speed (see `rpc.py`).

    The router holds the message until then. It asks at most once for each message that its seen cache remembers.

    Attributes:
        source: The propagation source: the direct peer that brought it.
    """

    message: Message
    source: PeerId


@dataclass(slots=True)
class Deliver:
    """Hand an accepted message to the application, once. Not frozen for speed (see `rpc.py`)."""

    message: Message
    source: PeerId


@dataclass(frozen=True, slots=True)
class AnotherSource:
    """One more peer has sent an ignored message, before or after the verdict: another source to sync with."""

    message_id: MessageId
    topic: Topic
    source: PeerId


class Fate(Enum):
    """Whether a published message was sent to one peer of its topic, and why."""

    MESH = "mesh"
    """Sent: full-message peering."""
    FANOUT = "fanout"
    """Sent: fan-out peering, as we are not in the topic."""
    FLOOD = "flood"
    """Sent by flood publishing, by floodsub or by randomsub's draw."""
    FLOODSUB = "floodsub"
    """Sent: the peer speaks floodsub only."""
    DIRECT = "direct"
    """Sent: a direct peer."""
    GOSSIP = "gossip"
    """Not sent: a metadata-only peering (or not drawn, with randomsub); the peer may learn of the message by gossip and ask for it."""
    UNWANTED = "unwanted"
    """Not sent: the peer said, by IDONTWANT, that it has the message."""
    BELOW_THRESHOLD = "below threshold"
    """Not sent: the peer's score is below the publish threshold."""
    DROPPED = "dropped"
    """Not sent after all: the peer's queue was full. A second `Published` reports it, with these peers only."""


SENT = frozenset((Fate.MESH, Fate.FANOUT, Fate.FLOOD, Fate.FLOODSUB, Fate.DIRECT))
"""The fates that mean that the message was sent."""


@dataclass(frozen=True, slots=True)
class Published:
    """The outcome of a publish, for each peer.

    Attributes:
        fates: Each connected peer of the topic once; empty if no connected peer is in the topic.
        is_duplicate: The message had been seen before and was not sent again.
    """

    message_id: MessageId
    topic: Topic
    fates: tuple[tuple[PeerId, Fate], ...]
    is_duplicate: bool = False


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Send `TimerFired(token)` at `at` seconds. Replaces the earlier timer with this token; a late or stale event is harmless."""

    token: TimerToken
    at: float


@dataclass(frozen=True, slots=True)
class Connect:
    """Dial a peer. The answer is `PeerConnected` or `ConnectFailed`; there is none if the peer is connected already.

    Attributes:
        record: The peer's signed record from peer exchange, which the driver must verify before it dials; None when the driver has to
            know the address itself.
        source: The peer that offered the record; None if we dial for reasons of our own.
    """

    peer: PeerId
    record: bytes | None = None
    source: PeerId | None = None


@dataclass(frozen=True, slots=True)
class Disconnect:
    """The router has no more use for the connection. The driver may keep it for other uses; if it closes it, it reports that."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class Probe:
    """Measure the round trip to a peer, dialling it if necessary, and answer with `Probed`."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class SlowPeer:
    """A peer's queue overflowed since the last `SlowPeer` about it.

    Attributes:
        dropped: RPCs dropped since then, at least 1.
    """

    peer: PeerId
    dropped: int


Action: TypeAlias = SendRpc | Validate | Deliver | AnotherSource | Published | SetTimer | Connect | Disconnect | Probe | SlowPeer
