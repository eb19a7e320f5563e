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
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeAlias, assert_never
from weakref import WeakKeyDictionary

import trio

from ...broadcast import (
    LOG_TIMERS,
    Action,
    Allowance,
    AskLog,
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
    LogAnswered,
    OpenPush,
    PeerKind,
    Push,
    PushDropped,
    PushRefused,
    SharedEvent,
    SharedRouter,
    StartBroadcast,
    StartSync,
    SyncFinished,
    Unwelcome,
    VerifyBatch,
)
from ...broadcast.allowance import MAY_NOT_PUSH
from ...codec.framing import encode_frame
from ...errors import LocalProtocolError
from ...limits import address_group
from ...pubsub.actions import AnotherSource, Connect, Deliver, Disconnect, Probe, Published, SendRpc, SetTimer, SlowPeer, Validate
from ...pubsub.events import ConnectFailed, Probed, SendFailed, Start, TimerFired
from ...pubsub.params import GossipsubParams
from ...pubsub.registry import make_router
from ...pubsub.router import Router, ScoreParts
from ...pubsub.types import PeerId, TimerToken
from ...pubsub.wire.rpc_codec import WireLimits
from ...replica.log import Replica
from ...sync.refusals import Refused
from ...sync.result import SyncResult
from ...tasks.nursery import open_service_nursery
from ..ground.access import ALL, Rights
from ..ground.admission import Admission
from ..ground.journal import note
from ..reports.failed_dials import FailedDials
from ..reports.health import Health
from ..reports.observer import Observer
from ..transport.stream import Connection, Handler, Traffic
from .allowances import Allowances
from .driver import LogDriver, read_patiently
from .intake import IntakeWork
from .peers import Peer, PeerConnection, PeerConnectionState, new_bucket
from .presence import PresenceStreams
from .refusals import hear_refusals
from .streams import Streams
from .syncs import SyncStreams
from .timers import Timers

__all__ = ["MakeRouter", "Service", "observed", "open_service", "service_of"]

MakeRouter: TypeAlias = Callable[[random.Random], Router]
"""Makes a router that validates, from its only source of chance."""

CAUGHT_UP_S = 2.0
"""A hub that has said nothing for so long, and of which nothing is wanted, has nothing that we lack."""
_LOOK_S = 0.02
_SAID_MAX = 4_096
_CLOSE_S = 5.0


class Dialler(Protocol):
    """Who makes connections for the router. Each call returns at once; the answers come through `Service.tell`."""

    def connect(self, peer: PeerId, record: bytes | None, source: PeerId | None) -> None:
        """Dial a peer that another one may have named, then attach the connection, or tell `ConnectFailed`."""
        ...

    def disconnect(self, peer: PeerId) -> None:
        """The router has no more use for the connection."""
        ...

    def probe(self, peer: PeerId) -> None:
        """Measure the round trip, and tell `Probed`."""
        ...


