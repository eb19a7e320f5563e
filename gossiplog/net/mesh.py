"""A log as a server among servers: a libp2p host, the log's service on its connections, and the search for peers.

    key = PeerKey.load_or_create(Path("app.db.peer.pem"))
    async with open_mesh(log, key, MeshConfig(listen=(Address.parse("/ip4/0.0.0.0/tcp/4001"),))) as mesh:
        …

A log that is served to browsers at the same time has one service for both, so what arrives on one side goes out on the other; open
the mesh first, as it brings the peer id and the router.

Source: docs/spec/sync.md, "Mode B".
"""

from __future__ import annotations

import logging
import random
import secrets
import ssl
from collections import ChainMap
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import trio

from ..broadcast import PeerKind
from ..errors import LocalProtocolError
from ..pubsub.params import MESH_PARAMS, EpisubParams, GossipsubParams
from ..pubsub.registry import make_router
from ..pubsub.types import PeerId
from ..pubsub.wire.rpc_codec import WireLimits
from ..replica.log import Replica
from ..tasks.nursery import open_service_nursery
from .discovery import Discovery
from .ground.admission import FreshKeys, HubLimits, Worth
from .ground.journal import note
from .ground.protocol_ids import presence_protocol, push_protocol
from .libp2p import Address, Host, Peering, PeerKey, open_host
from .libp2p.host import CONNECTIONS_MAX
from .service.peers import Peer
from .service.service import Service, open_service
from .transport.stream import Handler

__all__ = ["ROUTERS", "Mesh", "MeshConfig", "open_mesh"]

_STANDING_S = 60.0
"""Whoever was here for so long without a ban is no stranger when it comes back."""
_REFUSED_MAX = 4_096
"""Banned peers whose refusal has been logged, and is not again."""
ROUTERS = tuple(MESH_PARAMS)
"""What spreads entries. Peers with different ones push and sync, and nothing more; the reference speaks gossipsub."""


