"""Simulated replicas: processes, each with its connections, one router and one or several logs.

A log here is the live service's broadcast machine over a real log, in memory and on a simulated disk.
"""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

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
from ...pubsub.events import ConnectFailed, Probed, RpcReceived, SendFailed, Start, TimerFired
from ...pubsub.router import Router
from ...pubsub.rpc import Control, Rpc
from ...pubsub.types import MessageId, PeerId, TimerToken
from ...store.memory.state import MemoryState
from .disk import Crash, Disk
from .law import make_application
from .log_on_disk import LogOnDisk, Validator
from .observer import ReplicaObserver, Stream, Watch
from .plan import ReplicaSpec
from .sessions import Receive
from .syncs import Syncs
from .world import SimWire, SimWorld

P = ParamSpec("P")
T = TypeVar("T")

ELSEWHERE_AGAIN_S = 0.01
HEARD_OF_S = 0.3
"""A process hears within this time of entries that another process stored in its log."""
VERIFY_S, VERIFY_SHARE = 0.05, 0.3
"""The largest delay of a verification, and the share of replicas that verify with a delay."""
ADDRESSES = 3
HELD: Stream = ("held", PeerId(""), 0, "")
"""The stream on which the ends of a connection tell each other that they have opened or closed a log."""


def address_of(peer: PeerId) -> str:
    """Return a client's address; some clients share one."""
    return f"place {int(peer.removeprefix('n')) % ADDRESSES}"


def signer_of(seed: int, number: int) -> Ed25519Signer:
    """Return the key of a seed's replica."""
    return Ed25519Signer(random.Random(f"key {seed} {number}").randbytes(32))


_NOBODY: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class _QuotaAlone:
    """The rules of a hub that accepts entries of any log from any client, within a quota."""

    quota: Quota
    allow: None = None
    full: str = ""

    def of(self, topic: str) -> _QuotaAlone:
        """See `RulesByTopic`."""
        return self

    def removed(self, topic: str) -> dict[str, str]:
        """See `RulesByTopic`."""
        return _NOBODY


