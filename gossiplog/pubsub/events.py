"""The events that a router handles: the arguments of `Router.handle`.

An event that no longer makes sense (the peer has gone, the timer is stale, the verdict came twice) changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, final

from ..entry.validation import Outcome as Outcome
from .rpc import Message, Rpc
from .types import MessageId, PeerId, TimerToken, Topic


@dataclass(frozen=True, slots=True)
class Start:
    """The first event; the router sets its timers. `me` is our own peer id."""

    me: PeerId


@dataclass(frozen=True, slots=True)
class PeerConnected:
    """A connection is open and its pubsub protocol known. Only a peer's first connection is reported.

    Attributes:
        protocol: The protocol id that both sides speak, one of `Router.protocols`.
        address: The remote IP address, counted for P6; None when it has none or is exempt.
    """

    peer: PeerId
    protocol: str
    is_outbound: bool
    address: str | None = None


@dataclass(frozen=True, slots=True)
class PeerDisconnected:
    """A peer's last connection closed."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class ConnectFailed:
    """A `Connect` of ours failed."""

    peer: PeerId


@final
@dataclass(slots=True)
class RpcReceived:
    """A connected peer sent an RPC. Not frozen for speed (see `rpc.py`); treat it as if it were.

    Attributes:
        rpc: The RPC, without the messages that the codec refused.
        refused: The topic of each message that was signed; each counts as an invalid message (P4).
        offences: The number of other faults of the frame (no RPC, or repeated control messages); they are misbehaviour (P7).
        is_first: It was the first RPC on its stream, the only one that may announce extensions. A peer's first RPC of all always counts.
    """

    peer: PeerId
    rpc: Rpc
    refused: tuple[Topic, ...] = ()
    offences: int = 0
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class SendFailed:
    """An RPC of a `SendRpc` was dropped for one peer: its queue was full, or it has disconnected."""

    peer: PeerId
    rpc: Rpc


@dataclass(frozen=True, slots=True)
class Subscribe:
    """The application joins a topic."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """The application leaves a topic."""

    topic: Topic


@dataclass(frozen=True, slots=True)
class Publish:
    """The application publishes a message of its own, which is not validated and not delivered back.

    If a peer brought the message before and it was ignored, it is now delivered and forwarded as if it had just been accepted.
    """

    message: Message


@final
@dataclass(slots=True)
class Validated:
    """The answer to a `Validate`. Not frozen for speed (see `rpc.py`); treat it as if it were."""

    message_id: MessageId
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class TimerFired:
    """The time of a `SetTimer` has come. `token` is the timer's."""

    token: TimerToken


@dataclass(frozen=True, slots=True)
class AppScored:
    """The application's own score of a peer (P5)."""

    peer: PeerId
    value: float


@dataclass(frozen=True, slots=True)
class PeerRecordLearned:
    """The driver has a peer's signed record (from identify), which peer exchange may pass on."""

    peer: PeerId
    record: bytes


@dataclass(frozen=True, slots=True)
class Probed:
    """The answer to a `Probe`: the round trip in seconds; None if the peer could not be reached or left the topic."""

    peer: PeerId
    rtt_s: float | None


OtherEvent: TypeAlias = AppScored | PeerRecordLearned | Probed | ConnectFailed
"""The events that only some routers heed."""
RareEvent: TypeAlias = TimerFired | Publish | PeerConnected | PeerDisconnected | SendFailed | Subscribe | Unsubscribe | Start | OtherEvent
Event: TypeAlias = RpcReceived | Validated | RareEvent
