"""Mode B, servers over libp2p: this package and the reference, as peers of one mesh. Each test runs over both directions of dialling."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from interop_support import TOPIC, Reference, chain, portable_payloads, random_payload, run_reference
from mesh_interop_support import returned, until

import gossiplog
from gossiplog import Ed25519Signer, GossipLog
from gossiplog.codec import pcf
from gossiplog.net.ground.protocol_ids import presence_protocol
from gossiplog.net.libp2p import Address, PeerKey
from gossiplog.net.mesh import Mesh, MeshConfig, open_mesh
from gossiplog.pubsub.rpc import Rpc

pytestmark = pytest.mark.slow

LISTEN = (Address.parse("/ip4/127.0.0.1/tcp/0/ws"),)
WS = "/ip4/127.0.0.1/tcp/0/ws"
DIRECTIONS = ("we dial", "it dials")


@pytest.fixture
async def theirs(installed_reference: None) -> AsyncIterator[Reference]:
    async with run_reference("mesh.mjs") as peer:
        await peer.ask("open", topic=TOPIC)
        yield peer


@pytest.fixture
async def ours() -> AsyncIterator[GossipLog]:
    async with gossiplog.open(":memory:", topic=TOPIC, signer=Ed25519Signer.from_seed(b"\7" * 32)) as log:
        yield log


@asynccontextmanager
async def meshed(ours: GossipLog, theirs: Reference, direction: str) -> AsyncIterator[Mesh]:
    """Both on the network, and one connection between them."""
    found = await theirs.ask("start", listen=[WS])
    async with open_mesh(ours, PeerKey.generate(), MeshConfig(listen=LISTEN, walk_s=3600)) as mesh:
        await connect(mesh, theirs, found, direction)
        yield mesh


async def connect(mesh: Mesh, theirs: Reference, found: dict[str, Any], direction: str) -> None:
    if direction == "we dial":
        address = Address.parse(found["addresses"][0])
        await mesh.host.connect(address.peer, [address])
    else:
        await theirs.ask("dial", address=str(mesh.host.announced[0]))


async def is_converged(ours: GossipLog, theirs: Reference) -> bool:
    state, root = await theirs.ask("state"), await ours.root()
    same_root = state["root"] == {"level": root.level, "hash": root.hash.hex()}
    return bool(same_root and state["count"] == await ours.count() and state["heads"] == await ours.heads())


async def is_subscribed(mesh: Mesh, theirs: Reference) -> bool:
    """Both know that the other wants the topic's messages, and are in each other's mesh."""
    there = await theirs.ask("pubsubState", topic=TOPIC)
    (topic,) = mesh.service.state().router.topics
    return bool(there["mesh"] and topic.full_message)


async def append_there(theirs: Reference, rng: random.Random, count: int) -> None:
    payloads = [pcf.encode(random_payload(rng)).hex() for _ in range(count)]
    await theirs.ask("append", seed=(b"\3" * 32).hex(), payloads=payloads)


@pytest.mark.parametrize("direction", DIRECTIONS)
async def test_what_was_appended_apart_and_together_is_the_same_on_both_sides(ours: GossipLog, theirs: Reference, direction: str) -> None:
    rng = random.Random(1)
    for _ in range(30):
        await ours.append(random_payload(rng))
    await append_there(theirs, rng, 30)
    async with meshed(ours, theirs, direction) as mesh:
        await until(lambda: is_converged(ours, theirs))

        async def append_here() -> None:
            for _ in range(50):
                await ours.append(random_payload(rng))
                await trio.sleep(0.01)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(append_here)
            nursery.start_soon(append_there, theirs, random.Random(2), 50)
        await until(lambda: is_converged(ours, theirs))
        assert await ours.count() == 160
        counts, accepted = (await theirs.ask("state"))["counts"], mesh.service.counts["entries accepted"]
    # What was apart came by sync, once each way; what was appended while connected came by gossip, nearly all of it.
    assert counts["own"] == 80
    assert counts["pubsub"] + counts["sync"] == 80
    assert counts["pubsub"] >= 45
    assert accepted >= 45
    assert counts["rejected"] == 0


@pytest.mark.parametrize("direction", DIRECTIONS)
async def test_a_connection_that_is_lost_is_made_again_and_both_catch_up(ours: GossipLog, theirs: Reference, direction: str) -> None:
    rng = random.Random(3)
    async with meshed(ours, theirs, direction) as mesh:
        await until(lambda: is_subscribed(mesh, theirs))
        first = mesh.host.peerings[0].connection
        await theirs.ask("hangUp")
        await first.wait_ended()
        for _ in range(10):
            await ours.append(random_payload(rng))
        await append_there(theirs, rng, 10)
        # Nobody dials but the search for peers, which knows where the other one listens.
        await until(lambda: is_converged(ours, theirs))
        assert await ours.count() == 20


@pytest.mark.parametrize("direction", DIRECTIONS)
async def test_presence_is_not_told_to_who_does_not_speak_it(ours: GossipLog, theirs: Reference, direction: str) -> None:
    protocol = presence_protocol(TOPIC)
    async with (
        meshed(ours, theirs, direction) as mesh,
        gossiplog.open(":memory:", topic=TOPIC, signer=Ed25519Signer.from_seed(b"\6" * 32)) as third,
        open_mesh(third, PeerKey.generate(), MeshConfig(listen=LISTEN, bootstrap=mesh.host.announced, walk_s=3600)),
    ):
        await until(lambda: is_subscribed(mesh, theirs))
        for number in range(20):
            await ours.presence.set({"cursor": number}, ttl_s=60)
        await until(lambda: returned(third.presence.states == ours.presence.states != {}))
        by_peer = {each.connection.peer: each for each in mesh.host.peerings}
        (reference,) = [each for each in by_peer.values() if protocol not in each.identity.protocols]
        assert protocol not in reference.connection.traffic
        await append_there(theirs, random.Random(4), 5)
        await ours.append("and on")
        await until(lambda: is_converged(ours, theirs))
        assert protocol not in reference.connection.traffic
        assert (await theirs.ask("state"))["counts"]["rejected"] == 0


@pytest.mark.parametrize("direction", DIRECTIONS)
async def test_entries_of_every_kind_travel_both_ways(ours: GossipLog, theirs: Reference, direction: str) -> None:
    entries = chain(portable_payloads())
    half = len(entries) // 2
    await ours.insert_many([entry.value for entry in entries[:half]])
    await theirs.ask("insert", values=[entry.value.hex() for entry in entries])
    async with meshed(ours, theirs, direction):
        await until(lambda: is_converged(ours, theirs))
    assert await ours.count() == len(entries)


@pytest.mark.parametrize("direction", DIRECTIONS)
async def test_a_message_without_its_parent_is_ignored_there_and_syncs(ours: GossipLog, theirs: Reference, direction: str) -> None:
    first, second = chain([b"\x01"])
    async with meshed(ours, theirs, direction) as mesh:
        await until(lambda: is_subscribed(mesh, theirs))
        peer = next(iter(mesh.service.host.peers.values()))
        put, lost = peer.rpcs.put, []

        def put_and_lose_the_first(rpc: Rpc, *, is_urgent: bool) -> Rpc | None:
            if rpc.messages and not lost:
                lost.append(rpc)
                return None
            return put(rpc, is_urgent=is_urgent)

        peer.rpcs.put = put_and_lose_the_first  # type: ignore[method-assign]
        await ours.insert_many([first.value])
        await until(lambda: returned(lost))
        await ours.insert_many([second.value])
        await until(lambda: is_converged(ours, theirs))
    counts = (await theirs.ask("state"))["counts"]
    assert (counts["ignored"], counts["rejected"], counts["pubsub"], counts["sync"]) == (1, 0, 0, 2)


@pytest.mark.parametrize("direction", DIRECTIONS)
async def test_a_message_without_its_parent_is_ignored_here_and_syncs(ours: GossipLog, theirs: Reference, direction: str) -> None:
    first, second = chain([b"\x01"])
    async with meshed(ours, theirs, direction) as mesh:
        await until(lambda: is_subscribed(mesh, theirs))
        await theirs.ask("insertQuietly", values=[first.value.hex()])
        await theirs.ask("insert", values=[second.value.hex()])
        await until(lambda: is_converged(ours, theirs))
        (peer,) = mesh.service.peers.values()
        assert mesh.service.counts["entries ignored"] == 1
        assert peer.counts["entries pulled"] == 2
        assert mesh.service.state().offences == {}


async def test_ten_thousand_entries_are_pulled_each_way(ours: GossipLog, theirs: Reference) -> None:
    entries = chain([pcf.encode({"n": n, "text": "x" * 60}) for n in range(5_000)])
    await ours.insert_many([entry.value for entry in entries])
    async with meshed(ours, theirs, "it dials"):
        await until(lambda: is_converged(ours, theirs), wait_s=420)
    counts = (await theirs.ask("state"))["counts"]
    assert (counts["sync"], counts["rejected"]) == (10_000, 0)
    await theirs.ask("stop")
    async with gossiplog.open(":memory:", topic=TOPIC) as empty, meshed(empty, theirs, "we dial") as mesh:
        await until(lambda: is_converged(empty, theirs), wait_s=420)
        (peer,) = mesh.service.peers.values()

        async def is_counted() -> bool:
            return peer.counts["entries pulled"] == 10_000

        # The last session may still be at its end.
        await until(is_counted)
        # The reference's server ends each session after two seconds, so it took several.
        print(f"sessions: {peer.counts['syncs']}")
