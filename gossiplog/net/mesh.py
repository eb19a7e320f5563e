"""A log as a server among servers: a libp2p host, the log's service on its connections, and the search for peers.

    key = PeerKey.load_or_create(Path("app.db.peer.pem"))
    async with open_mesh(log, key, MeshConfig(listen=(Address.parse("/ip4/0.0.0.0/tcp/4001"),))) as mesh:
        …

A log that is served to browsers at the same time has one service for both, so an entry from one side goes out on the other. Open the mesh
first, because it decides the peer id and the router. The logs of a shelf take part while they are open: `open_mesh(shelf.logs, …)`.

Source: docs/spec/sync.md, "Mode B".
"""

from __future__ import annotations

import logging
import random
import secrets
import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import trio

from ..broadcast.events import PeerKind, PushChanged
from ..broadcast.spreading import PUBLISHED_BYTES_MAX
from ..entry.validation import validate
from ..errors import LocalProtocolError
from ..limits import keep_newest
from ..pubsub.events import PeerRecordLearned, Publish
from ..pubsub.params import MESH_PARAMS, EpisubParams, GossipsubParams
from ..pubsub.registry import make_router
from ..pubsub.rpc import Message
from ..pubsub.types import PeerId, Topic, hash_data
from ..pubsub.wire.rpc_codec import WireLimits
from ..replica.log import Replica
from ..replica.shelving import OpenLogs
from ..sync.rpc import Insert
from ..sync.wire import encode_event
from ..tasks.nursery import open_service_nursery
from .discovery import Discovery
from .ground.admission import FreshKeys, HubLimits, Worth
from .ground.journal import note
from .ground.protocol_ids import presence_protocol, push_protocol
from .libp2p import Address, Host, Peering, PeerKey
from .libp2p.host import CONNECTIONS_MAX
from .service.peers import PeerConnection, ServedPeer
from .service.pubsub_host import MakeRouter, PubsubHost
from .service.refusals import STREAMS_A_LOG
from .service.service import Service, open_service
from .transport.muxed import Connection, Handler
from .transport.yamux.machine import STREAMS_MAX

_STANDING_S = 60.0
"""A peer that was connected for so long without a ban is no stranger when it comes back."""
_LEAVE_S = 10.0
_REFUSED_MAX = 4_096
"""Banned peers whose refusal has been logged and is not logged again."""
ROUTERS = tuple(MESH_PARAMS)
"""The names of the routers. Peers with different routers only push and sync; the reference speaks gossipsub."""


@dataclass(frozen=True, slots=True)
class MeshConfig:
    """How a log takes part in a mesh.

    Attributes:
        listen: TCP and WebSocket may share a port. Empty: we only dial.
        announce: Addresses that peers are told instead, behind a proxy or a translated address.
        router: One of `ROUTERS`.
        params: The router's parameters with its scores; by default those in `MESH_PARAMS`.
        target: How many connections we look for; more are accepted, up to `limits`.
        walk_s: Seconds between searches for peers once the target is reached.
        limits: Limits of connections; the total includes those that we dialled.
        known_file: Where peers that were reached are remembered; None for nowhere.
        tls: Verifies the servers that we dial with TLS; by default as the system does.
        source: Which of this machine's addresses to dial from; None lets the system choose.
    """

    listen: tuple[Address, ...] = ()
    announce: tuple[Address, ...] = ()
    bootstrap: tuple[Address, ...] = ()
    router: str = "gossipsub"
    params: GossipsubParams | EpisubParams | None = None
    target: int = 16
    walk_s: float = 300.0
    limits: HubLimits = field(default_factory=lambda: HubLimits(connections_max=CONNECTIONS_MAX))
    known_file: Path | None = None
    tls: ssl.SSLContext | None = None
    wire: WireLimits = field(default_factory=WireLimits)
    source: str | None = None


@dataclass(eq=False, slots=True)
class _Served:
    """A connection that is in use.

    Attributes:
        nursery: Ends with the connection.
        present: The topics whose presence we speak on it.
        uses: By topic, a scope that ends the log's use of it, and an event that is set when that has ended.
    """

    peering: Peering
    nursery: trio.Nursery
    present: set[str] = field(default_factory=set)
    uses: dict[str, tuple[trio.CancelScope, trio.Event]] = field(default_factory=dict)

    def allow_streams(self) -> None:
        """Let either side have as many streams as the logs in use need."""
        self.peering.connection.muxer.streams_max = STREAMS_MAX + STREAMS_A_LOG * max(0, len(self.uses) - 1)