@dataclass(frozen=True, slots=True)
class MeshConfig:
    """How a log takes part in a mesh.

    Attributes:
        listen: Where; TCP and WebSocket may share a port. Empty: we only dial.
        announce: What others are told instead, behind a proxy or a translated address.
        bootstrap: Peers to begin with.
        router: One of `ROUTERS`.
        params: Of the router, scores included; by default `MESH_PARAMS`.
        target: Connections to have; more are taken, up to `limits`.
        walk_s: Seconds between searches for peers once the target is reached.
        limits: Of connections, those that we dialled counted in all.
        tls: Verifies the servers that we dial with TLS; by default as the system does.
        wire: Limits of pubsub's frames.
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


class Mesh:
    """Made by `open_mesh`.

    Attributes:
        host: Its connections.
        service: What the log does with them.
        discovery: Whom it knows.
    """

    def __init__(self, service: Service, discovery: Discovery) -> None:
        self.host: Host
        self.service = service
        self.discovery = discovery
        self._refused: set[PeerId] = set()
        self._fresh_keys = FreshKeys()
        self._push_protocol = push_protocol(service.topic)
        self._presence_protocol = presence_protocol(service.topic)

    async def serve(self, peering: Peering) -> None:
        """Use one connection until it ends."""
        connection = peering.connection
        if self.service.host.banned_until(connection.peer) is not None:
            if connection.peer not in self._refused:
                if len(self._refused) >= _REFUSED_MAX:
                    self._refused.clear()
                self._refused.add(connection.peer)
                note("refused a connection", peer=connection.peer, reason="the peer is banned")
            return
        now, address = trio.current_time(), connection.address
        if peering.is_counted and address is not None and not self._fresh_keys.may_enter(connection.peer, address, now):
            note("refused a connection", level=logging.DEBUG, peer=connection.peer, reason="a new peer from where a banned one came")
            return
        self.discovery.on_ready(peering)
        pubsub, has_push = self._pubsub_of(peering), self._push_protocol in peering.identity.protocols
        try:
            async with self.service.attached(
                connection, PeerKind.MESH, pubsub_protocol=pubsub, has_push=has_push, is_counted=peering.is_counted
            ) as link:
                self._say_unspoken(link.peer, pubsub, has_push=has_push)
                if self._presence_protocol in peering.identity.protocols:
                    link.start(self.service.presence.join)
                self.discovery.on_attached(peering)
                await connection.wait_ended()
        finally:
            self.discovery.on_closed(peering)
            until = self.service.host.banned_until(connection.peer)
            if until is None and trio.current_time() - now >= _STANDING_S:
                self._fresh_keys.on_left(connection.peer)
            elif until is not None and peering.is_counted and address is not None:
                self._fresh_keys.on_banned(connection.peer, address, until, trio.current_time())

    def _say_unspoken(self, peer: Peer, pubsub: str | None, *, has_push: bool) -> None:
        """Log, once a peer, what it does not speak without which entries come from it late, or never."""
        if pubsub is not None and has_push:
            return
        lacking = "push and sync of this topic" if not has_push else "our pubsub"
        lacking += ", nor our pubsub" if not has_push and pubsub is None else ""
        peer.note_once("unspoken", "peer speaks less than we do", lacking=lacking, pubsub=pubsub)
        self.service.observed("ignored", peer.id, type=self._push_protocol, reason=f"it does not speak {lacking}")

    def on_identity(self, peering: Peering) -> None:
        """Take note of what a peer says anew: an application may begin with pubsub, or end it, long after it connected."""
        self.discovery.on_identity(peering)
        self.service.host.set_pubsub(peering.connection.peer, self._pubsub_of(peering))

    def _pubsub_of(self, peering: Peering) -> str | None:
        spoken = peering.identity.protocols
        return next((protocol for protocol in self.service.host.protocols if protocol in spoken), None)


@asynccontextmanager
async def open_mesh(log: Replica, key: PeerKey, config: MeshConfig) -> AsyncIterator[Mesh]:
    """Take part in the mesh of a log's topic until the end of the block.

    Raises:
        CannotListen: One of the addresses cannot be listened on.
        LocalProtocolError: The router has another name, or the parameters are another router's or do not validate, or the log is on the
            network already under another peer id.
    """
    if config.router not in ROUTERS:
        raise LocalProtocolError(f"router {config.router!r}, expected one of {', '.join(ROUTERS)}")
    params = config.params or MESH_PARAMS[config.router]
    if type(params) is not type(MESH_PARAMS[config.router]):
        raise LocalProtocolError(f"{type(params).__name__}, which are not {config.router}'s parameters")
    if not params.is_validating:
        raise LocalProtocolError("is_validating = false, but a log validates what it passes on")
    async with open_service(log, me=key.id, make_router=partial(make_router, config.router, params), wire=config.wire) as service:
        rng = random.Random(secrets.randbits(128))
        discovery = Discovery(
            service, config.bootstrap, me=key.id, target=config.target, walk_s=config.walk_s, rng=rng, known_file=config.known_file
        )
        mesh = Mesh(service, discovery)
        handlers: Mapping[str, Handler] = ChainMap(dict(service.handlers), dict(service.host.handlers), dict(discovery.handlers))
        async with (
            open_host(
                key,
                config.listen,
                serve=mesh.serve,
                handlers=handlers,
                on_identity=mesh.on_identity,
                announce=config.announce,
                limits=config.limits,
                tls=config.tls,
                source=config.source,
            ) as mesh.host,
            open_service_nursery() as nursery,
        ):
            mesh.host.worth = lambda id: service.peers[id].worth if id in service.peers else Worth.NOTHING
            nursery.start_soon(discovery.run, mesh.host)
            try:
                with service.host.guarded_by(mesh.host.admission):
                    yield mesh
            finally:
                nursery.cancel_scope.cancel()
