"""Drives the pulls of a simulated replica, and the sessions that it serves: the machines that nodes run, on simulated streams."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import assert_never

from ...broadcast.actions import StartSync
from ...broadcast.events import SyncFinished, SyncServed
from ...limits import TokenBucket
from ...log.requests import ReadCount
from ...plan import ask
from ...pubsub.types import PeerId
from ...pull import machine
from ...pull.serving import CROSSING, HEARD_S, RESUME_S, Aftermath, Dealings, after_merkle, after_reconciliation
from ...reconcile import Reconciled, Reconciliation, Served, messages, serve
from ...sketch import Sketch
from ...sync.events import Session
from ...sync.limits import ServerLimits
from ...sync.result import Ending, SyncResult
from ...sync.server import SyncServer
from .observer import NO_TOKEN, ReplicaObserver, Stream
from .sessions import END, Owner, Receive, SimulatedSession
from .world import SimWire

CUT_SHORT_S = 0.6
"""A sync that is cut short breaks within this time."""
SHARE_S = 1.0
"""A session that ends early in favour of others lasts at most this long."""
STALL_S = 3.0
"""The largest delay of each answer of a slow server; less than the client's patience of 5 s."""
MERKLE, RECONCILE = "sync", "reconcile"
PHANTOM = b"phantom" + bytes(13)
"""The key of an entry that no replica has."""


@dataclass(frozen=True, slots=True)
class _View:
    seq: int
    sketch: Sketch


