"""One log on the network: a broadcast machine, and the connections, streams, tasks and timers that it is driven with.

A log has at most one service, whatever kinds of peers it has: a hub for browsers, a server of a mesh, a client of hubs, or all at once,
so that what arrives on one side goes out on the other. Whoever brings connections does three things:

    async with open_service(log, me=my_id) as service:        # shared: the first one starts it, the last one stops it
        connection = …                                        # it serves service.handlers: a Handler for each protocol id
        async with service.attached(connection, PeerKind.MESH, pubsub_protocol="/meshsub/1.1.0"):
            await connection.run()                            # until it is closed, by whichever side

`attached` says `Connected` and `Disconnected`; several connections with one peer may be attached, and count as one peer. A banned peer's
connections are closed by `Connection.aclose`; ask `banned_until` before attaching. The streams that our side opens (push, sync, pubsub)
are opened on the attached connection; handlers are called with that same object, and wait up to 5 s for it to be attached.
A mesh sets `service.dialler`, which is asked to connect, to disconnect and to measure, and answers with `service.tell`.

Source: docs/spec/sync.md; docs/architecture.md, "One protocol, two drivers".
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, TypeAlias, assert_never

import trio

from ...broadcast import (
    Action,
    Allowance,
    Answered,
    Ask,
    Ban,
    BatchDecided,
    Bringer,
    Broadcast,
    BroadcastState,
    ClosePush,
    Connected,
    Disconnected,
    EntriesAppended,
    EntryDecided,
    EntryForeseen,
    Event,
    InsertBatch,
    InsertEntry,
    OpenPush,
    PeerKind,
    PubsubChanged,
    Push,
    PushDropped,
    Start,
    StartSync,
    SyncFinished,
    Unwelcome,
    VerifyBatch,
)
from ...codec.framing import encode_frame
from ...entry.validation import Verdict
from ...limits import address_group
from ...pubsub.actions import Connect, Deliver, Disconnect, Probe, Published, SendRpc, SetTimer, SlowPeer
from ...pubsub.events import SendFailed, TimerFired
from ...pubsub.router import Router, ScoreParts
from ...pubsub.types import PeerId
from ...pubsub.wire.rpc_codec import WireLimits
from ...replica.log import Replica
from ...sync.result import SyncResult
from ...tasks.nursery import open_service_nursery
from ..ground.access import ALL, Rights
from ..ground.admission import Admission
from ..ground.journal import note
from ..transport.stream import Connection, Handler, Traffic
from .allowances import Allowances
from .ask_log import ask_until_answered
from .bans import Bans
from .dialler import Dialler, ask_dialler
from .figures import Figures
from .health import Health
from .intake import IntakeWork, Strangers
from .observer import Observer
from .peers import Peer, PeerConnection, PeerConnectionState, new_bucket
from .refusals import Refused, hear_refusals
from .streams import Streams
from .timers import Timers
from .troubles import Troubles

__all__ = ["MakeRouter", "Service"]

MakeRouter: TypeAlias = Callable[[random.Random], Router]
"""Makes a router that validates, from its only source of chance."""

_LOOK_S = 0.02
_SAID_MAX = 4_096
_CLOSE_S = 5.0


class Service:
    """The service of one log; see the module's docstring. Made by `open_service` in registry.py.

    Attributes:
        log: The log.
        me: Our own peer id.
        topic: The log's.
        machine: The protocol; whoever watches may look, and hands it nothing. A mesh says that it is there: `has_mesh`.
        protocols: The pubsub protocol ids that we speak, the preferred one first.
        handlers: What a connection serves, by protocol id.
        dialler: Makes connections for the router; None without a mesh.
        users: Blocks of `open_service` that are open.
        hubs: URLs of the hubs that it is kept connected to.
        peers, bans: Who is connected, and who is banned.
        strangers: Whom of them has to wait.
        health: Whether the log answers.
        figures: What it has done so far.
        allowances: What its clients may bring.
        intake: Takes entries in.
        observer: Makes facts of all that happens; None where nobody wants any.
        troubles: Whom we cannot reach.
    """

    def __init__(self, log: Replica, me: PeerId, make_router: MakeRouter, wire: WireLimits) -> None:
        rng = random.Random(secrets.randbits(128))
        self.log = log
        self.me = me
        self.topic = log.topic
        self.dialler: Dialler | None = None
        self.users = 0
        self.hubs: set[str] = set()
        self.peers: dict[PeerId, Peer] = {}
        self._names: set[str] = set()
        # What was logged of whom, once.
        self._said: OrderedDict[PeerId, tuple[set[str], set[str]]] = OrderedDict()
        self.health = Health(log)
        self.figures = Figures()
        self.allowances = Allowances(log)
        self.observer: Observer | None = None
        self.troubles = Troubles(lambda address, reason: self.observed("dial-failed", address, reason=reason))
        self.machine = Broadcast(make_router(rng), log.topic, rng)
        self.protocols = self.machine.protocols
        self._todo: deque[Action] = deque()
        self._is_acting = self._has_ended = False
        self._clock = trio.lowlevel.current_clock().current_time  # two calls less than `trio.current_time`
        self._timers = Timers(lambda token: self.tell(TimerFired(token)))
        self.bans = Bans()
        self._counts = Counter[str]()
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery
        self.strangers = Strangers(self.machine.spreading.is_slowed, self._clock)
        self.intake = IntakeWork(self)
        self._streams = Streams(self, wire)
        self.handlers: Mapping[str, Handler] = self._streams.handlers()

    # For whoever brings connections

    @asynccontextmanager
    async def attached(
        self,
        connection: Connection,
        kind: PeerKind,
        *,
        pubsub_protocol: str | None = None,
        has_push: bool = True,
        is_counted: bool = True,
        rights: Rights = ALL,
        allowance: Allowance | None = None,
    ) -> AsyncIterator[PeerConnection]:
        """Take a connection into use for the length of a block, which ends when the connection is closed.

        Whatever uses the connection ends with the block, but for a batch of a sync that is being inserted, which is waited for.

        Args:
            connection: Open, its streams served by `handlers`. The same object for as long as it is attached, and for the handlers.
            kind: What it is good for.
            pubsub_protocol: The one of `protocols` that the peer speaks as well; None without pubsub.
            has_push: The peer speaks our push protocol; False for a stranger who takes part in pubsub alone.
            rights: What it may, if it is a client.
            allowance: What it may bring, if it is a client.
            is_counted: Its address counts where the router counts peers by address; False for loopback and proxies.
        """
        async with open_service_nursery() as nursery:
            peer = self.peers.get(connection.peer)
            is_first = peer is None
            if peer is None:
                origin = None if connection.address is None else address_group(connection.address)
                sender = self._streams.sender(connection.peer)
                peer = Peer(connection.peer, kind, pubsub_protocol, sender, new_bucket(trio.current_time()), origin)
                address = origin if is_counted else None
                peer.rights = rights
                peer.bringer = Bringer(allowance, address, may_push="push" in rights, is_client=kind is PeerKind.CLIENT)
                self.peers[peer.id] = peer
            if kind is not PeerKind.CLIENT:
                # Of those who come again by the same name, what was said once is not said again.
                peer.told, peer.refusals = self._said.setdefault(peer.id, (peer.told, peer.refusals))
                self._said.move_to_end(peer.id)
                if len(self._said) > _SAID_MAX:
                    self._said.popitem(last=False)
            link = PeerConnection(connection, peer, nursery, time.time())
            peer.links.append(link)
            self._streams.on_attached(link)
            try:
                if is_first:
                    address = connection.address if is_counted else None
                    connected = Connected(peer.id, kind, connection.is_outbound, pubsub_protocol, address, has_push)
                    self.tell(replace(connected, origin=peer.origin, is_origin_shared=not is_counted, bringer=peer.bringer))
                elif pubsub_protocol is not None:
                    self.set_pubsub(peer.id, pubsub_protocol)
                yield link
            finally:
                peer.links.remove(link)
                if not peer.links:
                    del self.peers[peer.id]
                    self.tell(Disconnected(peer.id))
                self._streams.on_detached(link)
                self.figures.on_detached(connection)
                nursery.cancel_scope.cancel()

    def hear_refusals(self, link: PeerConnection, on_refused: Callable[[Refused], None]) -> None:
        """Have a function told what a hub does not take, for as long as the connection with it lives."""
        link.start(lambda link: hear_refusals(link.connection, self.topic, on_refused))

    @contextmanager
    def named(self, name: str) -> Iterator[PeerId]:
        """Name a client for the length of a block. Two that come from one port, by two listeners or two proxies, are not one peer.

        Each has rights and rules of its own.
        """
        id = PeerId(name if name not in self._names else next(f"{name}#{n}" for n in count(2) if f"{name}#{n}" not in self._names))
        self._names.add(id)
        try:
            yield id
        finally:
            self._names.discard(id)

    def set_pubsub(self, id: PeerId, protocol: str | None) -> None:
        """Note that a peer that is connected speaks pubsub, which it did not before, or speaks it no longer; else nothing happens.

        Args:
            id: Its peer id.
            protocol: The one of `protocols` to speak with it; None for no longer.
        """
        peer = self.peers.get(id)
        if peer is None or peer.kind is not PeerKind.MESH or (peer.pubsub_protocol is None) == (protocol is None):
            return
        peer.pubsub_protocol = protocol
        if protocol is not None:
            peer.rpcs, peer.is_introduced = self._streams.sender(id), False  # the router introduces us anew, and that goes first
        note("pubsub begins" if protocol else "pubsub ends", level=logging.DEBUG, peer=id, protocol=protocol)
        self.tell(PubsubChanged(id, protocol))
        self._streams.on_pubsub(peer)

    def tell(self, event: Event) -> None:
        """Hand an event to the machine, and carry out what it asks for. Returns at once, raises nothing; of no effect after the end."""
        if self._has_ended:
            # Connections may outlive the service by a moment where the log's block is cancelled.
            return
        try:
            actions = self.machine.handle(event, self._clock())
            self._todo.extend(actions)
            if self.observer is not None:
                self.observer.on_event(event, actions)
        except Exception as error:
            # A fault of ours must not end the connection of whoever brought it to light.
            note("fault in the protocol", level=logging.ERROR, error=error, cause=type(event).__name__)
        if self._is_acting or not self._todo:
            return
        self._is_acting = True
        try:
            while self._todo:
                self._act(self._todo.popleft())
        finally:
            self._is_acting = False

    def observed(self, kind: str, peer: str | None = None, **columns: Any) -> None:
        """Have the observer take a fact, if there is one. See `Tell`."""
        if self.observer is not None:
            self.observer.tell(kind, peer, **columns)

    def dial_anew(self, id: PeerId, connection: Connection) -> None:
        """Close a connection, and dial its peer again, by its addresses as far as we know any; returns at once."""

        async def begin() -> None:
            with trio.move_on_after(_CLOSE_S, shield=True):
                await connection.aclose()
                while id in self.peers and any(link.connection is connection for link in self.peers[id].links):
                    await trio.sleep(_LOOK_S)
            if self.dialler is not None and id not in self.peers:
                self.dialler.connect(id, None, None)

        self._nursery.start_soon(begin)

    def is_heeded(self, peer: PeerId) -> bool:
        """Say whether the router reads what a peer sends; not if its score is below the graylist threshold."""
        return self.machine.router.is_heeded(peer)

    @contextmanager
    def guarded_by(self, admission: Admission) -> Iterator[None]:
        """Have a listener refuse whom the machine bans, for the length of a block."""
        with self.bans.told_to(admission):
            yield

    def banned_until(self, peer: PeerId) -> float | None:
        """Say until which time of `trio.current_time` a peer is banned; None if it is not."""
        return self.bans.until(peer, trio.current_time())

    # For whoever watches

    def state(self) -> BroadcastState:
        """Show the machine as values."""
        return self.machine.state()

    def scores(self) -> dict[PeerId, ScoreParts]:
        """Show the scores of the mesh's peers, with their parts; empty where the router keeps none."""
        return {peer.peer: peer.score for peer in self.machine.router.state().peers if peer.score is not None}

    def links(self) -> list[PeerConnectionState]:
        """Show the connections, in the order in which their peers came."""
        return [state for peer in self.peers.values() for state in peer.states()]

    @property
    def counts(self) -> Mapping[str, int]:
        """What has happened since the start, by name."""
        return self._counts

    @property
    def waiting(self) -> int:
        """Entries that peers sent and that wait to be verified."""
        return len(self.machine.intake)

    def traffic(self) -> dict[str, Traffic]:
        """Sum up what streams carried so far, by protocol."""
        return self.figures.traffic(link.connection for peer in self.peers.values() for link in peer.links)

    def has_caught_up(self) -> bool:
        """Whether all is here that any of the hubs had that we are a client of; once it was, it stays so. True without any."""
        return not self.hubs or self.health.has_caught_up(self.peers.values(), self.machine.state())

    def count(self, what: str, number: int = 1) -> None:
        """Count something that happened."""
        self._counts[what] += number

    async def drain(self) -> None:
        """Wait until all that is queued for push streams is written. Under a deadline of the caller's: a peer may never read it."""
        for peer in list(self.peers.values()):
            if peer.push is not None:
                await peer.push.drain()

    async def close_clients(self) -> None:
        """Close the connections of all clients, and wait until they are gone. Under a deadline of the caller's."""
        for peer in list(self.peers.values()):
            if peer.kind is PeerKind.CLIENT:
                self._close(peer)
        while any(peer.kind is PeerKind.CLIENT for peer in self.peers.values()):
            await trio.sleep(_LOOK_S)

    # Life

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until `stop`."""
        with self._scope, self.log.watch_commits(self.figures.on_commit):
            async with trio.open_nursery() as self._nursery:
                await self._nursery.start(self.intake.run)
                self._nursery.start_soon(self._timers.run)
                self._nursery.start_soon(self.health.run)
                if self.observer is not None:
                    self._nursery.start_soon(self.observer.run, self.log, self.health.full)
                self.tell(Start(self.me, may_foresee=not (self.log.is_shared or self.log.has_rules)))
                task_status.started()
                try:
                    await trio.sleep_forever()
                finally:
                    self._has_ended = True

    def stop(self) -> None:
        """Stop; nothing may be attached any more."""
        self._scope.cancel()

    # What the machine asks for

    def _act(self, action: Action) -> None:
        match action:
            case Push(peers, data):
                self._push(peers, encode_frame(data))
            case InsertEntry():
                self.intake.on_under_way(action)
            case VerifyBatch():
                self.intake.verify(action)
            case InsertBatch():
                self.intake.insert(action)
            case EntryDecided():
                self.intake.on_decided(action)
            case BatchDecided():
                self.intake.on_batch_decided(action)
            case EntriesAppended(entries):
                self.count("entries appended", len(entries))
            case EntryForeseen():
                pass
            case SendRpc(peers, rpc, is_urgent):
                for id in peers:
                    peer = self.peers.get(id)
                    dropped = rpc if peer is None else peer.rpcs.put(rpc, is_urgent=is_urgent)
                    if dropped is not None:
                        self.tell(SendFailed(id, dropped))
            case SetTimer(token, at):
                self._timers.set(token, at)
            case Ask():
                self._nursery.start_soon(self._ask, action)
            case StartSync():
                self._start_sync(action)
            case OpenPush(id):
                self._start(id, self._streams.open_push)
            case ClosePush(id, reason):
                peer = self.peers.get(id)
                if peer is not None and peer.push is not None:
                    note("push stream closed", level=logging.WARNING, peer=id, reason=reason)
                    peer.push.stream.reset()
            case Ban():
                self._ban(action)
            case Unwelcome(id, reason, is_blamed):
                peer = self.peers.get(id)
                if peer is not None and is_blamed:
                    self._streams.on_refusals(peer, [reason])
                elif peer is not None:
                    peer.note_once("protocol", "message not understood", reason=reason)
            case Connect() | Disconnect() | Probe():
                ask_dialler(self.dialler, action, self.peers, self.tell)
            case Deliver() | Published():
                self.count("delivered" if isinstance(action, Deliver) else "published")
            case SlowPeer(id, dropped):
                self.count("rpcs dropped", dropped)
            case _:
                assert_never(action)

    def _start(self, id: PeerId, task: Callable[[PeerConnection], Awaitable[None]]) -> None:
        """Start a task of a peer that is still there, on its oldest connection."""
        peer = self.peers.get(id)
        if peer is not None and peer.links:
            peer.links[0].start(task)

    def _push(self, ids: Sequence[PeerId], frame: bytes) -> None:
        for id in ids:
            peer = self.peers.get(id)
            push = None if peer is None or "pull" not in peer.rights else peer.push
            if peer is None or push is None:
                continue
            if push.put(frame):
                peer.count("pushed")
            else:
                peer.count("dropped")
                self.count("pushes dropped")
                self.tell(PushDropped(id))
            if push.queued_bytes and push.is_stalled():
                self.observed("slow", id, size=push.queued_bytes)
                note("slow reader dropped", level=logging.WARNING, peer=id, queued_bytes=push.queued_bytes)
                self._close(peer)

    def _close(self, peer: Peer) -> None:
        for link in peer.links:
            self._nursery.start_soon(link.connection.aclose)

    def _ban(self, action: Ban) -> None:
        seconds = round(action.until - trio.current_time())
        note("peer banned", level=logging.WARNING, peer=action.peer, seconds=seconds, reason=action.reason, address=action.origin)
        self.figures.bans += 1
        # Before the connection is closed and its peer, who hears of that, dials again.
        self.bans.add(action.peer, action.until, action.origin, action.reason)
        if action.peer in self.peers:
            self._close(self.peers[action.peer])

    async def _ask(self, action: Ask) -> None:
        self.tell(Answered(action.token, await ask_until_answered(self.log, action.plan)))

    def _start_sync(self, action: StartSync) -> None:
        peer = self.peers.get(action.peer)
        if peer is None or not peer.links:
            self.tell(SyncFinished(action.peer, SyncResult(reason="the peer has gone"), action.token))
        else:
            peer.links[0].start(partial(self._streams.pull, action))

    async def insert_synced(self, peer: Peer, way: str, entries: Sequence[tuple[bytes, bytes]]) -> list[Verdict]:
        """Insert what a sync with a peer brought. See `IntakeWork.insert_synced`."""
        return await self.intake.insert_synced(peer, way, entries)
