"""The peers of a log and the connections with them, with the streams and tasks that belong to each."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import trio

from ...broadcast.allowance import Bringer
from ...broadcast.events import PeerKind
from ...entry.message_id import encode_id
from ...entry.validation import Rule, Verdict
from ...errors import StreamReset
from ...limits import TokenBucket
from ...pubsub.types import PeerId
from ...pull.machine import Speaks
from ...pull.serving import Dealings
from ...sync.limits import ServerLimits
from ..ground.access import ALL, Rights
from ..ground.admission import Worth
from ..ground.journal import note
from ..transport.muxed import Connection, Handler, Stream
from .push_stream import PushStream
from .refusals import RefusalBox

T = TypeVar("T")
_ATTACH_S = 5.0


@dataclass(frozen=True, slots=True)
class PeerConnectionState:
    """One connection at one moment, for a page, a terminal or a metric.

    Attributes:
        address: The remote IP address; None if there is none.
        since: Unix time at which it was attached, in seconds.
        queued_bytes: Bytes that wait to be pushed to the peer.
        counts: What happened with the peer so far, by name: entries and updates received, pushed and dropped, syncs, entries pulled.
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
        speaks: The protocols by which we can pull from the peer.
        given_up: Set to make the log stop using the connection. Except in a mesh, the caller that attached it waits for this.
    """

    connection: Connection
    peer: ServedPeer
    nursery: trio.Nursery
    since: float
    speaks: Speaks = field(default_factory=Speaks)
    given_up: trio.Event = field(default_factory=trio.Event)

    def start(self, task: Callable[[PeerConnection], Awaitable[None]]) -> None:
        """Start a task that ends with the connection at the latest. If it raises, that is logged and nothing else ends."""
        self.nursery.start_soon(self._run, task)

    async def _run(self, task: Callable[[PeerConnection], Awaitable[None]]) -> None:
        try:
            await task(self)
        except Exception as error:
            note("fault in a task", level=logging.ERROR, error=error, peer=self.peer.id)


class Attached(Generic[T]):
    """The connections in use, with what is known of each."""

    def __init__(self) -> None:
        # With the streams that the peer opened and that are being served.
        self._links: dict[Connection, tuple[T, set[trio.CancelScope]]] = {}
        self._waiting = trio.lowlevel.ParkingLot()

    def get(self, connection: Connection) -> T | None:
        """Return what is known of a connection; None if it is not in use."""
        return self._links[connection][0] if connection in self._links else None

    def add(self, connection: Connection, link: T) -> None:
        """Use a connection from now on."""
        self._links[connection] = link, set()
        self._waiting.unpark_all()

    def remove(self, connection: Connection) -> None:
        """Stop using a connection: it may stay open, but the streams of ours that it carries end."""
        for scope in self._links.pop(connection)[1]:
            scope.cancel()

    def handler(self, serve: Callable[[T, Stream], Awaitable[None]], *, may_end: bool = False) -> Handler:
        """Return a handler that serves a peer's streams with a function, for as long as their connection is in use.

        A stream that comes before that waits for it, for up to 5 s.

        Args:
            may_end: Whether a stream may end anywhere; if not, it is reset when its connection is no longer in use.
        """

        async def handle(connection: Connection, stream: Stream) -> None:
            with trio.move_on_after(_ATTACH_S):
                while connection not in self._links:
                    await self._waiting.park()
            if connection not in self._links:
                raise StreamReset("the connection is not in use")
            link, scopes = self._links[connection]
            with trio.CancelScope() as scope:
                scopes.add(scope)
                try:
                    await serve(link, stream)
                finally:
                    scopes.discard(scope)
            if scope.cancelled_caught and not may_end:
                raise StreamReset("the log is not served here any more")

        return handle


@dataclass(eq=False, slots=True)
class ServedPeer:
    """One peer, with at least one connection.

    Attributes:
        bucket: The sync requests that it may still make.
        origin: The address group that it comes from; None without an address.
        links: Its connections, the oldest first; new streams are opened on the first.
        push: Its push stream, while one is open.
        inserting: How many entries of the peer are being verified or inserted.
        settled: Tasks that wait until there are fewer of those.
        serving: Held by the sync session that we serve; further ones of the peer wait for it.
        dealings: What our pulls from the peer and its pulls from us know of each other.
        pulling: How many syncs of ours with the peer run.
        refusals: The reasons for refusing its messages that have been logged.
        told: The kinds of events that have been logged once and are not logged again.
        bringer: The rules for the entries that it brings.
        refusal_box: Refusals that a client has yet to be told.
        hearing: Scope of the stream that tells them.
        silence: Scope of the wait for a client's next push stream.
        rights: The client's rights.
    """

    id: PeerId
    kind: PeerKind
    bucket: TokenBucket
    origin: str | None = None
    links: list[PeerConnection] = field(default_factory=list)
    push: PushStream | None = None
    inserting: int = 0
    settled: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)
    serving: trio.Lock = field(default_factory=trio.Lock)
    dealings: Dealings = field(default_factory=Dealings)
    pulling: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    refusals: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)
    bringer: Bringer = field(default_factory=Bringer)
    refusal_box: RefusalBox = field(default_factory=RefusalBox)
    hearing: trio.CancelScope = field(default_factory=trio.CancelScope)
    silence: trio.CancelScope = field(default_factory=trio.CancelScope)
    rights: Rights = ALL

    def note_once(self, what: str, event: str, *, level: int = logging.INFO, **fields: Any) -> None:
        """Log an event, unless one of the same kind has been logged of this peer. `what` names the kind, one of a few."""
        if what not in self.told:
            self.told.add(what)
            note(event, level=level, peer=self.id, **fields)

    def count(self, what: str, number: int = 1) -> None:
        """Count something that happened."""
        self.counts[what] += number

    def on_verdict(self, key: bytes, verdict: Verdict) -> None:
        """Tell the peer what became of its entry. A refusal is logged once a rule, but not orphans and our own faults: others log these."""
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
        kind, counts, push = self.kind.value, dict(self.counts), self.push
        queued_bytes = 0 if push is None else push.queued_bytes
        return [
            PeerConnectionState(
                self.id, kind, link.connection.is_outbound, link.connection.address, link.since, push is not None, queued_bytes, counts
            )
            for link in self.links
        ]


def new_bucket(now: float) -> TokenBucket:
    """Return a peer's full allowance of sync requests."""
    limits = ServerLimits()
    return TokenBucket(limits.requests_per_s, limits.requests_burst, now)
