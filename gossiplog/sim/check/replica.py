"""A simulated replica: the broadcast machine of the live service over a real log, in memory and on a disk that forgets."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ...broadcast import events
from ...broadcast.actions import (
    Action,
    AskLog,
    Ban,
    BatchDecided,
    ClosePush,
    EntriesAppended,
    EntryDecided,
    EntryForeseen,
    InsertBatch,
    OpenPush,
    Push,
    StartSync,
    VerifyBatch,
)
from ...broadcast.allowance import Allowance, Bringer, Quota
from ...broadcast.broadcast import LOG_TIMERS, Broadcast
from ...broadcast.shared_router import SharedEvent, SharedRouter
from ...entry.message import Entry
from ...entry.signing import Ed25519Signer
from ...entry.validation import Verdict
from ...limits import TokenBucket
from ...log.requests import ReadLeaves
from ...plan import Plan, Request
from ...pubsub.actions import AnotherSource, Connect, Deliver, Probe, Published, SendRpc, SetTimer, Validate
from ...pubsub.events import ConnectFailed, Outcome, Probed, RpcReceived, SendFailed, Start, TimerFired, Validated
from ...pubsub.router import Router
from ...pubsub.rpc import Rpc
from ...pubsub.types import PeerId, TimerToken
from ...store.memory.state import MemoryState
from .disk import Crash, Disk
from .law import RULE, make_application
from .log_on_disk import LogOnDisk, Validator
from .observer import ReplicaObserver, Stream
from .plan import ReplicaSpec
from .rooms import ROOMS, Rooms
from .sessions import Server
from .syncs import Syncs
from .world import SimWire, SimWorld

T = TypeVar("T")

ELSEWHERE_AGAIN_S = 0.01
HEARD_OF_S = 0.3
"""A process hears within this time of entries that another process stored in its log."""
VERIFY_S, VERIFY_SHARE = 0.05, 0.3
"""The largest delay of a verification, and the share of replicas that verify with a delay."""
ADDRESSES = 3


def address_of(peer: PeerId) -> str:
    """Return a client's address; some clients share one."""
    return f"place {int(peer.removeprefix('n')) % ADDRESSES}"


def signer_of(seed: int, number: int) -> Ed25519Signer:
    """Return the key of a seed's replica."""
    return Ed25519Signer(random.Random(f"key {seed} {number}").randbytes(32))


_NOBODY: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class _QuotaAlone:
    """The rules of a hub that takes entries of any log from any client, within a quota."""

    quota: Quota
    allow: None = None
    full: str = ""

    def of(self, topic: str) -> _QuotaAlone:
        """See `RulesByTopic`."""
        return self

    def removed(self, topic: str) -> dict[str, str]:
        """See `RulesByTopic`."""
        return _NOBODY


