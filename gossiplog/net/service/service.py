"""One log on the network: a broadcast machine, and the connections, streams, tasks and timers that drive it.

A log has at most one service, whatever kinds of peers it has: it may be a hub for browsers, a server of a mesh, a client of hubs, or all
of these, so that an entry from one side goes out on the other. A caller that brings connections does three things:

    async with open_service(log) as service:                  # shared: the first user starts it, the last one stops it
        connection = …                                        # serves service.handlers: a Handler for each protocol id
        async with service.attached(connection, PeerKind.MESH, pubsub_protocol="/meshsub/1.1.0"):
            await connection.wait_ended()                     # until either side closes it

`attached` tells the machine `Connected` and `Disconnected`. Several connections with one peer count as one peer. A banned peer's
connections are closed by `Connection.aclose`; ask `banned_until` of the host before attaching. Our own streams (push, sync, pubsub) are
opened on the attached connection. Handlers are called with that same object, and wait up to 5 s for it to be attached.
The log's host, pubsub_host.py, is what it shares with other logs.

Source: docs/spec/sync.md; docs/architecture.md, "One protocol, two drivers".
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

import trio

from ...broadcast import actions, events
from ...broadcast.allowance import MAY_NOT_PUSH, Allowance, Bringer
from ...broadcast.broadcast import LOG_TIMERS, Broadcast
from ...broadcast.events import PeerKind
from ...broadcast.spreading import BroadcastState
from ...codec.framing import encode_frame
from ...errors import ClosedError, DecodeError, LocalProtocolError, RemoteProtocolError, StreamReset
from ...limits import address_group
from ...pubsub.actions import SetTimer
from ...pubsub.events import TimerFired
from ...pubsub.router import ScoreParts
from ...pubsub.types import PeerId
from ...replica.log import Replica
from ...sync.result import SyncResult
from ...tasks.nursery import open_service_nursery
from ..ground.access import ALL, Rights
from ..ground.journal import note
from ..ground.protocol_ids import push_protocol, refusals_protocol
from ..reports.health import Health
from ..reports.observer import Observer
from ..transport.muxed import Connection, Handler, PromptHandler, Stream, Traffic
from .allowances import Allowances
from .driver import LogDriver, read_patiently
from .intake import IntakeWork
from .peers import PeerConnection, PeerConnectionState, ServedPeer, new_bucket
from .presence import PresenceStreams
from .pubsub_host import PubsubHost
from .push_stream import STALLED_S, PushStream
from .refusals import write_refusals
from .syncs import SyncStreams
from .timers import Timers

CAUGHT_UP_S = 2.0
"""A hub that has been silent for so long, while we want nothing from it, has nothing that we lack."""
INSERTING_MAX = 48
"""Entries of one peer that may be under way before its push stream is read on. The machine takes more, so it drops none."""
_LOOK_S = 0.02


class Service(LogDriver):
    """The service of one log; see the module's docstring. Made by `open_service`.

    Attributes:
        handlers: Serve this log's streams on a connection, by protocol id.
        users: How many blocks of `open_service` are open.
        hubs: URLs of the hubs that it is kept connected to.
    """

    def __init__(self, log: Replica, host: PubsubHost) -> None:
        machine = Broadcast(host.shared, log.topic, random.Random(secrets.randbits(128)))
        super().__init__(log, machine, self._act, host.tell)
        self.me = host.me
        self.host = host
        self.users = 0
        self.hubs: set[str] = set()
        self.health = Health(log)
        self.failed_dials = host.failed_dials
        self.allowances = Allowances(log)
        self.intake = IntakeWork(self)
        self._syncs = SyncStreams(self, self.intake)
        self.presence = PresenceStreams(self)
        self._push_protocol = push_protocol(log.topic)
        self.handlers: Mapping[str, Handler] = {
            self._push_protocol: self.connections.handler(self._serve_push, may_end=True),
            refusals_protocol(log.topic): PromptHandler(self.connections.handler(self._serve_refusals, may_end=True), is_deliberate=True),
            **self._syncs.handlers(),
            **self.presence.handlers(),
        }
        self._timers = Timers(lambda token: self.tell(TimerFired(token)))
        self._has_caught_up = False
        self._scope = trio.CancelScope()
        self._nursery: trio.Nursery

    # For those who bring connections

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
        """Use a connection for the length of a block. The caller ends the block when the connection is closed.

        The end of the block ends everything that uses the connection; it waits for a batch of a sync that is being inserted.

        Args:
            connection: Open, with its streams served by `handlers`, which are given this same object.
            pubsub_protocol: The one of the host's `protocols` that the peer speaks too; None without pubsub.
            has_push: Whether the peer speaks our push protocol; if not, it takes part in pubsub alone.
            is_counted: Whether the router counts the address when it counts peers by address: not loopback and proxies.
        """
        async with open_service_nursery() as nursery:
            peer = self.peers.get(connection.peer)
            is_first = peer is None
            if peer is None:
                origin = None if connection.address is None else address_group(connection.address)
                peer = ServedPeer(connection.peer, kind, new_bucket(trio.current_time()), origin, rights=rights)
                counted = origin if is_counted else None
                peer.bringer = Bringer(allowance, counted, may_push="push" in rights, is_client=kind is PeerKind.CLIENT)
                self.peers[peer.id] = peer
            if kind is not PeerKind.CLIENT:
                self.host.remember_said(peer)
            link = PeerConnection(connection, peer, nursery, time.time())
            peer.links.append(link)
            self.connections.add(connection, link)
            if kind is PeerKind.MESH:
                self.host.attach(connection, pubsub_protocol)
            try:
                if is_first:
                    address = connection.address if is_counted else None
                    connected = partial(events.Connected, peer.id, kind, connection.is_outbound, pubsub_protocol, address, has_push)
                    self.tell(connected(peer.origin, is_origin_shared=not is_counted, bringer=peer.bringer))
                elif pubsub_protocol is not None:
                    self.host.set_pubsub(peer.id, pubsub_protocol)
                yield link
            finally:
                peer.links.remove(link)
                if not peer.links:
                    del self.peers[peer.id]
                    self.tell(events.Disconnected(peer.id))
                if kind is PeerKind.MESH:
                    self.host.detach(connection)
                self.connections.remove(connection)
                self.figures.on_detached(connection)

    # For those who watch

    def state(self) -> BroadcastState:
        """Show the machine as values."""
        return self.machine.state()

    def scores(self) -> dict[PeerId, ScoreParts]:
        """Show the scores of the mesh's peers, with their parts; empty if the router keeps none."""
        return {peer.peer: peer.score for peer in self.host.shared.router.state().peers if peer.score is not None}

    def links(self) -> list[PeerConnectionState]:
        """Show the connections, in the order in which their peers connected."""
        return [state for peer in self.peers.values() for state in peer.states()]

    @property
    def waiting(self) -> int:
        """Entries from peers that wait to be verified."""
        return len(self.machine.intake)

    def traffic(self) -> dict[str, Traffic]:
        """Sum up the bytes that streams carried so far, by protocol."""
        return self.figures.traffic(link.connection for peer in self.peers.values() for link in peer.links)

    def has_caught_up(self) -> bool:
        """Whether we have everything that one of our hubs had, or have no hub. Once true with a hub, it stays true."""
        sizes = self.machine.state().sizes
        if self.hubs and not (self._has_caught_up or sizes["syncs"] or sizes["keys_per_peer"] or sizes["asked"]):
            settled = time.time() - CAUGHT_UP_S
            hubs = [peer for peer in self.peers.values() if peer.kind is PeerKind.HUB and peer.push is not None]
            self._has_caught_up = any(peer.counts.get("received") or peer.links[0].since < settled for peer in hubs)
        return self._has_caught_up or not self.hubs

    async def drain(self) -> None:
        """Wait until the queues of all push streams are written. The caller sets a deadline: a peer may never read."""
        for peer in list(self.peers.values()):
            if peer.push is not None:
                await peer.push.drain()

    async def close_clients(self) -> None:
        """Give up all clients, and wait until they are gone. The caller sets a deadline."""
        for peer in list(self.peers.values()):
            if peer.kind is PeerKind.CLIENT:
                _give_up(peer)
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
                self.host.join(self)
                self.tell(events.StartBroadcast(may_foresee=not (self.log.is_shared or self.log.has_rules)))
                task_status.started()
                try:
                    await trio.sleep_forever()
                finally:
                    self.stop()

    def stop(self) -> None:
        """Stop; nothing may be attached from now on. The log's next service may start at once."""
        if not self.has_ended:
            self.tell(events.StopBroadcast())
            self.host.leave(self)
            self.has_ended = True
            self._scope.cancel()

    # What the machine asks for

    def _act(self, action: actions.Action) -> None:
        match action:
            case actions.Push(peers, data):
                self._push(peers, encode_frame(data))
            case actions.InsertEntry():
                self.intake.on_under_way(action)
            case actions.VerifyBatch():
                self.intake.verify(action)
            case actions.InsertBatch():
                self.intake.insert(action)
            case actions.EntryDecided():
                self.intake.on_decided(action)
            case actions.BatchDecided():
                self.intake.on_batch_decided(action)
            case actions.EntriesAppended(entries):
                self.count("entries appended", len(entries))
            case actions.EntryForeseen():
                pass
            case SetTimer(token, at) if token in LOG_TIMERS:
                self._timers.set(token, at)
            case actions.AskLog():
                self._nursery.start_soon(self._ask, action)
            case actions.StartSync(id):
                if not self._start_with(id, partial(self._syncs.pull, action)):
                    self.tell(events.SyncFinished(id, SyncResult(reason="the peer has gone"), action.token))
            case actions.OpenPush(id):
                self._start_with(id, self._open_push)
            case actions.ClosePush(id, reason):
                peer = self.peers.get(id)
                if peer is not None and peer.push is not None:
                    note("push stream closed", level=logging.WARNING, peer=id, reason=reason)
                    peer.push.stream.reset()
            case actions.Ban():
                self._ban(action)
            case actions.Unwelcome(id, reason, is_blamed):
                peer = self.peers.get(id)
                if peer is not None and is_blamed:
                    self.on_refusals(peer, [reason])
                elif peer is not None:
                    peer.note_once("protocol", "message not understood", reason=reason)
            case actions.PushRefused(id, keys):
                peer = self.peers.get(id)
                if peer is not None:
                    peer.note_once("push", "client may not push")
                    peer.count("refused")
                    for key in keys:
                        peer.refusal_box.add(key, MAY_NOT_PUSH)
            case _:
                self.host.act(action)

    def _start_with(self, id: PeerId, task: Callable[[PeerConnection], Awaitable[None]]) -> bool:
        """Start a task on the oldest connection with a peer; False if the peer has gone."""
        peer = self.peers.get(id)
        if peer is not None:
            peer.links[0].start(task)
        return peer is not None

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
                self.tell(events.PushDropped(id))
            if push.queued_bytes and push.is_stalled():
                self.observed("slow", id, size=push.queued_bytes)
                note("slow reader dropped", level=logging.WARNING, peer=id, queued_bytes=push.queued_bytes)
                # In a mesh other logs may use the connection, and the machine may open another stream.
                if peer.kind is PeerKind.MESH:
                    push.stream.reset()
                else:
                    _give_up(peer)

    def _ban(self, action: actions.Ban) -> None:
        seconds = round(action.until - trio.current_time())
        note("peer banned", level=logging.WARNING, peer=action.peer, seconds=seconds, reason=action.reason, address=action.origin)
        self.figures.bans += 1
        self.host.on_banned(action, self)
        if action.peer in self.peers:
            for link in self.peers[action.peer].links:
                self._nursery.start_soon(link.connection.aclose)

    async def _ask(self, action: actions.AskLog) -> None:
        self.tell(events.LogAnswered(action.token, await read_patiently(self.log, action.plan)))

    # Push streams, and the one that tells a client its refusals

    async def _serve_refusals(self, link: PeerConnection, stream: Stream) -> None:
        """Tell a client which of its entries are refused, on the stream that it opened last. With that stream it gives the log up."""
        link.peer.hearing.cancel()
        with trio.CancelScope() as link.peer.hearing:
            await write_refusals(stream, link.peer.refusal_box)
            link.given_up.set()

    async def _serve_push(self, link: PeerConnection, stream: Stream) -> None:
        if link.peer.kind is PeerKind.HUB:
            raise RemoteProtocolError("a server opened a push stream to its client", peer=link.peer.id)
        await self._run_push(link.peer, stream)

    async def _end_without_push(self, link: PeerConnection) -> None:
        """Give up a client that opens no other push stream: one of the reference never does, and would not hear of anything any more."""
        link.peer.silence.cancel()
        with trio.CancelScope() as link.peer.silence:
            await trio.sleep(STALLED_S)
            if link.peer.push is None:
                link.given_up.set()

    async def _open_push(self, link: PeerConnection) -> None:
        stream = await self.open_stream(link, [self._push_protocol])
        if stream is None:
            self.tell(events.PushClosed(link.peer.id))
            return
        try:
            await self._run_push(link.peer, stream)
        except (StreamReset, ClosedError, DecodeError):
            stream.reset()

    async def _run_push(self, peer: ServedPeer, stream: Stream) -> None:
        """Run a push stream in place of the one before; the machine hears of its end however it ends."""
        push = PushStream(stream, partial(self._on_pushed, peer), partial(self._take_pushed, peer))
        before, peer.push = peer.push, push
        if before is not None:
            before.stream.reset()
        self.tell(events.PushOpened(peer.id))
        try:
            await push.run()
        except DecodeError as error:
            # The machine only judges messages, so it is given an empty one, which costs the peer the same.
            note("malformed push stream", level=logging.WARNING, peer=peer.id, reason=str(error))
            self.tell(events.PushReceived(peer.id, b""))
            raise
        finally:
            if peer.push is push:
                peer.push = None
                self.tell(events.PushClosed(peer.id))
                if peer.kind is PeerKind.CLIENT:
                    self._start_with(peer.id, self._end_without_push)

    async def _on_pushed(self, peer: ServedPeer, message: bytes) -> None:
        await self.wait_turn(peer, 1, INSERTING_MAX)
        peer.count("received")
        self.tell(events.PushReceived(peer.id, message))

    def _take_pushed(self, peer: ServedPeer, message: bytes) -> bool:
        """Hand on a message unless it has to wait."""
        if self.has_to_wait(peer, INSERTING_MAX):
            return False
        peer.count("received")
        self.tell(events.PushReceived(peer.id, message))
        return True