class Syncs:
    """Serves and pulls for one replica, from a start to the next.

    Attributes:
        is_spoilt: The sketch names an entry that the log does not have.
        was_spoilt: The sketch was spoilt at some time.
    """

    def __init__(self, owner: Owner, late: random.Random) -> None:
        self._owner = owner
        self._late = late
        self._sketch = Sketch()
        self.is_spoilt = self.was_spoilt = False
        self._clients: dict[Stream, tuple[SimWire, SimulatedSession]] = {}
        self._servers: dict[Stream, tuple[PeerId, Receive]] = {}
        # Streams that are over; late messages on them are dropped.
        self._over: set[Stream] = set()
        # Messages that arrived on streams that wait to be served.
        self._early: dict[Stream, list[bytes | None]] = {}
        # For each peer the work that has its turn, then the work that waits: sessions to serve, and pulls that wait for them.
        self._turns: dict[PeerId, deque[Callable[[], None]]] = {}
        self._buckets: dict[PeerId, TokenBucket] = {}
        self._speaks: dict[PeerId, tuple[SimWire, machine.Speaks, Dealings]] = {}
        # Streams on which the client does not know yet that its session was cut short, and what to do once it knows.
        self._unheard: dict[Stream, Callable[[], None]] = {}

    def receive(self, wire: SimWire, peer: PeerId, stream: Stream, message: bytes | None, *, is_ours: bool) -> None:
        """Take a message that arrived on a stream. `END`: the peer closed its side; None: the stream broke."""
        if not is_ours:
            self._serve(wire, peer, stream, message)
        elif stream in self._clients:
            self._clients[stream][1].receive(message)

    def on_closed(self, wire: SimWire, peer: PeerId) -> None:
        """A connection has closed, and its streams with it."""
        for stream, (client, receive) in list(self._servers.items()):
            if client == peer:
                receive(None)
                self.end(stream)
        for session in [session for at, session in self._clients.values() if at is wire]:
            session.lose_connection()

    def spoil(self) -> None:
        """Add an entry to the sketch that is not in the log, as may happen after another process has repaired the log."""
        self._sketch.add([PHANTOM])
        self.is_spoilt = self.was_spoilt = True

    def _known(self, wire: SimWire, peer: PeerId) -> tuple[machine.Speaks, Dealings]:
        """Return the knowledge about the peer on this connection."""
        known = self._speaks.get(peer)
        if known is None or known[0] is not wire:
            known = self._speaks[peer] = (wire, machine.Speaks(in_parts=False), Dealings())
        return known[1:]

    # Streams that we open

    def start(self, action: StartSync) -> None:
        """Pull from a peer, and tell the machine the result."""
        owner, wire = self._owner, self._owner.wires[action.peer]
        speaks, dealings = self._known(wire, action.peer)
        pull = machine.Pull(
            action.source,
            speaks,
            dealings,
            may_reconcile=owner.spec.reconciles,
            first_answer_s=action.first_answer_s,
            limits=owner.spec.limits,
        )
        self._take(action, wire, pull, pull.start(owner.local_now()), None)

    def _take(self, action: StartSync, wire: SimWire, pull: machine.Pull, step: machine.PullStep, stream: Stream | None) -> None:
        """Carry out one step of a pull and continue it, now or later. `stream` is the one opened last."""
        owner = self._owner
        match step:
            case machine.ViewSketch():
                answer: machine.PullAnswer = self._view()
            case machine.OpenStream(ways):
                # The peer's answer shows whether it speaks the protocol.
                way = machine.Way.RECONCILE if machine.Way.RECONCILE in ways else machine.Way.TREE
                is_open = owner.wires.get(action.peer) is wire
                if is_open:
                    stream = owner.new_stream(RECONCILE if way is machine.Way.RECONCILE else MERKLE)
                answer = way if is_open else None
            case machine.RunSession(session):
                assert stream is not None
                self._run(action, wire, pull, session, stream)
                return
            case machine.ForgetSketch():
                self._sketch, self.is_spoilt = Sketch(), False
                answer = None
            case machine.AwaitServed():
                self._take_turn(action.peer, lambda: self._on_served(action, wire, pull, stream))
                return
            case machine.Rest():
                raise AssertionError("the schedule resumes")
            case machine.Pulled():
                assert stream is not None or not pull.is_begun
                self._finish(action, pull, stream or (MERKLE, owner.id, 0, ""))
                return
            case _:
                assert_never(step)
        self._take(action, wire, pull, pull.handle(answer, owner.local_now()), stream)

    def _run(self, action: StartSync, wire: SimWire, pull: machine.Pull, session: Session, stream: Stream) -> None:
        owner, world = self._owner, self._owner.world

        def done() -> None:
            del self._clients[stream]
            step = pull.handle(owner.wires.get(action.peer) is not wire, owner.local_now())
            if stream[0] == RECONCILE:
                # A session that received nothing has no outcome.
                self._owner.report(ReplicaObserver.on_reconciled, action.peer, pull.outcome or Reconciled())
            self._take(action, wire, pull, step, stream)

        def send(data: bytes | None) -> None:
            if data != END or owner.spec.hangs_up or pull.result.ending is not Ending.ABORTED:
                world.send(wire, owner, stream, data)

        running = SimulatedSession(owner, action.peer, session, send, done)
        self._clients[stream] = (wire, running)
        if stream[0] == RECONCILE:
            self._owner.report(ReplicaObserver.on_reconciling, action.peer)
        running.start()
        if self._late.random() < world.faults.cut_short:
            world.after(CUT_SHORT_S * self._late.random(), world.break_stream, wire, stream)

    def _on_served(self, action: StartSync, wire: SimWire, pull: machine.Pull, stream: Stream | None) -> None:
        """It is this pull's turn, so no session of the peer is being served."""
        self._leave_turn(action.peer)
        self._take(action, wire, pull, pull.handle(None, self._owner.local_now()), stream)

    def _finish(self, action: StartSync, pull: machine.Pull, stream: Stream) -> None:
        _, dealings = self._known_of(action.peer)
        result = pull.result
        if result.ending is Ending.ABORTED and not self._owner.spec.resumes:
            # As the reference in some browsers: see `Aftermath`.
            result = replace(result, ending=Ending.COMPLETE, reason="")

        def tell() -> None:
            self._owner.report(ReplicaObserver.on_synced, action.peer, result, stream, action.token)
            self._owner.tell(SyncFinished(action.peer, result, action.token))
            if has_crossed:
                self._owner.tell(SyncServed(action.peer))

        owner, has_crossed = self._owner, dealings.take_crossed()
        if owner.spec.ending_s:
            owner.wake_at(owner.local_now() + owner.spec.ending_s * self._late.random(), tell)
        else:
            tell()

    def _known_of(self, peer: PeerId) -> tuple[machine.Speaks, Dealings]:
        return self._speaks[peer][1:]

    def _view(self) -> _View:
        _, last = self._owner.read(ask(ReadCount(counted=False)))
        # Between two starts a log only grows at its end.
        count = self._sketch.counts[0] - self.is_spoilt
        self._sketch.add(islice(self._owner.state.leaves, count, None))
        return _View(last, self._sketch.copy())

    # Streams that peers open

    def _serve(self, wire: SimWire, peer: PeerId, stream: Stream, message: bytes | None) -> None:
        if stream in self._servers:
            self._servers[stream][1](message)
        elif stream in self._early:
            self._early[stream].append(message)
        elif stream in self._unheard:
            if not message:
                self._unheard.pop(stream)()
        elif message and stream not in self._over:
            self._begin(wire, peer, stream, message)

    def _begin(self, wire: SimWire, peer: PeerId, stream: Stream, message: bytes) -> None:
        owner = self._owner
        speaks, dealings = self._known(wire, peer)
        if stream[0] == RECONCILE:
            if not owner.spec.reconciles:
                owner.world.send(wire, owner, stream, END)
                return
            speaks.reconciles = True
        dealings.begun += 1
        self._owner.report(ReplicaObserver.on_sync_begun, peer)
        self._early[stream] = [message]
        self._take_turn(peer, lambda: self._serve_in_turn(wire, peer, stream))

    def _take_turn(self, peer: PeerId, call: Callable[[], None]) -> None:
        """Call a function once all earlier work with this peer has left its turn. The turn lasts until `_leave_turn`."""
        turns = self._turns.setdefault(peer, deque())
        turns.append(call)
        if len(turns) == 1:
            call()

    def _leave_turn(self, peer: PeerId) -> None:
        turns = self._turns.get(peer)
        if turns:
            turns.popleft()
            if turns:
                turns[0]()

    def _serve_in_turn(self, wire: SimWire, peer: PeerId, stream: Stream) -> None:
        owner, early = self._owner, self._early.pop(stream)
        is_gone = owner.wires.get(peer) is not wire
        if is_gone or (stream[0] == RECONCILE and self._is_crossing(wire, peer, stream)):
            self._leave_turn(peer)
            return
        if stream[0] == RECONCILE:
            self._owner.report(ReplicaObserver.on_serving, peer)
            receive = self._reconciliation(wire, peer, stream)
        else:
            receive = self._owner.make_server(wire, stream, self._bucket(peer))
        self._servers[stream] = (peer, receive)
        for message in early:
            receive(message)

    def _is_crossing(self, wire: SimWire, peer: PeerId, stream: Stream) -> bool:
        """Refuse a reconciliation if it crosses one of ours that continues."""
        owner, (_, dealings) = self._owner, self._known(wire, peer)
        if not dealings.is_crossing(is_outbound=wire.side(owner) == 0):
            return False
        owner.world.send(wire, owner, stream, messages.encode(messages.Refuse(CROSSING)))
        owner.world.send(wire, owner, stream, END)
        self._over.add(stream)
        return True

    def _bucket(self, peer: PeerId) -> TokenBucket:
        bucket = self._buckets.get(peer)
        if bucket is None:
            limits = ServerLimits()
            bucket = self._buckets[peer] = TokenBucket(limits.requests_per_s, limits.requests_burst, self._owner.local_now())
        return bucket

    def make_server(self, wire: SimWire, stream: Stream, bucket: TokenBucket) -> Receive:
        """Serve a peer that pulls from us by its tree."""
        owner, peer = self._owner, wire.other(self._owner).id
        server, root = SyncServer(owner.local_now(), bucket=bucket), owner.state.tree.root

        def done() -> None:
            self.end(stream)
            if server.is_aborted and owner.wires.get(peer) is wire:
                self._owner.report(ReplicaObserver.on_cut_short, peer)
            self._follow_up(peer, stream, after_merkle(server, has_moved=owner.state.tree.root != root))

        session = SimulatedSession(owner, peer, server, self._dawdling(wire, stream), done)
        session.start()
        if owner.spec.cuts and self._late.random() < owner.spec.cuts:
            owner.wake_at(owner.local_now() + SHARE_S * self._late.random(), lambda: session.cut_short(server.abort))
        return session.receive

    def _reconciliation(self, wire: SimWire, peer: PeerId, stream: Stream) -> Receive:
        served = Served()
        reconciliation = Reconciliation(serve(self._view(), served=served))

        def done() -> None:
            self.end(stream)
            if served.fault:
                self._owner.report(ReplicaObserver.on_synced, peer, SyncResult(Ending.VIOLATION, served.fault), stream, NO_TOKEN)
            self._follow_up(peer, stream, after_reconciliation(served, is_over=reconciliation.outcome is not None))

        session = SimulatedSession(self._owner, peer, reconciliation, self._dawdling(wire, stream), done)
        session.start()
        return session.receive

    def _follow_up(self, peer: PeerId, stream: Stream, aftermath: Aftermath) -> None:
        if aftermath.result is not None:
            self._owner.report(ReplicaObserver.on_synced, peer, aftermath.result, stream, NO_TOKEN)
            self._owner.tell(SyncFinished(peer, aftermath.result, NO_TOKEN))
        if aftermath.tells:
            self._owner.tell(SyncServed(peer))
        if aftermath.reminds:
            self._remind(peer, stream)

    def _remind(self, peer: PeerId, stream: Stream) -> None:
        owner, (_, dealings) = self._owner, self._known_of(peer)
        begun = dealings.begun

        def remind() -> None:
            if dealings.begun == begun:
                owner.tell(SyncServed(peer))

        def heard() -> None:
            owner.wake_at(owner.local_now() + RESUME_S, remind)

        def unheard() -> None:
            if self._unheard.pop(stream, None) is not None:
                heard()

        self._unheard[stream] = heard
        owner.wake_at(owner.local_now() + HEARD_S, unheard)

    def _dawdling(self, wire: SimWire, stream: Stream) -> Callable[[bytes | None], None]:
        """Return the function that sends on a stream we serve. If the stream is a slow one, each message is sent after a delay."""
        world = self._owner.world
        delay_s = STALL_S * self._late.random() if self._late.random() < world.faults.stall else 0.0
        if not delay_s:
            return partial(self.reply, wire, stream)
        return lambda data: world.after(delay_s, self.reply, wire, stream, data)

    def reply(self, wire: SimWire, stream: Stream, data: bytes | None) -> None:
        """Send on a stream that we serve; None breaks it."""
        if data is None:
            self._owner.world.break_stream(wire, stream)
        else:
            self._owner.world.send(wire, self._owner, stream, data)

    def end(self, stream: Stream) -> None:
        """Forget a stream that we serve, and let the next work with its peer begin."""
        found = self._servers.pop(stream, None)
        self._over.add(stream)
        if found is not None:
            self._leave_turn(found[0])
