"""What a broadcast machine asks its driver to do: the results of `Broadcast.handle`, to be carried out in order.

The router's own actions come through as they are, but for `Validate` and `AnotherSource`, which end here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from ..plan import Plan
from ..pubsub.actions import Connect, Deliver, Disconnect, Probe, Published, SendRpc, SetTimer, SlowPeer
from ..pubsub.types import PeerId
from ..sync.source import Source

__all__ = ["Action", "Ask", "Ban", "ClosePush", "InsertEntry", "OpenPush", "Push", "RouterAction", "StartSync", "Unwelcome"]


@dataclass(frozen=True, slots=True)
class Ask:
    """Run a plan on our own log, on its latest committed state, and come back with `Answered`."""

    token: int
    plan: Plan[Any]


@dataclass(slots=True)
class InsertEntry:
    """Validate an entry, insert it if it passes, and come back with `Inserted`. Not frozen for speed (as pubsub's `Validate`).

    Attributes:
        token: For the answer.
        key: 20 bytes that it was sent under, unchecked.
        value: VALUE, unchecked.
        source: Who brought it, for logs.
    """

    token: int
    key: bytes
    value: bytes
    source: PeerId


@dataclass(slots=True)
class Push:
    """Write one message, length-prefixed, to the push stream of each of these peers.

    The driver answers with `PushDropped` for a peer whose queue is full, and says nothing otherwise.

    Attributes:
        peers: Distinct, in the order of sending; at least one.
        data: An encoded Event of the push protocol.
    """

    peers: tuple[PeerId, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class OpenPush:
    """Open a push stream to a connected peer and come back with `PushOpened` or `PushClosed`. Never asked for a `CLIENT`."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class ClosePush:
    """Reset the push stream, on which the peer broke the protocol, and come back with `PushClosed`."""

    peer: PeerId
    reason: str


@dataclass(frozen=True, slots=True)
class StartSync:
    """Begin one session with a connected peer, as its client, and come back with `SyncFinished`.

    Attributes:
        peer: With whom.
        source: What earlier sessions with this peer have taught us, for the `SyncClient`.
        token: For the answer.
        first_answer_s: Seconds within which the first answer must be there, opening the stream included, while many want to be asked.
    """

    peer: PeerId
    source: Source
    token: int
    first_answer_s: float | None = None


@dataclass(frozen=True, slots=True)
class Ban:
    """Close all connections with a peer and refuse new ones until a time; it counts as disconnected from now on.

    Attributes:
        peer: Who.
        until: Seconds on the driver's clock.
        reason: Why, for the log.
        origin: Where it came from, if that is refused as well: nothing else is known of who it is, and nobody else is there.
    """

    peer: PeerId
    until: float
    reason: str
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class Unwelcome:
    """Log, once a peer, that something of its was left alone.

    Attributes:
        peer: Who.
        reason: Why.
        is_blamed: It counts as an offence; else the peer is not to blame.
    """

    peer: PeerId
    reason: str
    is_blamed: bool = False


RouterAction: TypeAlias = SendRpc | Deliver | Published | SetTimer | Connect | Disconnect | Probe | SlowPeer
Action: TypeAlias = RouterAction | Ask | InsertEntry | Push | OpenPush | ClosePush | StartSync | Ban | Unwelcome
