"""The sync streams of a simulated replica, those it opens and those it serves: reconciliation where both sides have it, else merkle sync.

A model of `net/service/syncs.py` around the same machines. Live peers that begin to reconcile with each other at once leave it to one of
the two sessions; here both go on.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Protocol, TypeAlias

from ...broadcast import Event, StartSync, SyncFinished, SyncServed
from ...limits import TokenBucket
from ...log.requests import ReadCount
from ...plan import ask
from ...pubsub.types import PeerId
from ...reconcile import Reconciled, Served, Wishes, reconcile, serve
from ...sketch import Sketch
from ...sync.client import SyncClient
from ...sync.limits import ServerLimits
from ...sync.result import Ending, SyncResult
from ...sync.schedule import SessionSlots
from .observer import Stream
from .reconciling import ReconcileSession
from .replica_spec import ReplicaSpec
from .sessions import END, ClientSession, Host, Server, ServerSession
from .world import Inhabitant, Wire, World

__all__ = ["Syncs"]

CUT_SHORT_S = 0.6
"""After how long at most a sync that is cut short breaks."""
STALL_S = 3.0
"""How late each answer of a server that dawdles comes at most; below the client's patience of 5 s."""
MERKLE, RECONCILE = "sync", "reconcile"
NO_TOKEN = -1
"""Of a result that is of no session of ours."""

OnSynced: TypeAlias = Callable[[PeerId, SyncResult, Stream, int], None]
OnReconciled: TypeAlias = Callable[[PeerId, Reconciled], None]
MakeServer: TypeAlias = Callable[[Wire, Stream, TokenBucket], Server]


class Owner(Host, Inhabitant, Protocol):
    """What the syncs need of the replica that they belong to.

    Attributes:
        world: Where it lives.
        spec: How it is.
        wires: Its connections.
    """

    world: World
    spec: ReplicaSpec
    wires: dict[PeerId, Wire]

    def tell(self, event: Event) -> None:
        """Hand an event to its machine."""

    def new_stream(self, purpose: str) -> Stream:
        """Name a stream of its own."""