class Mesh:
    """Made by `open_mesh` with its logs, or by `open_mesh_host` for those that come later."""

    def __init__(self, pubsub: PubsubHost, discovery: Discovery) -> None:
        self.host: Host
        self.pubsub = pubsub
        self.services: dict[str, Service] = {}
        self.discovery = discovery
        self.handlers: dict[str, Handler] = dict(pubsub.handlers)
        self._served: dict[Connection, _Served] = {}
        self._refused: OrderedDict[PeerId, None] = OrderedDict()
        self._fresh_keys = FreshKeys()

    @property
    def service(self) -> Service:
        """The service of the log; of several logs, the first one's.

        Raises:
            LocalProtocolError: No log takes part at the moment.
        """
        for service in self.services.values():
            return service
        raise LocalProtocolError("no log takes part in the mesh", hint="open one of the shelf's")

    @asynccontextmanager
    async def joined(self, log: Replica) -> AsyncIterator[Service]:
        """Let a log take part for the length of a block, on all connections, present and future.

        If its service runs already, no other task runs between the call and the block: peers that connect afterwards learn of it at once.

        Raises:
            LocalProtocolError: The log is on the network already, with another host than the mesh's `pubsub`.
        """
        async with open_service(log, host=self.pubsub) as service:
            topic = service.topic
            handlers = {**service.handlers, **self.discovery.join(topic)}
            self.services[topic] = service
            self.handlers.update(handlers)
            self.host.on_handlers_changed()
            for served in self._served.values():
                served.nursery.start_soon(self._use, served, service)
            try:
                yield service
            finally:
                self.discovery.leave(topic)
                del self.services[topic]
                for protocol in handlers:
                    del self.handlers[protocol]
                if self.services:
                    self.host.on_handlers_changed()
                uses = [served.uses[topic] for served in self._served.values() if topic in served.uses]
                for scope, _ in uses:
                    scope.cancel()
                with trio.move_on_after(_LEAVE_S, shield=True):
                    for _, ended in uses:
                        await ended.wait()

    def publish(self, value: bytes) -> int:
        """Send a signed entry to the mesh of a topic that no log here follows, and return how many connected peers follow it.

        This is pubsub's fan-out for entries made elsewhere. Nothing is stored here or acknowledged, peers cannot fetch the entry from us,
        and they accept it only once they have its parents. If the result is 0 nothing was sent; publish it later.

        Raises:
            LocalProtocolError: The entry is not valid or too large to be published, or a log here follows its topic.
        """
        verdict = validate(value)
        if not verdict.accepted or verdict.entry is None:
            raise LocalProtocolError(f"not an entry that peers accept: {verdict.reason}")
        topic, data = Topic(verdict.entry.topic), encode_event(Insert(verdict.entry.key, value))
        if topic in self.services:
            raise LocalProtocolError(f"a log here follows {topic}", hint="insert the entry there")
        if len(data) > PUBLISHED_BYTES_MAX:
            raise LocalProtocolError(f"{len(data):,} bytes, at most {PUBLISHED_BYTES_MAX:,} can be published")
        followers = sum(topic in peer.topics for peer in self.pubsub.shared.router.state().peers)
        if followers:
            self.pubsub.tell(Publish(Message(hash_data(data), topic, data)))
        return followers

    async def serve(self, peering: Peering) -> None:
        """Use one connection until it ends."""
        connection = peering.connection
        if self.pubsub.banned_until(connection.peer) is not None:
            if connection.peer not in self._refused:
                keep_newest(self._refused, connection.peer, None, _REFUSED_MAX)
                note("refused a connection", peer=connection.peer, reason="the peer is banned")
            return
        now, address = trio.current_time(), connection.address
        if peering.is_counted and address is not None and not self._fresh_keys.may_enter(connection.peer, address, now):
            note("refused a connection", level=logging.DEBUG, peer=connection.peer, reason="a new peer from the address of a banned one")
            return
        self.discovery.on_ready(peering)
        try:
            async with open_service_nursery() as nursery:
                served = self._served[connection] = _Served(peering, nursery)
                for service in list(self.services.values()):
                    await nursery.start(self._use, served, service)
                if peering.identity.record is not None:
                    self.pubsub.tell(PeerRecordLearned(connection.peer, peering.identity.record))
                await connection.wait_ended()
        finally:
            self._served.pop(connection, None)
            self.discovery.on_closed(peering)
            until = self.pubsub.banned_until(connection.peer)
            if until is None and trio.current_time() - now >= _STANDING_S:
                self._fresh_keys.on_left(connection.peer)
            elif until is not None and peering.is_counted and address is not None:
                self._fresh_keys.on_banned(connection.peer, address, until, trio.current_time())

    async def _use(self, served: _Served, service: Service, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Have one log use a connection until the log leaves or the connection ends."""
        peering, topic, ended = served.peering, service.topic, trio.Event()
        if topic in served.uses or self.services.get(topic) is not service:
            task_status.started()
            return
        spoken, pubsub = peering.identity.protocols, self._pubsub_of(peering)
        has_push = push_protocol(topic) in spoken
        try:
            with trio.CancelScope() as scope:
                served.uses[topic] = scope, ended
                served.allow_streams()
                async with service.attached(
                    peering.connection, PeerKind.MESH, pubsub_protocol=pubsub, has_push=has_push, is_counted=peering.is_counted
                ) as link:
                    self._say_unspoken(service, link.peer, pubsub, has_push=has_push)
                    self._join_presence(served, service, link)
                    task_status.started()
                    await trio.sleep_forever()
        finally:
            del served.uses[topic]
            served.allow_streams()
            served.present.discard(topic)
            ended.set()

    def _say_unspoken(self, service: Service, peer: ServedPeer, pubsub: str | None, *, has_push: bool) -> None:
        """Log, once a peer, which protocols it lacks, because its entries then come late or never."""
        if (pubsub is not None and has_push) or len(self.services) > 1:
            return  # Few peers have all of several topics.
        lacking = "push and sync of this topic" if not has_push else "our pubsub"
        lacking += ", nor our pubsub" if not has_push and pubsub is None else ""
        peer.note_once("unspoken", "peer speaks less than we do", lacking=lacking, pubsub=pubsub)
        service.observed("ignored", peer.id, type=push_protocol(service.topic), reason=f"it does not speak {lacking}")

    def on_identity(self, peering: Peering) -> None:
        """Take a peer's new identity: it may start or stop pubsub or a topic long after it connected."""
        self.discovery.on_identity(peering)
        self.pubsub.set_pubsub(peering.connection.peer, self._pubsub_of(peering))
        served = self._served.get(peering.connection)
        for topic, service in self.services.items():
            service.tell(PushChanged(peering.connection.peer, push_protocol(topic) in peering.identity.protocols))
            link = service.connections.get(peering.connection)
            if served is not None and link is not None:
                self._join_presence(served, service, link)

    def _join_presence(self, served: _Served, service: Service, link: PeerConnection) -> None:
        if presence_protocol(service.topic) in served.peering.identity.protocols and service.topic not in served.present:
            served.present.add(service.topic)
            link.start(service.presence.join)

    def _pubsub_of(self, peering: Peering) -> str | None:
        spoken = peering.identity.protocols
        return next((protocol for protocol in self.pubsub.protocols if protocol in spoken), None)

    def worth_of(self, id: PeerId) -> Worth:
        """Return what a peer was good for so far, in its best log."""
        found = [service.peers[id].worth for service in self.services.values() if id in service.peers]
        return max(found, default=Worth.NOTHING)


@asynccontextmanager
async def open_mesh(logs: Replica | OpenLogs, key: PeerKey, config: MeshConfig) -> AsyncIterator[Mesh]:
    """Take part in the mesh of a log's topic until the end of the block.

    Args:
        logs: A log, or those of a shelf, each of which takes part while it is open.

    Raises:
        CannotListen: We cannot listen on one of the addresses.
        LocalProtocolError: As `router_of`, or the log is on the network already with another peer id.
    """
    pubsub = PubsubHost(key.id, router_of(config), config.wire)
    async with AsyncExitStack() as stack:
        if isinstance(logs, Replica):
            await stack.enter_async_context(open_service(logs, host=pubsub))  # before the first connection comes
        mesh = await stack.enter_async_context(open_mesh_host(pubsub, key, config))
        await stack.enter_async_context(mesh.joined(logs) if isinstance(logs, Replica) else logs.accompanied(mesh.joined))
        yield mesh


def router_of(config: MeshConfig) -> MakeRouter:
    """Return a function that makes the router of a mesh.

    Raises:
        LocalProtocolError: There is no router of this name, or the parameters are another router's or turn validation off.
    """
    if config.router not in ROUTERS:
        raise LocalProtocolError(f"router {config.router!r}, expected one of {', '.join(ROUTERS)}")
    params = config.params or MESH_PARAMS[config.router]
    if type(params) is not type(MESH_PARAMS[config.router]):
        raise LocalProtocolError(f"{type(params).__name__}, which are not {config.router}'s parameters")
    if not params.is_validating:
        raise LocalProtocolError("is_validating = false, but a log validates what it passes on")
    return partial(make_router, config.router, params)


@asynccontextmanager
async def open_mesh_host(pubsub: PubsubHost, key: PeerKey, config: MeshConfig) -> AsyncIterator[Mesh]:
    """Take part in meshes until the end of the block, with the logs for which `Mesh.joined` is called.

    Args:
        pubsub: Made with the peer id of the key and `router_of(config)`.

    Raises:
        CannotListen: We cannot listen on one of the addresses.
    """
    rng = random.Random(secrets.randbits(128))
    discovery = Discovery(pubsub, config.bootstrap, target=config.target, walk_s=config.walk_s, rng=rng, known_file=config.known_file)
    mesh = Mesh(pubsub, discovery)
    host = mesh.host = Host(
        key,
        serve=mesh.serve,
        handlers=mesh.handlers,
        on_identity=mesh.on_identity,
        announce=config.announce,
        limits=config.limits,
        tls=config.tls,
        source=config.source,
    )
    host.worth = mesh.worth_of
    async with pubsub.running(), host.listening(config.listen), open_service_nursery() as nursery:
        nursery.start_soon(discovery.run, host)
        with pubsub.guarded_by(host.admission):
            yield mesh