class SimReplica:
    """One replica. In a crash it loses everything that is not on its disk."""

    def __init__(
        self,
        world: SimWorld,
        spec: ReplicaSpec,
        make_router: Callable[[random.Random], Router],
        validator: Validator,
        observer: ReplicaObserver[SimReplica],
        seed: int,
    ) -> None:
        self.id = PeerId(f"n{spec.number}")
        self.world = world
        self.spec = spec
        self.signer = signer_of(seed, spec.number)
        self.disk = Disk()
        self.is_up = False
        self.epoch = 0
        self.log: LogOnDisk
        self.shared: SharedRouter
        self.machine: Broadcast
        self.wires: dict[PeerId, SimWire] = {}
        # Called with each event given to a machine and the actions it returned.
        self.see: Callable[[events.Event | SharedEvent, Sequence[Action]], None] | None = None
        # What goes on in other topics on its router; None in seeds without any.
        self.rooms: Rooms | None = None
        self._validator = validator
        self._observer = observer
        self._seed = seed
        self._make_router = make_router
        self._streams = 0
        slow = random.Random(f"verify {seed} {spec.number}")
        self._verify_s = VERIFY_S * slow.random() if slow.random() < VERIFY_SHARE else 0.0

    # Life

    def start(self) -> None:
        """Start from the disk's contents."""
        self.epoch += 1
        self.is_up = True
        self.log = LogOnDisk(
            self.disk,
            self.spec.commit_s,
            is_durable=self.spec.is_durable,
            later=lambda wait_s, call: self.world.after(wait_s, self._wake, self.epoch, call),
            on_signed=lambda entries: self._observer.on_signed(self, entries),
            on_commit=self._on_commit,
            on_refused=lambda entries: self._observer.on_refused_entries(self, entries),
            on_writing=lambda step: self._observer.on_writing(self, step),
            late=random.Random(f"disk {self._seed} {self.spec.number} {self.epoch}"),
            application=make_application(self.signer.did, self.epoch),
            rule=RULE if self.spec.has_rule else None,
            topic=self.spec.topic,
            founding=self.spec.founding,
        )
        rng = random.Random(f"replica {self._seed} {self.spec.number} {self.epoch}")
        # No entry may depend on heads being told again merely because time has passed.
        self.shared = SharedRouter(self._make_router(rng))
        self.machine = Broadcast(self.shared, self.spec.topic, rng, tell_again_s=math.inf)
        self.wires = {}
        self.rng = rng
        self._late = random.Random(f"late {self._seed} {self.spec.number} {self.epoch}")
        self._todo: deque[Action] = deque()
        self._is_acting = False
        self._timers: dict[TimerToken, float] = {}
        self._verifying = 0
        self._is_elsewhere = False
        # Callers that wait for the verdicts of a batch.
        self._tickets: list[Callable[[list[Verdict]], None]] = []
        self.allowance = self._count() if self.spec.quota is not None else None
        # The rules under which each peer brings entries.
        self._bringers: dict[PeerId, Bringer] = {}
        self._push_streams: dict[PeerId, Stream] = {}
        self.syncs = Syncs(self, self._late, self.make_server, self._observer)
        self._observer.on_recovered(self)
        self.tell_router(Start(self.id))
        self.tell(events.StartBroadcast(may_foresee=not (self.spec.has_rule or self.spec.is_shared or self.spec.founding)))
        if self.rooms is not None:
            self.rooms.on_started(self)
        if not self.spec.is_durable:
            self._sync_disk()

    def crash(self, kind: Crash, rng: random.Random) -> None:
        """Crash."""
        self.is_up = False
        self.epoch += 1
        self.disk.crash(kind, rng)
        self.world.drop_all(self)

    def leave(self) -> None:
        """Leave for good."""
        self.is_up = False
        self.epoch += 1
        self.world.unlink(self)

    def append(self, payloads: Sequence[bytes]) -> None:
        """Append payloads in PCF. They are acknowledged and published after the commit."""
        self.log.append(payloads, self.signer, self._on_appended)

    def append_elsewhere(self, payloads: Sequence[bytes]) -> None:
        """Append payloads in another process once no transaction is under way here. This process hears of them a little later."""
        if not self.is_up:
            return
        self._is_elsewhere = True
        entries = self.log.append_elsewhere(payloads, self.signer)
        self._is_elsewhere = False
        if entries:
            committed = events.EntriesCommitted([entry for _, entry in entries])
            self.world.after(HEARD_OF_S * self._late.random(), self._wake, self.epoch, partial(self.tell, committed))
        else:
            self.world.after(ELSEWHERE_AGAIN_S, self._wake, self.epoch, partial(self.append_elsewhere, payloads))

    @property
    def state(self) -> MemoryState:
        """Return the committed state."""
        return self.log.state

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is being verified, written or read."""
        return self.log.is_idle and not self._verifying and not self.spec.answer_s

    def local_now(self) -> float:
        """Return the time on its clock."""
        return self.spec.offset_s + self.world.now * self.spec.rate

    def wake_at(self, local_s: float, call: Callable[[], None]) -> None:
        """Call at a time on its clock, unless it has crashed by then."""
        # An inexact clock causes rounding errors; a nanosecond later the time has certainly come.
        self.world.at((local_s - self.spec.offset_s) / self.spec.rate + 1e-9, self._wake, self.epoch, call)

    def _wake(self, epoch: int, call: Callable[[], None]) -> None:
        if epoch == self.epoch:
            call()

    def tell(self, event: events.Event) -> None:
        """Hand an event to the log's machine and carry out its actions in order."""
        self._carry_out(self._all(event, self.machine.handle(event, self.local_now())))

    def tell_router(self, event: SharedEvent) -> None:
        """Hand an event to the router and carry out its actions in order."""
        self._carry_out(self._all(event, self.shared.handle(event, self.local_now())))

    def _all(self, event: events.Event | SharedEvent, actions: Sequence[Action]) -> list[Action]:
        """Return what an event leads to, with the log's answers in the places of what the router asks of it."""
        if self.see is not None:
            self.see(event, actions)
        out: list[Action] = []
        for action in actions:
            if self.rooms is not None and isinstance(action, Validate) and action.message.topic in ROOMS:
                accepted = Validated(action.message.id, Outcome.ACCEPT)
                out += self._all(accepted, self.shared.handle(accepted, self.local_now()))
            elif isinstance(action, Validate | AnotherSource):
                out += self._all(action, self.machine.handle(action, self.local_now()))
            else:
                out.append(action)
        return out

    def _carry_out(self, actions: Sequence[Action]) -> None:
        for action in actions:
            # At once, while its view is current: an earlier action of this turn may close a connection that a later one sends on.
            match action:
                case EntryForeseen(entry, found):
                    self._observer.on_foreseen(self, entry.source, found)
                case EntryDecided(entry, verdict):
                    self._observer.on_verdict(self, entry.source, entry.key, verdict)
                case EntriesAppended(entries):
                    self._observer.on_appended(self, entries)
                case SendRpc(peers, rpc, is_urgent) if self.rooms is not None:
                    self.rooms.on_sent(self, action)
                    self._observer.on_action(self, SendRpc(peers, self.rooms.apart(rpc), is_urgent))
                case Deliver(message) if self.rooms is not None and message.topic in ROOMS:
                    self.rooms.on_delivered(self, action)
                case Published(_, topic) if topic in ROOMS:
                    pass
                case _:
                    self._observer.on_action(self, action)
        self._todo.extend(actions)
        if self._is_acting:
            return
        self._is_acting = True
        while self._todo:
            self._act(self._todo.popleft())
        self._is_acting = False

    # The world

    def on_connected(self, wire: SimWire) -> None:
        """See `Inhabitant`."""
        peer, kind = wire.other(self).id, wire.kind_for(self)
        self.wires[peer] = wire
        self._observer.on_connected(self, peer)
        protocol = self.shared.protocols[0] if kind is events.PeerKind.MESH else None
        bringer = Bringer()
        if self.allowance is not None and kind is events.PeerKind.CLIENT:
            bringer = Bringer(self.allowance, address_of(peer), is_client=True)
        self._bringers[peer] = bringer
        self.tell(events.Connected(peer, kind, wire.side(self) == 0, protocol, bringer=bringer))

    def on_closed(self, wire: SimWire) -> None:
        """See `Inhabitant`."""
        peer = wire.other(self).id
        if self.wires.get(peer) is not wire:
            return
        del self.wires[peer]
        self._observer.on_closed(self, peer)
        self._push_streams.pop(peer, None)
        self.tell(events.Disconnected(peer))
        self._observer.on_parted(self, peer)
        self.syncs.on_closed(wire, peer)

    def on_rpc(self, wire: SimWire, rpc: Rpc) -> None:
        """See `Inhabitant`."""
        peer = wire.other(self).id
        self._observer.on_rpc(self, peer, rpc if self.rooms is None else self.rooms.apart(rpc))
        self.tell_router(RpcReceived(peer, rpc))
        self._observer.on_rpc_handled(self)

    def on_stream(self, wire: SimWire, stream: Stream, message: Any) -> None:
        """See `Inhabitant`."""
        peer = wire.other(self).id
        if stream[0] == "push":
            self._on_push(wire, peer, stream, message)
        else:
            self.syncs.receive(wire, peer, stream, message, is_ours=stream[1] == self.id)

    def _on_push(self, wire: SimWire, peer: PeerId, stream: Stream, message: Any) -> None:
        if message == "open":
            self._push_streams[peer] = stream
            self.world.send(wire, self, stream, "opened")
            self._observer.on_push_opened(self, peer)
            self.tell(events.PushOpened(peer))
        elif self._push_streams.get(peer) != stream:
            return
        elif message == "opened":
            self._observer.on_push_opened(self, peer)
            self.tell(events.PushOpened(peer))
        elif message is None:
            del self._push_streams[peer]
            self._observer.on_push_closed(self, peer)
            self.tell(events.PushClosed(peer))
        else:
            self._observer.on_pushed(self, peer, message)
            self.tell(events.PushReceived(peer, message))

    # The machine's actions

    def _act(self, action: Action) -> None:
        match action:
            case SendRpc(peers, rpc, _):
                for peer in peers:
                    self.send_rpc(peer, rpc)
            case VerifyBatch():
                self._verify(action)
            case InsertBatch(batch, verdicts):
                accepted = [verdict.entry for verdict in verdicts if verdict.entry is not None]
                self.log.insert(accepted, partial(self._on_inserted, batch))
            case BatchDecided(ticket, verdicts):
                self._tickets[ticket](list(verdicts))
            case AskLog():
                self._on_ask(action)
            case SetTimer(token, at):
                self._timers[token] = at
                self.wake_at(at + self.spec.timer_s * self._late.random(), lambda: self._on_timer(token, at))
            case Push(peers, data):
                for peer in peers:
                    self._push(peer, data)
            case OpenPush(peer):
                if peer in self.wires:
                    self._push_streams[peer] = stream = self.new_stream("push")
                    self.world.send(self.wires[peer], self, stream, "open")
            case ClosePush(peer):
                if peer in self._push_streams and peer in self.wires:
                    self.world.break_stream(self.wires[peer], self._push_streams[peer])
            case StartSync():
                self.syncs.start(action)
            case Ban(peer):
                if peer in self.wires:
                    self.world.close(self.wires[peer])
            case Connect(peer):
                if peer not in self.wires:
                    self.tell_router(ConnectFailed(peer))
            case Probe(peer):
                wire = self.wires.get(peer)
                self.tell_router(Probed(peer, None if wire is None else 2 * wire.latency_s))
            case _:
                # Deliveries are in the log already. The other facts are for observers.
                pass

    def send_rpc(self, peer: PeerId, rpc: Rpc) -> None:
        """Send an RPC, or tell the machine that it could not be sent."""
        wire = self.wires.get(peer)
        if wire is not None and self.world.send_rpc(wire, self, rpc):
            return
        if wire is not None:
            self._observer.on_refused(self, peer, rpc if self.rooms is None else self.rooms.apart(rpc))
        self.tell_router(SendFailed(peer, rpc))

    def _push(self, peer: PeerId, data: bytes) -> None:
        wire, stream = self.wires.get(peer), self._push_streams.get(peer)
        if wire is None or stream is None:
            return
        if self.world.faults.full and self.world.rng.random() < self.world.faults.full:
            self.tell(events.PushDropped(peer))
        else:
            self.world.send(wire, self, stream, data)

    def _on_timer(self, token: TimerToken, at: float) -> None:
        if self._timers.get(token) == at:
            del self._timers[token]
            (self.tell if token in LOG_TIMERS else self.tell_router)(TimerFired(token))

    def new_stream(self, purpose: str) -> Stream:
        """Name a stream of its own."""
        self._streams += 1
        return purpose, self.id, self._streams

    # The log

    def _on_ask(self, action: AskLog) -> None:
        """Answer at once or after a delay, from the state before or after the delay."""

        def read() -> Any:
            return self.log.read(action.plan, self._look_up)

        if not self.spec.answer_s:
            self.tell(events.LogAnswered(action.token, read()))
            return
        answer = read() if self._late.random() < 0.5 else None
        at = self.local_now() + self.spec.answer_s * self._late.random()
        self.wake_at(at, lambda: self.tell(events.LogAnswered(action.token, read() if answer is None else answer)))

    def _look_up(self, request: Request[Any]) -> Any:
        if isinstance(request, ReadLeaves):
            self._observer.on_looked_up(self, request.keys)
        return self.state.answer(request)

    def _verify(self, action: VerifyBatch) -> None:
        """Answer at once or after a delay."""
        verified = events.BatchVerified(action.token, [self._validator.decide(value) for value in action.values])
        if not self._verify_s:
            self.tell(verified)
            return

        def answer() -> None:
            self._verifying -= 1
            self.tell(verified)

        self._verifying += 1
        self.wake_at(self.local_now() + self._verify_s * self._late.random(), answer)

    def _on_inserted(self, batch: int, outcome: list[Verdict] | Exception) -> None:
        self.tell(events.BatchInserted(batch, events.NotStored.because(outcome) if isinstance(outcome, Exception) else outcome))

    def _on_commit(self, entries: Sequence[tuple[int, Entry]]) -> None:
        self._observer.on_commit(self, entries)
        if self.allowance is not None:
            self.allowance.on_commit([entry for _, entry in entries])
        if entries and not self._is_elsewhere:
            self.tell(events.EntriesCommitted([entry for _, entry in entries]))

    def read(self, plan: Plan[T]) -> T:
        """Run a plan that only reads."""
        return self.log.read(plan)

    def insert_many(self, peer: PeerId, entries: Sequence[tuple[bytes, bytes]], then: Callable[[list[Verdict]], None]) -> None:
        """Insert entries from a sync, and pass on the verdicts."""

        def decided(verdicts: list[Verdict]) -> None:
            self._observer.on_let_in(self, peer, verdicts)
            then(verdicts)

        self._tickets.append(decided)
        self.tell(events.BatchBrought(len(self._tickets) - 1, "sync", entries, self._bringers[peer]))

    def _count(self) -> Allowance:
        """Count the log's entries, as a listener does when it starts."""
        allowance = Allowance(self.spec.topic, _QuotaAlone(self.spec.quota or Quota()))
        allowance.on_read([Entry.stored(value) for value in self.state.values])
        allowance.on_all_read()
        return allowance

    def _on_appended(self, verdicts: list[Verdict]) -> None:
        entries = [verdict.entry for verdict in verdicts if verdict.entry is not None]
        self._observer.on_acknowledged(self, entries)

    def _sync_disk(self) -> None:
        self.disk.sync()
        self.wake_at(self.local_now() + 1.0, self._sync_disk)

    def make_server(self, wire: SimWire, stream: Stream, bucket: TokenBucket) -> Server:
        """Serve a peer that pulls from us."""
        return self.syncs.make_server(wire, stream, bucket)