class Service:
    """The service of one log; see the module's docstring. Made by `open_service`.

    Attributes:
        driver: What its streams share.
        log: The log.
        me: Our own peer id.
        topic: The log's.
        shared: The router; whoever watches may look. A mesh says that it is there: `has_mesh`.
        machine: The log's protocol; whoever watches may look, and hands it nothing.
        protocols: The pubsub protocol ids that we speak, the preferred one first.
        handlers: What a connection serves, by protocol id.
        dialler: Makes connections for the router; None without a mesh.
        users: Blocks of `open_service` that are open.
        hubs: URLs of the hubs that it is kept connected to.
        peers: Who is connected.
        counts: What has happened since the start, by name.
        figures: What it has done so far, by way and outcome.
        health: Whether the log answers.
        failed_dials: Whom we cannot reach.
        allowances: What its clients may bring.
        intake: Takes entries in.
        presence: Carries what is true only now.
    """

    def __init__(self, log: Replica, me: PeerId, make_router: MakeRouter, wire: WireLimits) -> None:
        rng = random.Random(secrets.randbits(128))
        self.log = log
        self.me = me
        self.topic = log.topic
        self.shared = SharedRouter(make_router(rng))
        self.machine = Broadcast(self.shared, log.topic, rng)
        self.protocols = self.shared.protocols
        self.driver = LogDriver(log, self.machine, self._act)
        self.peers: Mapping[PeerId, Peer] = self.driver.peers
        self.counts: Mapping[str, int] = self.driver.counts
        self.figures = self.driver.figures
        self.dialler: Dialler | None = None
        self.users = 0
        self.hubs: set[str] = set()
        self.health = Health(log)
        self.failed_dials = FailedDials(lambda address, reason: self.observed("dial-failed", address, reason=reason))
        self.allowances = Allowances(log)
        self.intake = IntakeWork(self.driver)
        self._streams = Streams(self.driver, wire, self._dial_anew)
        self._syncs = SyncStreams(self.driver, self.intake.insert_synced)
        self.presence = PresenceStreams(self.driver)
        self.handlers: Mapping[str, Handler] = {**self._streams.handlers(), **self._syncs.handlers(), **self.presence.handlers()}
        self._timers = Timers(self._on_timer)
        self._names: set[str] = set()
        # What was logged of whom, once.
        self._said: OrderedDict[PeerId, tuple[set[str], set[str]]] = OrderedDict()
        # Listeners that refuse the places that are banned.
        self._admissions: list[Admission] = []
        self._has_caught_up = False
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery

    @property
    def observer(self) -> Observer | None:
        """Makes facts of all that happens; None where nobody wants any."""
        return self.driver.observer

    def tell(self, event: Event) -> None:
        """Hand an event to the machine, and carry out what it asks for. Returns at once, raises nothing; of no effect after the end."""
        self.driver.tell(event)

    def tell_router(self, event: SharedEvent) -> None:
        """Hand an event to the router, in the same way."""
        self.driver.tell_router(event)

    def _on_timer(self, token: TimerToken) -> None:
        (self.tell if token in LOG_TIMERS else self.tell_router)(TimerFired(token))

    def observed(self, kind: str, peer: str | None = None, **columns: Any) -> None:
        """Have the observer take a fact, if there is one. See `Tell`."""
        self.driver.observed(kind, peer, **columns)

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
                self.driver.peers[peer.id] = peer
            if kind is not PeerKind.CLIENT:
                # Of those who come again by the same name, what was said once is not said again.
                peer.told, peer.refusals = self._said.setdefault(peer.id, (peer.told, peer.refusals))
                self._said.move_to_end(peer.id)
                if len(self._said) > _SAID_MAX:
                    self._said.popitem(last=False)
            link = PeerConnection(connection, peer, nursery, time.time())
            peer.links.append(link)
            self.driver.on_attached(link)
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
                    del self.driver.peers[peer.id]
                    self.tell(Disconnected(peer.id))
                self._streams.on_detached(link)
                self.driver.on_detached(link)
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
        """Note that a peer that is connected speaks one of `protocols`, which it did not before, or speaks pubsub no longer (None)."""
        self._streams.set_pubsub(id, protocol)

    def _dial_anew(self, id: PeerId, connection: Connection) -> None:
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
        return self.shared.router.is_heeded(peer)

    @contextmanager
    def guarded_by(self, admission: Admission) -> Iterator[None]:
        """Have a listener refuse the places that the machine bans, for the length of a block."""
        self._admissions.append(admission)
        try:
            yield
        finally:
            self._admissions.remove(admission)

    def banned_until(self, peer: PeerId) -> float | None:
        """Say until which time of `trio.current_time` a peer is banned; None if it is not."""
        return self.shared.banned_until(peer, trio.current_time())

    # For whoever watches

    def state(self) -> BroadcastState:
        """Show the machine as values."""
        return self.machine.state()

    def scores(self) -> dict[PeerId, ScoreParts]:
        """Show the scores of the mesh's peers, with their parts; empty where the router keeps none."""
        return {peer.peer: peer.score for peer in self.shared.router.state().peers if peer.score is not None}

    def links(self) -> list[PeerConnectionState]:
        """Show the connections, in the order in which their peers came."""
        return [state for peer in self.peers.values() for state in peer.states()]

    @property
    def waiting(self) -> int:
        """Entries that peers sent and that wait to be verified."""
        return len(self.machine.intake)

    def traffic(self) -> dict[str, Traffic]:
        """Sum up what streams carried so far, by protocol."""
        return self.figures.traffic(link.connection for peer in self.peers.values() for link in peer.links)

    def has_caught_up(self) -> bool:
        """Whether all is here that any of the hubs had that we are a client of; once it was, it stays so. True without any."""
        sizes = self.machine.state().sizes
        if self.hubs and not (self._has_caught_up or sizes["syncs"] or sizes["keys_per_peer"] or sizes["asked"]):
            settled = time.time() - CAUGHT_UP_S
            hubs = [peer for peer in self.peers.values() if peer.kind is PeerKind.HUB and peer.push is not None]
            self._has_caught_up = any(peer.counts.get("received") or peer.links[0].since < settled for peer in hubs)
        return self._has_caught_up or not self.hubs

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
                if self.driver.observer is not None:
                    self._nursery.start_soon(self.driver.observer.run, self.log, self.health.full)
                self.tell_router(Start(self.me))
                self.tell(StartBroadcast(may_foresee=not (self.log.is_shared or self.log.has_rules)))
                task_status.started()
                try:
                    await trio.sleep_forever()
                finally:
                    self.driver.has_ended = True

    def stop(self) -> None:
        """Stop; nothing may be attached any more."""
        self._scope.cancel()

    # What the machine asks for

    def _act(self, action: Action) -> None:
        match action:
            case Push(peers, data):
                self._push(peers, encode_frame(data))
            case Validate() | AnotherSource():  # pragma: no cover - the driver has handed them to the machine
                raise AssertionError(action)
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
                self.driver.count("entries appended", len(entries))
            case EntryForeseen():
                pass
            case SendRpc(peers, rpc, is_urgent):
                for id in peers:
                    peer = self.peers.get(id)
                    dropped = rpc if peer is None else peer.rpcs.put(rpc, is_urgent=is_urgent)
                    if dropped is not None:
                        self.tell_router(SendFailed(id, dropped))
            case SetTimer(token, at):
                self._timers.set(token, at)
            case AskLog():
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
            case PushRefused(id, keys):
                peer = self.peers.get(id)
                if peer is not None:
                    peer.note_once("push", "client may not push")
                    peer.count("refused")
                    for key in keys:
                        peer.refusal_box.add(key, MAY_NOT_PUSH)
            case Connect() | Disconnect() | Probe():
                self._ask_dialler(action)
            case Deliver() | Published():
                self.driver.count("delivered" if isinstance(action, Deliver) else "published")
            case SlowPeer(_, dropped):
                self.driver.count("rpcs dropped", dropped)
            case _:
                assert_never(action)

    def _ask_dialler(self, action: Connect | Disconnect | Probe) -> None:
        """Carry out what the router wants of connections; without a mesh nobody can be dialled or measured."""
        dialler = self.dialler
        match action:
            case Connect(id, record, source):
                if id in self.peers:
                    pass
                elif dialler is None:
                    self.tell_router(ConnectFailed(id))
                else:
                    dialler.connect(id, record, source)
            case Disconnect(id):
                if dialler is not None:
                    dialler.disconnect(id)
            case Probe(id):
                if dialler is None:
                    self.tell_router(Probed(id, None))
                else:
                    dialler.probe(id)
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
                self.driver.count("pushes dropped")
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
        if action.origin is not None:
            for admission in self._admissions:
                admission.ban(action.origin, action.until)
        if action.peer in self.peers:
            self._close(self.peers[action.peer])

    async def _ask(self, action: AskLog) -> None:
        self.tell(LogAnswered(action.token, await read_patiently(self.log, action.plan)))

    def _start_sync(self, action: StartSync) -> None:
        peer = self.peers.get(action.peer)
        if peer is None or not peer.links:
            self.tell(SyncFinished(action.peer, SyncResult(reason="the peer has gone"), action.token))
        else:
            peer.links[0].start(partial(self._syncs.pull, action))


