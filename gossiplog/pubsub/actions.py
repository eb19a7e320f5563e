"""The actions that a router asks its driver for: the results of `Router.handle`, to be carried out in order."""

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

    The driver answers with `SendFailed` for a peer that has gone or whose queue is full, and otherwise not at all.

    Attributes:
        peers: The recipients, distinct, in the order of sending; at least one.
        rpc: One object for all of them; encode it once.
        is_urgent: It has control or own messages: it goes before forwarded messages, and is dropped after them (`Outbox`).
    """

    peers: Sequence[PeerId]
    rpc: Rpc
    is_urgent: bool = False


@dataclass(slots=True)
class Validate:
    """Validate a message and come back with `Validated`. Not frozen for speed (see `rpc.py`).

    The router holds the message meanwhile. Every message is validated at most once while it is remembered.

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
    """One more peer has sent an ignored message, before or after the verdict: another peer to sync from."""

    message_id: MessageId
    topic: Topic
    source: PeerId


class Fate(Enum):
    """What became of a publish for one peer of its topic."""

    MESH = "mesh"
    """Sent: full-message peering."""
    FANOUT = "fanout"
    """Sent: fan-out peering, we are not in the topic."""
    FLOOD = "flood"
    """Sent by flood publishing, by floodsub or by randomsub's draw."""
    FLOODSUB = "floodsub"
    """Sent: the peer speaks floodsub only."""
    DIRECT = "direct"
    """Sent: a direct peer."""
    GOSSIP = "gossip"
    """Not sent: a metadata-only peering (or not drawn, with randomsub); it may learn of the message by gossip and ask for it."""
    UNWANTED = "unwanted"
    """Not sent: the peer said that it has it."""
    BELOW_THRESHOLD = "below threshold"
    """Not sent: the peer's score is below the publish threshold."""
    DROPPED = "dropped"
    """Not sent after all: the peer's queue was full. A second `Published` reports it, with these peers only."""


SENT = frozenset((Fate.MESH, Fate.FANOUT, Fate.FLOOD, Fate.FLOODSUB, Fate.DIRECT))
"""What says that the message went out."""


@dataclass(frozen=True, slots=True)
class Published:
    """The outcome of a publish, for each peer.

    Attributes:
        fates: Each connected peer of the topic once. Empty: nobody we know is in the topic.
        is_duplicate: The message had been seen before and was not sent again.
    """

    message_id: MessageId
    topic: Topic
    fates: tuple[tuple[PeerId, Fate], ...]
    is_duplicate: bool = False


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Send `TimerFired(token)` at `at` seconds. Replaces an earlier one with this token; a late or a stale one is harmless."""

    token: TimerToken
    at: float


@dataclass(frozen=True, slots=True)
class Connect:
    """Dial a peer. The answer is `PeerConnected` or `ConnectFailed`, or none if the peer is connected already.

    Attributes:
        record: Its signed record from peer exchange, which the driver must verify before it dials; None when the driver has to
            know the address itself.
        source: The peer that offered it; None if we want it for reasons of our own.
    """

    peer: PeerId
    record: bytes | None = None
    source: PeerId | None = None


@dataclass(frozen=True, slots=True)
class Disconnect:
    """The router has no more use for the connection. The driver may keep it for other uses, and reports its end if it closes it."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class Probe:
    """Measure the round trip to a peer, dialling it if need be, and come back with `Probed`."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class SlowPeer:
    """A peer's queue overflowed since it was last told.

    Attributes:
        dropped: RPCs that were not sent, > 0.
    """

    peer: PeerId
    dropped: int


Action: TypeAlias = SendRpc | Validate | Deliver | AnotherSource | Published | SetTimer | Connect | Disconnect | Probe | SlowPeer