class _Client(Protocol):
    def receive(self, data: bytes | None) -> None: ...

    def lose_connection(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _View:
    seq: int
    sketch: Sketch


class Syncs:
    """Serves and pulls for one replica, from a start to the next.

    Args:
        owner: The replica that it belongs to.
        late: Draws how late everything is.
        make_server: Makes who answers on a merkle sync's stream.
        on_synced: Told of each session of the owner's that is over, before its machine.
        on_reconciled: Told of each that was by symbols, before that.
    """

    def __init__(
        self, owner: Owner, late: random.Random, make_server: MakeServer, on_synced: OnSynced, on_reconciled: OnReconciled
    ) -> None:
        self._owner = owner
        self._late = late
        self._make_server = make_server
        self._on_synced = on_synced
        self._on_reconciled = on_reconciled
        self._sketch = Sketch()
        self._clients: dict[Stream, tuple[Wire, _Client]] = {}
        self._servers: dict[Stream, tuple[PeerId, Server]] = {}
        self._slots = SessionSlots[PeerId]()
        self._buckets: dict[PeerId, TokenBucket] = {}

    def receive(self, wire: Wire, peer: PeerId, stream: Stream, message: bytes | None, *, is_ours: bool) -> None:
        """Take what arrived on a stream; `END` or None: it is closed, or broke."""
        if not is_ours:
            self._serve(wire, peer, stream, message)
        elif stream in self._clients:
            self._clients[stream][1].receive(message)

    def on_closed(self, wire: Wire, peer: PeerId) -> None:
        """A connection is gone, and its streams with it."""
        for stream, (client, server) in list(self._servers.items()):
            if client == peer:
                if isinstance(server, ReconcileSession):
                    server.receive(None)
                self.end(stream)
        for session in [session for at, session in self._clients.values() if at is wire]:
            session.lose_connection()

    # Streams that we open

    def start(self, action: StartSync) -> None:
        """Sync with a peer, and tell the machine how it went."""
        if self._owner.spec.reconciles and action.source.may_reconcile(self._owner.local_now()):
            self._reconcile(action)
        else:
            self._pull(action, None)

    def _open(self, action: StartSync, stream: Stream, session: ClientSession | ReconcileSession[Reconciled]) -> None:
        wire, world = self._owner.wires[action.peer], self._owner.world
        self._clients[stream] = (wire, session)
        session.start()
        if self._late.random() < world.faults.cut_short:
            world.after(CUT_SHORT_S * self._late.random(), world.break_stream, wire, stream)

    def _pull(self, action: StartSync, before: SyncResult | None) -> None:
        owner, wire, stream = self._owner, self._owner.wires[action.peer], self._owner.new_stream(MERKLE)

        def done(result: SyncResult) -> None:
            del self._clients[stream]
            self._finish(action, result if before is None else before.then(result), stream)

        client = SyncClient(action.source, owner.spec.limits, first_answer_s=action.first_answer_s)
        self._open(action, stream, ClientSession(owner, client, partial(owner.world.send, wire, owner, stream), done))

    def _reconcile(self, action: StartSync) -> None:
        owner, wire, stream = self._owner, self._owner.wires[action.peer], self._owner.new_stream(RECONCILE)
        now, source = owner.local_now(), action.source

        def done(outcome: Reconciled) -> None:
            del self._clients[stream]
            owner.world.send(wire, owner, stream, END)
            result = outcome.result
            self._on_reconciled(action.peer, outcome)
            if outcome.fallback:
                source.on_fallback(now)
            elif session.has_heard:
                source.on_reconciled()
                self._finish(action, result, stream)
                return
            # The peer cannot, or does not speak it, or is gone.
            if owner.wires.get(action.peer) is wire:
                self._pull(action, result if session.has_heard else None)
            else:
                self._finish(action, result, stream)

        session = ReconcileSession(
            owner,
            reconcile(self._view(), source, now, Wishes(after=source.resume_after)),
            partial(owner.world.send, wire, owner, stream),
            done,
            first_answer_s=action.first_answer_s,
        )
        self._open(action, stream, session)

    def _finish(self, action: StartSync, result: SyncResult, stream: Stream) -> None:
        def tell() -> None:
            self._on_synced(action.peer, result, stream, action.token)
            self._owner.tell(SyncFinished(action.peer, result, action.token))

        owner = self._owner
        if owner.spec.ending_s:
            owner.wake_at(owner.local_now() + owner.spec.ending_s * self._late.random(), tell)
        else:
            tell()

    def _view(self) -> _View:
        _, last = self._owner.read(ask(ReadCount(counted=False)))
        # Between two starts a log only grows, at its end.
        self._sketch.add(islice(self._owner.state.leaves, self._sketch.counts[0], None))
        return _View(last, self._sketch.copy())

    # Streams that peers open

    def _serve(self, wire: Wire, peer: PeerId, stream: Stream, message: bytes | None) -> None:
        if stream not in self._servers:
            if not message:
                return
            if stream[0] == RECONCILE and not self._owner.spec.reconciles:
                self._owner.world.send(wire, self._owner, stream, END)
                return
            if not self._slots.enter(peer):
                # A replica here never has 32 clients, so nobody waits: the peer has a session already.
                self._owner.world.break_stream(wire, stream)
                return
            server = (
                self._reconciliation(wire, peer, stream) if stream[0] == RECONCILE else self._make_server(wire, stream, self._bucket(peer))
            )
            self._servers[stream] = (peer, server)
        self._servers[stream][1].receive(message)

    def _bucket(self, peer: PeerId) -> TokenBucket:
        bucket = self._buckets.get(peer)
        if bucket is None:
            limits = ServerLimits()
            bucket = self._buckets[peer] = TokenBucket(limits.requests_per_s, limits.requests_burst, self._owner.local_now())
        return bucket

    def make_server(self, wire: Wire, stream: Stream, bucket: TokenBucket) -> Server:
        """Serve a peer that pulls from us by its tree."""
        return ServerSession(self._owner, bucket, self._dawdling(wire, stream), lambda _: self.end(stream))

    def _reconciliation(self, wire: Wire, peer: PeerId, stream: Stream) -> Server:
        def done(served: Served) -> None:
            self.end(stream)
            self.reply(wire, stream, END)
            if served.taken or served.rejected or served.fault:
                ending = Ending.VIOLATION if served.fault else Ending.COMPLETE
                result = SyncResult(ending, served.fault, entries=served.taken, rejected=served.rejected, brought=served.brought)
                result.rejected_keys = tuple(served.rejected_keys)
                self._on_synced(peer, result, stream, NO_TOKEN)
                self._owner.tell(SyncFinished(peer, result, NO_TOKEN))
            if served.has_moved or served.reason:
                self._owner.tell(SyncServed(peer))

        session: ReconcileSession[Served] = ReconcileSession(self._owner, serve(self._view()), self._dawdling(wire, stream), done)
        session.start()
        return session

    def _dawdling(self, wire: Wire, stream: Stream) -> Callable[[bytes | None], None]:
        """What sends on a stream that we serve, each time a while later if it is one of those."""
        world = self._owner.world
        delay_s = STALL_S * self._late.random() if self._late.random() < world.faults.stall else 0.0
        if not delay_s:
            return partial(self.reply, wire, stream)
        return lambda data: world.after(delay_s, self.reply, wire, stream, data)

    def reply(self, wire: Wire, stream: Stream, data: bytes | None) -> None:
        """Send on a stream that we serve; None breaks it."""
        if data is None:
            self._owner.world.break_stream(wire, stream)
        else:
            self._owner.world.send(wire, self._owner, stream, data)

    def end(self, stream: Stream) -> None:
        """Be done with a stream that we serve."""
        found = self._servers.pop(stream, None)
        if found is not None:
            self._slots.leave(found[0])
