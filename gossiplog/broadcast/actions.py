"""What a broadcast machine asks its driver to do: the results of `Broadcast.handle`, to be carried out in order.

The router's own actions come through unchanged. The driver hands `Validate` and `AnotherSource` to the machine of their topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..entry.message import Entry
from ..entry.validation import Verdict
from ..plan import Plan
from ..pubsub.actions import Action as RouterAction
from ..pubsub.types import MessageId, PeerId
from ..sync.source import Source
from .allowance import Bringer
from .peers import LogPeer


@dataclass(frozen=True, slots=True)
class AskLog:
    """Run a plan on the latest committed state of our own log, and report `LogAnswered`."""

    token: int
    plan: Plan[Any]


@dataclass(slots=True)
class InsertEntry:
    """An entry goes to the intake, which answers with `EntryDecided`. The driver has nothing to do.

    Not frozen, for speed, as pubsub's `Validate`, and because the spreading notes in it what it does about the entry meanwhile.

    Attributes:
        token: Given by `PendingInserts`.
        key: The 20 bytes under which it was sent, unchecked.
        value: VALUE, unchecked.
        digest: SHA-256 of the message it came in.
        opened: The value of `Pushes.opened` when it came.
        message_id: The router's name for that message; None when the entry was pushed.
        pusher: The peer that pushed it; None when the router brought it.
        is_usual: The message is the one that we would have published for this entry.
        is_retried: It is an orphan that is tried again.
        spread_at: The value of `Pushes.opened` when the entry was passed on before it was stored; None if it was not.
    """

    token: int
    key: bytes
    value: bytes
    source: PeerId
    bringer: Bringer = field(default_factory=Bringer)
    digest: bytes = b""
    opened: int = 0
    message_id: MessageId | None = None
    pusher: LogPeer | None = None
    is_usual: bool = True
    is_retried: bool = False
    spread_at: int | None = None


@dataclass(slots=True)
class VerifyBatch:
    """Verify some entries, and report `BatchVerified`: in the same step if that is cheap, else later.

    Attributes:
        values: The VALUE of each entry, unchecked. May be empty.
    """

    token: int
    values: Sequence[bytes]


@dataclass(slots=True)
class InsertBatch:
    """Insert the entries that these verdicts accepted, as one piece of work, and report `BatchInserted`. Batches are inserted in order.

    Attributes:
        verdicts: At least one; each accepts an entry.
        way: How the entries came: `queue` (pushed or gossiped), `sync`, `reconcile` or `post`.
    """

    token: int
    verdicts: Sequence[Verdict]
    way: str


@dataclass(slots=True)
class EntryForeseen:
    """An entry is passed on before it is stored: it is valid and new, and its parents are here, so only our own disk can keep it out.

    The next actions pass it on. Its `EntryDecided` comes later. See `CertainEntries`.
    """

    entry: InsertEntry
    found: Entry


@dataclass(slots=True)
class EntryDecided:
    """A pushed or gossiped entry is decided. The actions that follow from that come next."""

    entry: InsertEntry
    verdict: Verdict


@dataclass(slots=True)
class BatchDecided:
    """The entries of a `BatchBrought` are decided."""

    ticket: int
    verdicts: Sequence[Verdict]


@dataclass(slots=True)
class EntriesAppended:
    """The log has new entries that no peer brought: appended here or in another process, posted, or imported.

    They are committed, as durably as the log promises, parents first. The actions that follow from that come next.
    """

    entries: Sequence[Entry]


@dataclass(slots=True)
class Push:
    """Write one message, length-prefixed, to the push stream of each of these peers.

    The driver reports `PushDropped` for each peer whose queue is full.

    Attributes:
        peers: Distinct, in the order of sending; at least one.
        data: An encoded Event of the push protocol.
    """

    peers: tuple[PeerId, ...]
    data: bytes


@dataclass(frozen=True, slots=True)
class OpenPush:
    """Open a push stream to a connected peer that is no `CLIENT`, and report `PushOpened` or `PushClosed`."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class ClosePush:
    """Reset the push stream, on which the peer broke the protocol, and report `PushClosed`."""

    peer: PeerId
    reason: str


@dataclass(frozen=True, slots=True)
class PushRefused:
    """Tell a client that may not push which of its entries we refuse: one that it pushed, or heads that it announced and we lack.

    Attributes:
        keys: The keys of the refused entries; at least one.
    """

    peer: PeerId
    keys: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class StartSync:
    """Begin one session with a connected peer, as its client, and report `SyncFinished`.

    Attributes:
        source: The knowledge from earlier sessions with this peer, for the `SyncClient`.
        first_answer_s: Seconds until the first answer must have come, opening the stream included; None for the usual limit.
    """

    peer: PeerId
    source: Source
    token: int
    first_answer_s: float | None = None


@dataclass(frozen=True, slots=True)
class Ban:
    """Close all connections with a peer and refuse new ones until a time. The peer counts as disconnected from now on.

    Attributes:
        until: Seconds on the driver's clock.
        origin: The peer's origin, if connections from there are refused as well; only peers with offences are connected from there.
    """

    peer: PeerId
    until: float
    reason: str
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class Unwelcome:
    """Log, once per peer, that something it sent was ignored.

    Attributes:
        reason: What was ignored and why, in words.
        is_blamed: It counts as an offence.
    """

    peer: PeerId
    reason: str
    is_blamed: bool = False


SpreadingAction: TypeAlias = RouterAction | AskLog | InsertEntry | Push | OpenPush | ClosePush | PushRefused | StartSync | Ban | Unwelcome
Action: TypeAlias = SpreadingAction | VerifyBatch | InsertBatch | EntryForeseen | EntryDecided | BatchDecided | EntriesAppended
