"""Our routers in a mesh with js-libp2p's gossipsub: each protocol version that it speaks, TCP and WebSocket, dialled by either."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from interop_support import TOPIC, Reference, chain, run_reference
from mesh_interop_support import returned, until

import gossiplog
from gossiplog import Ed25519Signer, Entry, GossipLog
from gossiplog.net.discovery.kademlia import ask_closer
from gossiplog.net.ground.protocol_ids import kad_protocol
from gossiplog.net.libp2p import Address, PeerKey
from gossiplog.net.libp2p.identify import measure_ping
from gossiplog.net.mesh import Mesh, MeshConfig, open_mesh
from gossiplog.pubsub.types import peer_id_bytes
from gossiplog.sync.rpc import Insert
from gossiplog.sync.wire import encode_event

pytestmark = pytest.mark.slow

TRANSPORTS = {"tcp": "/ip4/127.0.0.1/tcp/0", "ws": "/ip4/127.0.0.1/tcp/0/ws"}
CASES = [
    ("/meshsub/1.2.0", "tcp", "we dial"),
    ("/meshsub/1.2.0", "ws", "it dials"),
    ("/meshsub/1.1.0", "ws", "we dial"),
    ("/meshsub/1.1.0", "tcp", "it dials"),
    ("/meshsub/1.0.0", "tcp", "we dial"),
    ("/meshsub/1.0.0", "ws", "it dials"),
    ("/floodsub/1.0.0", "ws", "we dial"),
    ("/floodsub/1.0.0", "tcp", "it dials"),
]


@asynccontextmanager
async def our_peer() -> AsyncIterator[tuple[GossipLog, Mesh]]:
    listen = tuple(Address.parse(text) for text in TRANSPORTS.values())
    async with (
        gossiplog.open(":memory:", topic=TOPIC, signer=Ed25519Signer.generate()) as log,
        open_mesh(log, PeerKey.generate(), MeshConfig(listen=listen, walk_s=3600)) as mesh,
    ):
        yield log, mesh


def event(entry: Entry) -> bytes:
    return encode_event(Insert(entry.key, entry.value))


async def state_of(theirs: Reference) -> dict[str, Any]:
    state: dict[str, Any] = await theirs.ask("pubsubState", topic=TOPIC)
    return state


async def received_by(theirs: Reference, data: bytes) -> bool:
    return data.hex() in (await state_of(theirs))["received"]


async def join(mesh: Mesh, theirs: Reference, transport: str, direction: str, **options: Any) -> None:
    """Start the other side, connect, and wait until each knows that the other is in the topic."""
    found = await theirs.ask("startPubsub", topic=TOPIC, listen=[TRANSPORTS[transport]], **options)
    if direction == "we dial":
        address = Address.parse(found["addresses"][0])
        await mesh.host.connect(address.peer, [address])
    else:
        (address,) = (each for each in mesh.host.announced if each.is_websocket == (transport == "ws"))
        await theirs.ask("dial", address=str(address))
    await until(lambda: knows(mesh, theirs, found["peer"]))


async def knows(mesh: Mesh, theirs: Reference, peer: str) -> bool:
    there = await state_of(theirs)
    is_known_here = any(each.peer == peer and TOPIC in each.topics for each in mesh.service.state().router.peers)
    return is_known_here and mesh.host.id in there["subscribers"]


@pytest.mark.parametrize(("protocol", "transport", "direction"), CASES)
async def test_messages_go_both_ways_over_each_version(installed_reference: None, protocol: str, transport: str, direction: str) -> None:
    (theirs_entry,) = chain([b"\x01"])[:1]
    async with our_peer() as (log, mesh), run_reference("mesh.mjs") as theirs:
        await join(mesh, theirs, transport, direction, protocol=protocol)
        assert (await state_of(theirs))["streams"] == [protocol]
        assert [peer.protocol for peer in mesh.service.state().router.peers] == [protocol]
        ours_entry = await log.append({"from": "here"})
        await until(lambda: received_by(theirs, event(ours_entry)))
        assert await theirs.ask("publish", topic=TOPIC, data=event(theirs_entry).hex()) == 1
        await until(lambda: log.has(theirs_entry.id))
        (peer,) = mesh.host.peers
        assert mesh.service.state().offences == {}
        connection = mesh.host.connection_with(peer)
        assert connection is not None
        assert 0 < await measure_ping(connection) < 5


async def test_a_message_passes_through_us_from_one_to_the_other(installed_reference: None) -> None:
    entries = chain([b"\x01", b"\x02"])
    async with our_peer() as (log, mesh), AsyncExitStack() as stack:
        one, other = [await stack.enter_async_context(run_reference("mesh.mjs")) for _ in range(2)]
        await join(mesh, one, "tcp", "it dials")
        await join(mesh, other, "ws", "it dials")
        await until(lambda: is_grafted(mesh, 2))
        for entry in entries:
            await one.ask("publish", topic=TOPIC, data=event(entry).hex())
            await until(lambda entry=entry: received_by(other, event(entry)))
        assert await log.count() == len(entries)


async def is_grafted(mesh: Mesh, peers: int) -> bool:
    (topic,) = mesh.service.state().router.topics
    return len(topic.full_message) == peers


async def test_kademlia_is_asked_and_answered_both_ways(installed_reference: None) -> None:
    protocol = kad_protocol(TOPIC)
    async with our_peer() as (_, near), our_peer() as (_, far), run_reference("mesh.mjs") as theirs:
        await far.host.connect(near.host.id, near.host.announced)
        await join(near, theirs, "tcp", "it dials", kad=protocol)
        await until(lambda: returned(len(near.discovery.table) == 2))
        wanted = peer_id_bytes(far.host.id)
        closer = await theirs.ask("closest", key=wanted.hex())
        answered = {each["id"]: each["multiaddrs"] for each in closer}
        assert answered[far.host.id] == [str(address.of(None)) for address in far.host.announced]

        (peer,) = (peer for peer in near.host.peers if peer != far.host.id)
        connection = near.host.connection_with(peer)
        assert connection is not None
        found = await ask_closer(connection, protocol, wanted)
        assert far.host.id in found