def _give_up(peer: ServedPeer) -> None:
    for link in peer.links:
        link.given_up.set()


_OBSERVED: WeakKeyDictionary[Replica, Path | None] = WeakKeyDictionary()
"""Logs whose facts are wanted, with the file that they are written to."""
_SERVICES: WeakKeyDictionary[Replica, Service] = WeakKeyDictionary()
"""The service of each log that is on the network."""
_HOSTS: WeakKeyDictionary[object, PubsubHost] = WeakKeyDictionary()
"""The host of each shelf's logs."""


def service_of(log: Replica) -> Service | None:
    """Return the service of a log, None if it is not on the network."""
    return _SERVICES.get(log)


@contextmanager
def observed(log: Replica, file: Path | None = None) -> Iterator[None]:
    """Record facts about the log's service for the length of a block. Enter the block before the service starts.

    Args:
        file: Where facts are written as well as to the observer's ring; None for nowhere.
    """
    _OBSERVED[log] = file
    try:
        yield
    finally:
        del _OBSERVED[log]


@asynccontextmanager
async def open_service(log: Replica, *, host: PubsubHost | None = None) -> AsyncIterator[Service]:
    """Use the log's service for the length of a block. The first user starts it, and it stops with the last one.

    Args:
        host: The host of a mesh, to be in that mesh; by default the shelf's host, or one for this log alone.

    Raises:
        LocalProtocolError: The service runs already, with another host.
    """
    service = _SERVICES.get(log)
    if service is None:
        together = log.kept_by or log
        service = Service(log, host or _HOSTS.get(together) or PubsubHost())
        if together is not log:
            _HOSTS.setdefault(together, service.host)
        if log in _OBSERVED:
            service.observer = Observer(service.me, service.topic, service.state().router.router, _OBSERVED[log])
        _SERVICES[log] = service
        await log.tasks.start(service.run)
    elif (host or service.host) is not service.host:
        raise LocalProtocolError(f"the log is on the network already, as {service.me}", hint="join the mesh before listening or connecting")
    service.users += 1
    try:
        yield service
    finally:
        service.users -= 1
        if not service.users:
            del _SERVICES[log]
            service.stop()
