"""What the service knows of its peers: their connections, and the streams and tasks that belong to each."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import trio

from ...broadcast.allowance import Bringer
from ...broadcast.events import PeerKind
from ...entry.message_id import encode_id
from ...entry.validation import Rule, Verdict
from ...limits import TokenBucket
from ...pubsub.types import PeerId
from ...pull.machine import Speaks
from ...pull.serving import Dealings
from ...sync.limits import ServerLimits
from ..ground.access import ALL, Rights
from ..ground.admission import Worth
from ..ground.journal import note
from ..transport.stream import Connection
from .push_stream import PushStream
from .refusals import RefusalBox


@dataclass(frozen=True, slots=True)
class PeerConnectionState:
    """One connection at one moment, for a page, a terminal or a metric.

    Attributes:
        address: Its remote IP address, if it has one.
        since: Unix time at which it was attached, in seconds.
        queued_bytes: What waits to be pushed to the peer.
        counts: What has happened on it, by name: entries and updates received, pushed and dropped, syncs, entries pulled.
    """

    peer: PeerId
    kind: str
    is_outbound: bool
    address: str | None
    since: float
    is_pushing: bool
    queued_bytes: int
    counts: Mapping[str, int]


@dataclass(eq=False, slots=True)
class PeerConnection:
    """One attached connection.

    Attributes:
        nursery: The tasks that use it; cancelled when it is detached.
        since: Unix time, seconds.
        speaks: By which protocols the peer is pulled from.
        given_up: Set to have the log use the connection no longer; whoever attached it, but for a mesh, waits for that.
    """

    connection: Connection
    peer: ServedPeer
    nursery: trio.Nursery
    since: float
    speaks: Speaks = field(default_factory=Speaks)
    given_up: trio.Event = field(default_factory=trio.Event)

    def start(self, task: Callable[[PeerConnection], Awaitable[None]]) -> None:
        """Start a task that ends with the connection at the latest; a fault in it ends nothing but itself."""
        self.nursery.start_soon(self._run, task)

    async def _run(self, task: Callable[[PeerConnection], Awaitable[None]]) -> None:
        try:
            await task(self)
        except Exception as error:
            note("fault in a task", level=logging.ERROR, error=error, peer=self.peer.id)


@dataclass(eq=False, slots=True)
class ServedPeer:
    """One peer, with at least one connection.

    Attributes:
        links: Its connections, the oldest first; new streams are opened on the first.
        bucket: What it may ask for in syncs.
        inserting: How many of the peer's entries are being inserted.
        settled: Set when there are fewer of those.
        serving: Held by the sync session that is served.
        pulling: Running syncs that we began.
        serving_waiting: The peer's sync streams that wait for their turn.
        dealings: What the pulls of either side know of each other.
        refusals: Why messages of its were refused, as far as that was logged.
        bringer: The rules for the entries that it brings.
        refusal_box: Refusals to be told to a client.
        hearing: Of the stream on which it is told.
        rights: The client's rights.
        told: What has been logged of it once, and is not again.
    """

    id: PeerId
    kind: PeerKind
    bucket: TokenBucket
    origin: str | None = None
    links: list[PeerConnection] = field(default_factory=list)
    push: PushStream | None = None
    inserting: int = 0
    settled: trio.Event = field(default_factory=trio.Event)
    serving: trio.Lock = field(default_factory=trio.Lock)
    serving_waiting: int = 0
    dealings: Dealings = field(default_factory=Dealings)
    pulling: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    refusals: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)
    bringer: Bringer = field(default_factory=Bringer)
    refusal_box: RefusalBox = field(default_factory=RefusalBox)
    hearing: trio.CancelScope = field(default_factory=trio.CancelScope)
    rights: Rights = ALL

    def note_once(self, what: str, event: str, *, level: int = logging.INFO, **fields: Any) -> None:
        """Log an event of a kind that has not been logged of this peer; `what` names the kind, one of a few."""
        if what not in self.told:
            self.told.add(what)
            note(event, level=level, peer=self.id, **fields)

    def count(self, what: str, number: int = 1) -> None:
        """Count something that happened."""
        self.counts[what] += number

    def on_verdict(self, key: bytes, verdict: Verdict) -> None:
        """Have it told what became of an entry of its, and log a refusal, once a rule; of orphans and faults of ours others tell."""
        rule = verdict.rule
        if rule is not None and rule not in (Rule.PARENTS, Rule.STORAGE):
            self.note_once(rule, "entry not taken", level=logging.WARNING, id=encode_id(key), rule=rule, reason=verdict.reason)
        self.refusal_box.add(key, verdict)

    @property
    def is_syncing(self) -> bool:
        """Whether a sync with it runs, ours or its own."""
        return self.serving.locked() or self.pulling > 0

    @property
    def worth(self) -> Worth:
        """What its connections were good for so far."""
        if self.counts.get("entries new") or self.counts.get("entries pulled"):
            return Worth.DELIVERED
        return Worth.TALKS if self.counts.get("received") or self.counts.get("syncs served") else Worth.NOTHING

    def states(self) -> list[PeerConnectionState]:
        """Show its connections."""
        is_pushing = self.push is not None
        queued = 0 if self.push is None else self.push.queued_bytes
        return [
            PeerConnectionState(
                self.id,
                self.kind.value,
                link.connection.is_outbound,
                link.connection.address,
                link.since,
                is_pushing,
                queued,
                dict(self.counts),
            )
            for link in self.links
        ]


def new_bucket(now: float) -> TokenBucket:
    """Return a peer's full allowance of sync requests."""
    limits = ServerLimits()
    return TokenBucket(limits.requests_per_s, limits.requests_burst, now)
