"""What a broadcast machine asks its driver to do: the results of `Broadcast.handle`, to be carried out in order.

The router's own actions come through as they are. `Validate` and `AnotherSource` the driver hands to the machine of their topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..entry.message import Entry
from ..entry.validation import Verdict
from ..plan import Plan
from ..pubsub.actions import Action as RouterAction
from ..pubsub.types import PeerId
from ..sync.source import Source
from .allowance import Bringer


@dataclass(frozen=True, slots=True)
class AskLog:
    """Run a plan on our own log, on its latest committed state, and come back with `LogAnswered`."""

    token: int
    plan: Plan[Any]


@dataclass(slots=True)
class InsertEntry:
    """An entry is under way: it goes to the intake, which comes back with `EntryDecided`. The driver has nothing to do.

    Not frozen for speed (as pubsub's `Validate`), and equal to nothing but itself.

    Attributes:
        key: 20 bytes that it was sent under, unchecked.
        value: VALUE, unchecked.
    """

    token: int
    key: bytes
    value: bytes
    source: PeerId
    bringer: Bringer = field(default_factory=Bringer)


@dataclass(slots=True)
class VerifyBatch:
    """Verify these, and come back with `BatchVerified`: in the same step where that is cheap, else later. There may be none of them.

    Attributes:
        values: VALUE of each, unchecked.
    """

    token: int
    values: Sequence[bytes]


@dataclass(slots=True)
class InsertBatch:
    """Insert what these verdicts accepted, as one piece of work, and come back with `BatchInserted`. Several are inserted in their order.

    Attributes:
        verdicts: Each accepts an entry; at least one.
        way: How they came: `queue` (pushed or gossiped), `sync`, `reconcile` or `post`.
    """

    token: int
    verdicts: Sequence[Verdict]
    way: str


@dataclass(slots=True)
class EntryForeseen:
    """An entry is passed on before it is stored: it is valid, new, and has its parents here, so only our own disk can keep it out.

    The next actions pass the entry on; its `EntryDecided` comes later. See `CertainEntries`.
    """

    entry: InsertEntry
    found: Entry


@dataclass(slots=True)
class EntryDecided:
    """This became of an entry that was pushed or gossiped; what follows from it comes after."""

    entry: InsertEntry
    verdict: Verdict


@dataclass(slots=True)
class BatchDecided:
    """This became of the entries of a `BatchBrought`, for its caller."""

    ticket: int
    verdicts: Sequence[Verdict]


@dataclass(slots=True)
class EntriesAppended:
    """Entries are new in the log that no peer brought: our own appends, those of other processes, what was posted or imported.

    They are committed, as durably as the log promises, and in order, parents first. The actions that this leads to come next.
    """

    entries: Sequence[Entry]


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
class PushRefused:
    """Tell a client that may not push that these are not taken of it: an entry that it pushed, or heads that it has and we lack.

    Attributes:
        keys: Of what is not taken; empty where nothing of what it said is lacking here, as far as is known.
    """

    peer: PeerId
    keys: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class StartSync:
    """Begin one session with a connected peer, as its client, and come back with `SyncFinished`.

    Attributes:
        source: What earlier sessions with this peer have taught us, for the `SyncClient`.
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
        until: Seconds on the driver's clock.
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
        reason: What was left alone and why, in words.
        is_blamed: It counts as an offence; else the peer is not to blame.
    """

    peer: PeerId
    reason: str
    is_blamed: bool = False


SpreadingAction: TypeAlias = RouterAction | AskLog | InsertEntry | Push | OpenPush | ClosePush | PushRefused | StartSync | Ban | Unwelcome
Action: TypeAlias = SpreadingAction | VerifyBatch | InsertBatch | EntryForeseen | EntryDecided | BatchDecided | EntriesAppended
