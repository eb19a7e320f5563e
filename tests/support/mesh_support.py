"""Hosts and meshes in one process, over real sockets on loopback."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

import gossiplog
from gossiplog import Ed25519Signer, GossipLog
from gossiplog.net.ground.admission import HubLimits
from gossiplog.net.libp2p import Address, Host, Peering, PeerKey
from gossiplog.net.mesh import Mesh, MeshConfig, open_mesh
from gossiplog.net.transport.muxed import Handler

__all__ = ["BOTH", "TCP", "TOPIC", "WS", "a_host", "a_peer", "eventually", "free_place", "until_ended"]

TOPIC = "mesh.example.com"
TCP = Address.parse("/ip4/127.0.0.1/tcp/0")
WS = Address.parse("/ip4/127.0.0.1/tcp/0/ws")
BOTH = (TCP, WS)
PATIENCE_S = 60.0
"""For what takes milliseconds on a quiet machine."""


def free_place() -> Address:
    """A port that the system gives to nobody by itself, so that it can be listened on, left, and listened on again."""
    return Address("ip4", "127.0.0.1", secrets.SystemRandom().randrange(20_000, 32_000))


async def until_ended(peering: Peering) -> None:
    """What a host does with its connections here: nothing."""
    await peering.connection.wait_ended()


@asynccontextmanager
async def a_host(
    *listen: Address,
    key: PeerKey | None = None,
    handlers: Mapping[str, Handler] | None = None,
    serve: Callable[[Peering], Awaitable[None]] = until_ended,
    limits: HubLimits | None = None,
) -> AsyncIterator[Host]:
    """A host of its own key."""
    async with Host(key or PeerKey.generate(), serve=serve, handlers=handlers or {}, limits=limits).listening(listen) as host:
        yield host


@asynccontextmanager
async def a_peer(*bootstrap: Address, key: PeerKey | None = None, log: GossipLog | None = None, **config: Any) -> AsyncIterator[Mesh]:
    """A log in a mesh; in memory unless one is given."""
    if log is None:
        async with (
            gossiplog.open(":memory:", topic=TOPIC, signer=Ed25519Signer.generate()) as log,
            a_peer(*bootstrap, key=key, log=log, **config) as mesh,
        ):
            yield mesh
        return
    config.setdefault("listen", BOTH)
    async with open_mesh(log, key or PeerKey.generate(), MeshConfig(bootstrap=bootstrap, **config)) as mesh:
        yield mesh


async def eventually(holds: Callable[[], Any], within_s: float = PATIENCE_S) -> None:
    """Wait for what other tasks and sockets bring about; an answer may be awaitable."""
    with trio.fail_after(within_s):
        while True:
            answer = holds()
            if await answer if isinstance(answer, Awaitable) else answer:
                return
            await trio.sleep(0.005)