class SimProcess:
    """One process: its clock, its connections, the router that all its logs share, and the logs. Only their disks survive a crash.

    Attributes:
        logs: The logs by topic, open or closed. All processes hold the first log, and it is open while the process runs. About the others,
            the ends of a connection tell each other which of them they hold.
        wires: The connection with each peer.
        met: The number of connections so far with each peer, including those of earlier starts.
        see: Called with each event given to a machine and the actions it returned.
    """

    def __init__(self, world: SimWorld, spec: ReplicaSpec, make_router: Callable[[random.Random], Router], seed: int) -> None:
        self.id = PeerId(f"n{spec.number}")
        self.world = world
        self.spec = spec
        self.seed = seed
        self.is_up = False
        self.epoch = 0
        self.shared: SharedRouter
        self.logs: dict[str, SimReplica] = {}
        self.wires: dict[PeerId, SimWire] = {}
        self.met = Counter[PeerId]()
        self.see: Callable[[events.Event | SharedEvent, Sequence[Action]], None] | None = None
        self._make_router = make_router
        self._streams = 0

    # Life

    def start(self) -> None:
        """Start, and open the logs that were open."""
        self.epoch += 1
        self.is_up = True
        name = f"{self.seed} {self.spec.number} {self.epoch}"
        self.rng, self.late = random.Random(f"replica {name}"), random.Random(f"late {name}")
        self.shared = SharedRouter(self._make_router(self.rng))
        self.wires = {}
        self._held: dict[PeerId, set[str]] = {}
        self._todo: deque[tuple[SimReplica | None, Action]] = deque()
        self._is_acting = False
        self._timers: dict[TimerToken, float] = {}
        self.tell(Start(self.id))
        for log in self.logs.values():
            if log.is_wanted:
                log.start()

    def crash(self, kind: Crash, rng: random.Random) -> None:
        """Crash."""
        self.is_up = False
        self.epoch += 1
        for log in self._open():
            log.stop()
        for log in self.logs.values():
            log.disk.crash(kind, rng)
        self.world.drop_all(self)

    def leave(self) -> None:
        """Leave for good. The logs still handle the closing of their connections."""
        self.is_up = False
        self.epoch += 1
        logs = self._open()
        for log in logs:
            log.epoch += 1
        self.world.unlink(self)
        for log in logs:
            log.is_up = False

    def open(self, log: SimReplica) -> None:
        """Open a log that was closed, and tell peers so."""
        self._say_held(log.topic, is_held=True)
        log.start()
        for peer, wire in self.wires.items():
            if log.topic in self._held[peer]:
                log.on_connected(wire)

    def close(self, log: SimReplica) -> None:
        """Close a log while the others go on."""
        log.report(ReplicaObserver.on_leaving)
        log.stop()
        log.disk.crash(Crash.KILL, self.late)
        self.tell(events.StopBroadcast(), log)
        self._say_held(log.topic, is_held=False)

    def _say_held(self, topic: str, *, is_held: bool) -> None:
        for wire in self.wires.values():
            self.world.tell(wire, self, HELD, (topic, is_held))

    def _open(self) -> list[SimReplica]:
        return [log for log in self.logs.values() if log.is_up]

    def local_now(self) -> float:
        """Return the time on its clock."""
        return self.spec.offset_s + self.world.now * self.spec.rate

    def at_local(self, local_s: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call at a time on its clock."""
        # An inexact clock causes rounding errors; a nanosecond later the time has certainly come.
        self.world.at((local_s - self.spec.offset_s) / self.spec.rate + 1e-9, call, *arguments)

    def new_stream(self, purpose: str, topic: str) -> Stream:
        """Name a stream of its own."""
        self._streams += 1
        return purpose, self.id, self._streams, topic

    # The machines

    def tell(self, event: events.Event | SharedEvent, log: SimReplica | None = None) -> None:
        """Hand an event to a log's machine, or to the router, and carry out what follows in order."""
        todo = self._ask(event, log)
        for shown in todo:
            # At once, while its view is current: an earlier action of this turn may close a connection that a later one sends on.
            self._show(*shown)
        self._todo.extend(todo)
        if self._is_acting:
            return
        self._is_acting = True
        while self._todo:
            asked, action = self._todo.popleft()
            (self if asked is None or not asked.is_up else asked).act(action)
        self._is_acting = False

    def _ask(self, event: Any, log: SimReplica | None) -> list[tuple[SimReplica | None, Action]]:
        """Return the actions that follow from an event. What the router asks a log is replaced by the actions of that log's machine."""
        actions = (self.shared if log is None else log.machine).handle(event, self.local_now())
        if self.see is not None:
            self.see(event, actions)
        out: list[tuple[SimReplica | None, Action]] = []
        for action in actions:
            if isinstance(action, Validate | AnotherSource):
                asked = self.logs[action.message.topic if isinstance(action, Validate) else action.topic]
                if asked.is_up:
                    out += self._ask(action, asked)
            else:
                out.append((log, action))
        return out

    def _show(self, of: SimReplica | None, action: Action) -> None:
        """Show an action to the checkers of the logs that it is about."""
        match action:
            case SendRpc(peers, rpc, is_urgent):
                for log, part in self._parts(rpc):
                    log.show(action if part is rpc else SendRpc(peers, part, is_urgent))
            case Deliver() | Published():
                held = self.logs.get(action.topic if isinstance(action, Published) else action.message.topic)
                if held is not None and held.is_up:
                    held.show(action)
            case _ if of is not None and of.is_up:
                of.show(action)
            case _:
                pass

    def _parts(self, rpc: Rpc) -> Iterable[tuple[SimReplica, Rpc]]:
        """Cut an RPC into those about each open log."""
        if self.world.topics is None:
            return [(log, rpc) for log in self._open()]
        self.world.topics.update((message.id, message.topic) for message in rpc.messages)
        for ihave in () if rpc.control is None else rpc.control.ihave:
            self.world.topics.update(dict.fromkeys(ihave.ids, ihave.topic))
        first = next(iter(self.logs))
        parts = [(log, _part_of(rpc, log.topic, self.world.topics, first)) for log in self._open()]
        return [(log, part) for log, part in parts if part is not None]

    def act(self, action: Action) -> None:
        """Carry out what the router asks for."""
        match action:
            case SendRpc(peers, rpc, _):
                for peer in peers:
                    self.send_rpc(peer, rpc)
            case SetTimer(token, at):
                self._timers[token] = at
                at_s = at + self.spec.timer_s * self.late.random()
                self.at_local(at_s, self._on_timer, self.epoch, token, at)
            case Ban(peer):
                if peer in self.wires:
                    self.world.close(self.wires[peer])
            case Connect(peer):
                if peer not in self.wires:
                    self.tell(ConnectFailed(peer))
            case Probe(peer):
                wire = self.wires.get(peer)
                self.tell(Probed(peer, None if wire is None else 2 * wire.latency_s))
            case _:
                # Deliveries are in a log already. The other facts are for observers.
                pass

    def send_rpc(self, peer: PeerId, rpc: Rpc) -> None:
        """Send an RPC, or tell the router that it could not be sent."""
        wire = self.wires.get(peer)
        if wire is not None and self.world.send_rpc(wire, self, rpc):
            return
        if wire is not None:
            for log, part in self._parts(rpc):
                log.report(ReplicaObserver.on_refused, peer, part)
        self.tell(SendFailed(peer, rpc))

    def _on_timer(self, epoch: int, token: TimerToken, at: float) -> None:
        if epoch == self.epoch and self._timers.get(token) == at:
            del self._timers[token]
            self.tell(TimerFired(token))

    # The world

    def on_connected(self, wire: SimWire) -> None:
        """See `Inhabitant`."""
        peer = wire.other(self).id
        self.wires[peer], self._held[peer] = wire, set()
        self.met[peer] += 1
        first, *others = self._open()
        first.on_connected(wire)
        for log in others:
            self.world.tell(wire, self, HELD, (log.topic, True))

    def on_closed(self, wire: SimWire) -> None:
        """See `Inhabitant`."""
        peer = wire.other(self).id
        if self.wires.get(peer) is wire:
            del self.wires[peer]
            logs = [log for log in self._open() if peer in log.wires]
            for log in logs:
                log.on_closed(wire)
            for log in logs:
                log.on_parted(wire)

    def on_rpc(self, wire: SimWire, rpc: Rpc) -> None:
        """See `Inhabitant`."""
        peer, parts = wire.other(self).id, self._parts(rpc)
        for log, part in parts:
            log.report(ReplicaObserver.on_rpc, peer, part)
        self.tell(RpcReceived(peer, rpc))
        for log, part in parts:
            if log.is_up:
                log.on_rpc_handled(part)

    def on_stream(self, wire: SimWire, stream: Stream, message: Any) -> None:
        """See `Inhabitant`."""
        if stream is HELD:
            topic, is_held = message
            self._on_held(wire, topic, is_held=is_held)
        elif self.logs[stream[3]].is_up:
            self.logs[stream[3]].on_stream(wire, stream, message)

    def _on_held(self, wire: SimWire, topic: str, *, is_held: bool) -> None:
        """A peer says that it has opened a log or closed it."""
        peer, log = wire.other(self).id, self.logs.get(topic)
        (self._held[peer].add if is_held else self._held[peer].discard)(topic)
        if log is not None and log.is_up:
            if is_held:
                log.on_connected(wire)
            elif peer in log.wires:
                log.on_closed(wire)
                log.on_parted(wire)


class SimReplica:
    """One log of a process.

    Attributes:
        wires: The connections on which the peer holds the log as well.
        is_up: The log is open.
        is_wanted: It is opened when its process starts.
    """

    def __init__(self, process: SimProcess, spec: ReplicaSpec, validator: Validator, watch: Watch[SimReplica]) -> None:
        self.id = process.id
        self.process = process
        self.world = process.world
        self.spec = spec
        self.topic = spec.topic
        self.signer = signer_of(process.seed, spec.number)
        self.disk = Disk()
        self.is_up, self.is_wanted = False, True
        self.epoch = 0
        self.log: LogOnDisk
        self.shared: SharedRouter
        self.machine: Broadcast
        self.wires: dict[PeerId, SimWire] = {}
        self.watch = watch
        self.observers: Sequence[ReplicaObserver] = ()
        self.local_now = process.local_now
        self._validator = validator
        slow = random.Random(f"verify {process.seed} {spec.number}")
        self._verify_s = VERIFY_S * slow.random() if slow.random() < VERIFY_SHARE else 0.0
        process.logs[spec.topic] = self

    # Life

    def start(self) -> None:
        """Open the log from the disk's contents."""
        self.epoch += 1
        self.is_up = True
        late = random.Random(f"disk {self.process.seed} {self.spec.number} {self.epoch}")
        self.log = LogOnDisk(self, late, make_application(self.signer.did, self.epoch))
        self.shared, self._late = self.process.shared, self.process.late
        # No entry may depend on heads being told again merely because time has passed.
        self.machine = Broadcast(self.shared, self.topic, self.process.rng, tell_again_s=math.inf)
        self.wires = {}
        self._timers: dict[TimerToken, float] = {}
        self._verifying = 0
        self._is_elsewhere = False
        # Callers that wait for the verdicts of a batch.
        self._tickets: list[Callable[[list[Verdict]], None]] = []
        self.allowance = self._count() if self.spec.quota is not None else None
        # The rules under which each peer brings entries.
        self._bringers: dict[PeerId, Bringer] = {}
        self._push_streams: dict[PeerId, Stream] = {}
        self.syncs = Syncs(self, self._late)
        self.observers = self.watch.on_started(self)
        self.tell(events.StartBroadcast(may_foresee=not (self.spec.has_rule or self.spec.is_shared or self.spec.founding)))
        if not self.spec.is_durable:
            self._sync_disk()

    def stop(self) -> None:
        """Let nothing that was begun go on: the log is closed, or its process has ended."""
        self.is_up = False
        self.epoch += 1

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
            committed = events.EntriesCommitted(entries)
            self.later(HEARD_OF_S * self._late.random(), partial(self.tell, committed))
        else:
            self.later(ELSEWHERE_AGAIN_S, partial(self.append_elsewhere, payloads))

    @property
    def state(self) -> MemoryState:
        """Return the committed state."""
        return self.log.state

    @property
    def is_idle(self) -> bool:
        """Return whether nothing is being verified, written or read."""
        return self.log.is_idle and not self._verifying and not self.spec.answer_s

    def wake_at(self, local_s: float, call: Callable[[], None]) -> None:
        """Call at a time on the process's clock, unless the log has been closed by then."""
        self.process.at_local(local_s, self._wake, self.epoch, call)

    def later(self, wait_s: float, call: Callable[[], None]) -> None:
        """Call after some seconds, unless the log has been closed by then."""
        self.world.after(wait_s, self._wake, self.epoch, call)

    def _wake(self, epoch: int, call: Callable[[], None]) -> None:
        if epoch == self.epoch:
            call()

    def tell(self, event: events.Event) -> None:
        """Hand an event to the log's machine and carry out its actions in order."""
        self.process.tell(event, self)

    # Events from the process

    def report(self, event: Callable[Concatenate[ReplicaObserver, P], None], /, *args: P.args, **options: P.kwargs) -> None:
        """Report an event to all observers."""
        for observer in self.observers:
            getattr(observer, event.__name__)(*args, **options)

    def on_connected(self, wire: SimWire) -> None:
        """A peer that holds the log is connected."""
        peer, kind = wire.other(self).id, wire.kind_for(self)
        self.wires[peer] = wire
        self.report(ReplicaObserver.on_connected, peer)
        protocol = self.shared.protocols[0] if kind is events.PeerKind.MESH else None
        bringer = Bringer()
        if self.allowance is not None and kind is events.PeerKind.CLIENT:
            bringer = Bringer(self.allowance, address_of(peer), is_client=True)
        self._bringers[peer] = bringer
        self.tell(events.Connected(peer, kind, wire.side(self) == 0, protocol, bringer=bringer))

    def on_closed(self, wire: SimWire) -> None:
        """The connection with a peer has closed, or the peer has closed the log."""
        peer = wire.other(self).id
        del self.wires[peer]
        self.report(ReplicaObserver.on_closed, peer)
        self._push_streams.pop(peer, None)
        self.tell(events.Disconnected(peer))

    def on_parted(self, wire: SimWire) -> None:
        """The machines of all logs of the process have been told that the connection has closed."""
        peer = wire.other(self).id
        self.report(ReplicaObserver.on_parted, peer)
        self.syncs.on_closed(wire, peer)

    def on_rpc_handled(self, rpc: Rpc) -> None:
        """The part of an RPC that is about the log has been handled, with all immediate consequences."""
        self.report(ReplicaObserver.on_rpc_handled)

    def on_stream(self, wire: SimWire, stream: Stream, message: Any) -> None:
        """A message arrived on one of the log's streams. A peer may know before us that both hold the log."""
        peer = wire.other(self).id
        if peer not in self.wires:
            return
        if stream[0] == "push":
            self._on_push(wire, peer, stream, message)
        else:
            self.syncs.receive(wire, peer, stream, message, is_ours=stream[1] == self.id)

    def show(self, action: Action) -> None:
        """Show an action to the checkers."""
        match action:
            case EntryForeseen(entry, found):
                self.report(ReplicaObserver.on_foreseen, entry.source, found)
            case EntryDecided(entry, verdict):
                self.report(ReplicaObserver.on_verdict, entry.source, verdict)
            case EntriesAppended(entries):
                self.report(ReplicaObserver.on_appended, entries)
            case _:
                self.report(ReplicaObserver.on_action, action)

    def _on_push(self, wire: SimWire, peer: PeerId, stream: Stream, message: Any) -> None:
        if message == "open":
            self._push_streams[peer] = stream
            self.world.send(wire, self, stream, "opened")
            self.report(ReplicaObserver.on_push_opened, peer)
            self.tell(events.PushOpened(peer))
        elif self._push_streams.get(peer) != stream:
            return
        elif message == "opened":
            self.report(ReplicaObserver.on_push_opened, peer)
            self.tell(events.PushOpened(peer))
        elif message is None:
            del self._push_streams[peer]
            self.report(ReplicaObserver.on_push_closed, peer)
            self.tell(events.PushClosed(peer))
        else:
            self.report(ReplicaObserver.on_pushed, peer, message)
            self.tell(events.PushReceived(peer, message))

    # The machine's actions

    def act(self, action: Action) -> None:
        """Carry out what the machine asks for."""
        match action:
            case VerifyBatch():
                self._verify(action)
            case InsertBatch(batch, verdicts):
                accepted = [verdict.entry for verdict in verdicts if verdict.entry is not None]
                self.log.insert(accepted, partial(self._on_inserted, batch))
            case BatchDecided(ticket, verdicts):
                self._tickets[ticket](list(verdicts))
            case AskLog():
                self._on_ask(action)
            case SetTimer(token, at) if token in LOG_TIMERS:
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
            case _:
                self.process.act(action)

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
            self.tell(TimerFired(token))

    def new_stream(self, purpose: str) -> Stream:
        """Name a stream of its own."""
        return self.process.new_stream(purpose, self.topic)

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
            self.report(ReplicaObserver.on_looked_up, request.keys)
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

    def on_commit(self, entries: Sequence[Entry]) -> None:
        """Report new entries, count them, and tell the machine."""
        self.report(ReplicaObserver.on_commit, entries)
        if self.allowance is not None:
            self.allowance.on_commit(entries)
        if entries and not self._is_elsewhere:
            self.tell(events.EntriesCommitted(entries))

    def read(self, plan: Plan[T]) -> T:
        """Run a plan that only reads."""
        return self.log.read(plan)

    def insert_many(self, peer: PeerId, entries: Sequence[tuple[bytes, bytes]], then: Callable[[list[Verdict]], None]) -> None:
        """Insert entries from a sync, and pass on the verdicts."""

        def decided(verdicts: list[Verdict]) -> None:
            self.report(ReplicaObserver.on_let_in, peer, verdicts)
            then(verdicts)

        self._tickets.append(decided)
        self.tell(events.BatchBrought(len(self._tickets) - 1, "sync", entries, self._bringers[peer]))

    def _count(self) -> Allowance:
        """Count the log's entries, as a listener does when it starts."""
        allowance = Allowance(self.topic, _QuotaAlone(self.spec.quota or Quota()))
        allowance.on_read([Entry.stored(value) for value in self.state.values])
        allowance.on_all_read()
        return allowance

    def _on_appended(self, verdicts: list[Verdict]) -> None:
        entries = [verdict.entry for verdict in verdicts if verdict.entry is not None]
        self.report(ReplicaObserver.on_acknowledged, entries)

    def _sync_disk(self) -> None:
        self.disk.sync()
        self.wake_at(self.local_now() + 1.0, self._sync_disk)

    def make_server(self, wire: SimWire, stream: Stream, bucket: TokenBucket) -> Receive:
        """Serve a peer that pulls from us."""
        return self.syncs.make_server(wire, stream, bucket)


def _part_of(rpc: Rpc, topic: str, topics: Mapping[MessageId, str], first: str) -> Rpc | None:
    """Return the part of an RPC that is about one log; None if there is none. Ids of no known message count as about the first log."""

    def is_own(id: MessageId) -> bool:
        return topics.get(id, first) == topic

    control = rpc.control
    if control is not None:
        control = Control(
            tuple(each for each in control.ihave if each.topic == topic),
            tuple(filter(is_own, control.iwant)),
            tuple(each for each in control.graft if each == topic),
            tuple(each for each in control.prune if each.topic == topic),
            tuple(filter(is_own, control.idontwant)),
            tuple(each for each in control.choke if each == topic),
            tuple(each for each in control.unchoke if each == topic),
        )
    messages = tuple(message for message in rpc.messages if message.topic == topic)
    overlay = tuple(each for each in rpc.overlay if each.topic == topic)
    if not messages and not overlay and control in (None, Control()):
        return None
    return replace(rpc, messages=messages, control=control, overlay=overlay)