_OBSERVED: WeakKeyDictionary[Replica, Path | None] = WeakKeyDictionary()
"""Logs of which facts are wanted, and the file that they are written to."""
_SERVICES: WeakKeyDictionary[Replica, Service] = WeakKeyDictionary()
"""The service of each log that is on the network."""


def service_of(log: Replica) -> Service | None:
    """Return the service of a log, None if it is not on the network."""
    return _SERVICES.get(log)


@contextmanager
def observed(log: Replica, file: Path | None = None) -> Iterator[None]:
    """Have facts made of all that the log's service does, for the length of a block, which begins before that service does.

    Args:
        log: Not on the network yet.
        file: Where facts are written, beside the ring of the service's observer; None for nowhere.
    """
    _OBSERVED[log] = file
    try:
        yield
    finally:
        del _OBSERVED[log]


@asynccontextmanager
async def open_service(
    log: Replica, *, me: PeerId | None = None, make_router: MakeRouter | None = None, wire: WireLimits | None = None
) -> AsyncIterator[Service]:
    """Use the log's service for the length of a block: the one that runs, or one that is started here. It stops with its last user.

    Args:
        log: Which must stay open longer.
        me: Our peer id; None where no peer will ask.
        make_router: How a mesh spreads entries; gossipsub unless given.
        wire: Limits of pubsub's frames.

    Raises:
        LocalProtocolError: It runs already, with another peer id or router than these.
    """
    service = _SERVICES.get(log)
    if service is None:
        service = Service(log, me or PeerId(f"local-{secrets.token_hex(8)}"), make_router or _make_gossipsub, wire or WireLimits())
        if log in _OBSERVED:
            service.driver.observer = Observer(service.me, service.topic, service.state().router.router, _OBSERVED[log])
        _SERVICES[log] = service
        await log.tasks.start(service.run)
    elif (me is not None and me != service.me) or make_router is not None:
        raise LocalProtocolError(f"the log is on the network already, as {service.me}", hint="join the mesh before listening or connecting")
    service.users += 1
    try:
        yield service
    finally:
        service.users -= 1
        if not service.users:
            del _SERVICES[log]
            service.stop()


def _make_gossipsub(rng: random.Random) -> Router:
    return make_router("gossipsub", GossipsubParams(), rng)
