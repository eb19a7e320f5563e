"""Our peer in a mesh with go-libp2p-pubsub and rust-libp2p's gossipsub, which dial or are dialled."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from interop_support import TOPIC, Reference, chain, run_program
from mesh_interop_support import returned, until
from native_support import build_go, build_rust

import gossiplog
from gossiplog import Ed25519Signer, Entry, GossipLog
from gossiplog.broadcast.spreading import PUBLISHED_BYTES_MAX
from gossiplog.codec import pcf
from gossiplog.entry import sign_entry
from gossiplog.net.libp2p import Address, PeerKey
from gossiplog.net.mesh import Mesh, MeshConfig, open_mesh, open_mesh_host, router_of
from gossiplog.net.service.pubsub_host import PubsubHost
from gossiplog.pubsub.actions import SendRpc
from gossiplog.pubsub.params import MESH_PARAMS
from gossiplog.pubsub.router import PeerState
from gossiplog.pubsub.rpc import Extensions, Message, Rpc
from gossiplog.pubsub.types import PeerId, Topic
from gossiplog.pubsub.wire.rpc_codec import Wire, WireLimits
from gossiplog.sync.rpc import Insert
from gossiplog.sync.wire import encode_event

pytestmark = pytest.mark.slow

LISTEN = "/ip4/127.0.0.1/tcp/0"
DIRECTIONS = ("we dial", "it dials")
NEWEST = "/meshsub/1.3.0"


@pytest.fixture(params=("go", "rust"))
def program(request: pytest.FixtureRequest) -> str:
    return build_go() if request.param == "go" else build_rust()


@pytest.fixture
def go_program() -> str:
    return build_go()


@pytest.fixture
def rust_program() -> str:
    return build_rust()


@asynccontextmanager
async def our_peer(**config: Any) -> AsyncIterator[tuple[GossipLog, Mesh]]:
    listen = (Address.parse(LISTEN),)
    async with (
        gossiplog.open(":memory:", topic=TOPIC, signer=Ed25519Signer.generate()) as log,
        open_mesh(log, PeerKey.generate(), MeshConfig(listen=listen, walk_s=3600, **config)) as mesh,
    ):
        yield log, mesh


async def connect(mesh: Mesh, theirs: Reference, direction: str, **options: Any) -> PeerId:
    """Start the other side without pubsub, and connect."""
    await theirs.ask("start", listen=[LISTEN], **options)
    found = await until(lambda: addresses(theirs))
    address = Address.parse(found[0])
    assert address.peer is not None
    if direction == "we dial":
        await mesh.host.connect(address.peer, [address])
    else:
        await theirs.ask("dial", address=str(mesh.host.announced[0]))
    await until(lambda: returned(mesh.host.connection_with(address.peer)))
    return address.peer


async def addresses(theirs: Reference) -> list[str]:
    found: list[str] = (await theirs.ask("state"))["addresses"]
    return found


async def join(mesh: Mesh, theirs: Reference, direction: str, **options: Any) -> PeerId:
    """Connect, start pubsub there, and wait until each knows that the other is in the topic."""
    peer = await connect(mesh, theirs, direction)
    await theirs.ask("startPubsub", topic=TOPIC, **options)
    await until(lambda: knows(mesh, theirs, peer))
    return peer


async def knows(mesh: Mesh, theirs: Reference, peer: str) -> bool:
    is_known_here = any(each.peer == peer and TOPIC in each.topics for each in mesh.service.state().router.peers)
    return is_known_here and mesh.host.id in (await theirs.ask("state"))["subscribers"]


def peer_state(mesh: Mesh) -> PeerState:
    (state,) = mesh.service.state().router.peers
    return state


async def exchange(log: GossipLog, theirs: Reference) -> None:
    """Have an entry go each way."""
    ours = await log.append("from here")
    await until(lambda: has(theirs, [event(ours)]))
    entry = chain([b"\x01"])[0]
    await theirs.ask("publish", topic=TOPIC, data=event(entry).hex())
    await until(lambda: log.has(entry.id))


async def has(theirs: Reference, messages: Iterable[bytes]) -> bool:
    received = set((await theirs.ask("state"))["received"])
    return received >= {sha256(data).hexdigest() for data in messages}


def message_of(data: bytes) -> Message:
    return Message.of(Topic(TOPIC), data)


def event(entry: Entry) -> bytes:
    return encode_event(Insert(entry.key, entry.value))


@pytest.mark.parametrize("direction", DIRECTIONS)
async def test_five_topics_take_one_connection_and_one_stream_each_way(program: str, direction: str) -> None:
    """In four of them both are, in the fifth they only publish, by fan-out, until they join it."""
    topics = [f"room-{number}.example.com" for number in range(5)]
    key, config = PeerKey.generate(), MeshConfig(listen=(Address.parse(LISTEN),), walk_s=3600)
    async with run_program(program) as theirs, AsyncExitStack() as stack:
        pubsub = PubsubHost(key.id, router_of(config))
        mesh = await stack.enter_async_context(open_mesh_host(pubsub, key, config))
        logs = dict[str, GossipLog]()
        for topic in topics:
            logs[topic] = await stack.enter_async_context(gossiplog.open(":memory:", topic=topic, signer=Ed25519Signer.generate()))
            await stack.enter_async_context(mesh.joined(logs[topic]))
        peer = await connect(mesh, theirs, direction)

        async def theirs_in(joined: list[str]) -> bool:
            states = pubsub.shared.router.state().topics
            return {state.topic for state in states if peer in state.full_message} == set(joined)

        async def exchange_in(topic: str, seed: bytes) -> None:
            ours = await logs[topic].append("from here")
            await until(lambda: has(theirs, [event(ours)]))
            await receive_in(topic, seed)

        async def receive_in(topic: str, seed: bytes) -> None:
            entry = chain([seed], topic=topic)[0]
            await theirs.ask("publish", topic=topic, data=event(entry).hex())
            await until(lambda: logs[topic].has(entry.id))

        for topic in topics[:4]:
            await theirs.ask("startPubsub", topic=topic)
        await until(lambda: theirs_in(topics[:4]))
        for topic in topics[:4]:
            await exchange_in(topic, b"\x01")
        await receive_in(topics[4], b"\x02")
        await theirs.ask("startPubsub", topic=topics[4])
        await until(lambda: theirs_in(topics))
        for topic in topics:
            await exchange_in(topic, b"\x03")
        # In a sixth we publish what was made elsewhere, and follow nothing.
        away = "away.example.com"
        first, second = chain([b"\x04", b"\x05"], topic=away)[:2]
        assert mesh.publish(first.value) == 0
        await theirs.ask("startPubsub", topic=away)

        async def is_followed() -> bool:
            return away in peer_state(mesh).topics

        await until(is_followed)
        assert mesh.publish(second.value) == 1
        await until(lambda: has(theirs, [event(second)]))
        assert not await has(theirs, [event(first)])
        assert len(mesh.host.peerings) == 1
        assert [link.streams for link in pubsub.peers[peer].links] == [1]
        assert pubsub.shared.blamed.peers.counts() == {}
        assert all(score is None or score.total >= 0 for score in (each.score for each in pubsub.shared.router.state().peers))


@pytest.mark.parametrize("direction", DIRECTIONS)
async def test_application_that_starts_pubsub_after_connecting_takes_part(program: str, direction: str) -> None:
    entries = chain([pcf.encode("x" * 56_000), b"\x01"])
    async with our_peer() as (log, mesh), run_program(program) as theirs:
        peer = await join(mesh, theirs, direction)
        first = await log.append({"from": "here"})
        await until(lambda: has(theirs, [event(first)]))
        # Up to what rust-libp2p takes whatever comes behind it, both ways.
        large = await log.append("y" * 56_000)
        await until(lambda: has(theirs, [event(large)]))
        for entry in entries[:2]:
            await theirs.ask("publish", topic=TOPIC, data=event(entry).hex())
            await until(lambda entry=entry: log.has(entry.id))
        assert mesh.service.state().offences == {}
        assert peer_state(mesh).protocol == NEWEST
        identified = (await theirs.ask("state"))["identified"][mesh.host.id]
        assert identified["agent"].startswith("gossiplog-python/")
        (connection,) = (each.connection for each in mesh.host.peerings if each.connection.peer == peer)
        assert connection.address == "127.0.0.1"
        assert identified["observed"].startswith("/ip4/127.0.0.1/tcp/")


async def test_large_rpc_arrives_in_frames_that_are_taken(program: str) -> None:
    messages = [message_of(b"%04d" % n * 500) for n in range(600)]
    async with our_peer() as (log, mesh), run_program(program) as theirs:
        peer = await join(mesh, theirs, "we dial")
        mesh.service._act(SendRpc((peer,), Rpc(tuple(messages)), False))
        await until(lambda: has(theirs, [message.data for message in messages]))
        # What no frame holds is left out, and all that comes after it arrives.
        mesh.service._act(SendRpc((peer,), Rpc((message_of(bytes(65_530)),)), False))
        small = await log.append("small")
        await until(lambda: has(theirs, [event(small)]))
        (link,) = mesh.service.links()
        assert link.counts["messages too large"] == 1
        assert "pubsub streams lost" not in link.counts


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("key", ["rsa", "ecdsa", "secp256k1"])
async def test_go_peer_with_any_type_of_key_is_known_by_the_id_that_it_has_itself(go_program: str, key: str, direction: str) -> None:
    async with our_peer() as (_, mesh), run_program(go_program) as theirs:
        # The dialler compares ids; whom we have not dialled, we find among our connections by its own.
        await connect(mesh, theirs, direction, key=key)


@pytest.mark.parametrize("direction", DIRECTIONS)
async def test_extensions_are_told_first_and_test_extension_is_answered(go_program: str, direction: str) -> None:
    params = replace(MESH_PARAMS["gossipsub"], test_extension=True)
    async with our_peer(params=params) as (log, mesh), run_program(go_program) as theirs:
        await join(mesh, theirs, direction, tests=True)
        await until(lambda: returned(peer_state(mesh).is_tested))
        assert (peer_state(mesh).protocol, peer_state(mesh).extensions) == (NEWEST, Extensions(test=True))

        async def is_answered() -> bool:
            return (await theirs.ask("state"))["tested"] == 1

        await until(is_answered)
        state = await theirs.ask("state")
        assert (set(state["spoken"]), state["announced"]) == ({NEWEST}, [1])
        await exchange(log, theirs)
        # A stream that is opened anew says it anew.
        assert await theirs.ask("endStreams", how="fin") == 1
        await until(lambda: returned(mesh.service.links()[0].counts.get("pubsub streams lost")))
        await until(lambda: heard_again(log, theirs))
        assert len((await theirs.ask("state"))["announced"]) == 2
        assert mesh.service.state().offences == {}


async def test_partial_messages_that_rust_requests_come_whole(rust_program: str) -> None:
    async with our_peer() as (log, mesh), run_program(rust_program) as theirs:
        await join(mesh, theirs, "it dials", partial=True)
        assert (peer_state(mesh).protocol, peer_state(mesh).extensions) == (NEWEST, Extensions())
        await exchange(log, theirs)
        assert mesh.service.state().offences == {}


@pytest.mark.parametrize("speaks", ["/meshsub/1.2.0", "/meshsub/1.1.0"])
async def test_older_protocol_is_spoken_with_go_that_has_no_newer_one(go_program: str, speaks: str) -> None:
    async with our_peer() as (log, mesh), run_program(go_program) as theirs:
        await join(mesh, theirs, "we dial", speaks=[speaks])
        await exchange(log, theirs)
        assert (peer_state(mesh).protocol, peer_state(mesh).extensions) == (speaks, None)
        assert set((await theirs.ask("state"))["spoken"]) == {speaks}


async def test_older_protocol_is_spoken_where_we_have_no_newer_one(program: str) -> None:
    params = replace(MESH_PARAMS["gossipsub"], protocols=("/meshsub/1.2.0",))
    async with our_peer(params=params) as (log, mesh), run_program(program) as theirs:
        await join(mesh, theirs, "it dials")
        await exchange(log, theirs)
        assert peer_state(mesh).protocol == "/meshsub/1.2.0"


@pytest.mark.parametrize("how", ["fin", "reset"])
async def test_pubsub_stream_that_go_ended_is_opened_again(go_program: str, how: str) -> None:
    async with our_peer() as (log, mesh), run_program(go_program) as theirs:
        await join(mesh, theirs, "it dials")
        assert await theirs.ask("endStreams", how=how) == 1
        await until(lambda: returned(mesh.service.links()[0].counts.get("pubsub streams lost")))
        await until(lambda: heard_again(log, theirs))
        assert len(mesh.service.links()) == 1


async def test_pubsub_stream_that_rust_closed_on_a_large_frame_is_opened_again(rust_program: str) -> None:
    wide = WireLimits(out_bytes_max=2**20)
    async with our_peer(wire=wide) as (log, mesh), run_program(rust_program) as theirs:
        peer = await join(mesh, theirs, "it dials")
        mesh.service._act(SendRpc((peer,), Rpc((message_of(bytes(70_000)),)), False))
        await until(lambda: returned(mesh.service.links()[0].counts.get("pubsub streams lost")))
        await until(lambda: heard_again(log, theirs))
        assert len(mesh.service.links()) == 1


async def test_frames_as_large_as_we_send_cost_no_stream_whatever_follows_them(rust_program: str) -> None:
    """rust-libp2p counts with a frame what it has read behind it: 8 KiB at most, 64 KiB in all."""
    limit = WireLimits().out_bytes_max
    wire = Wire()
    large = [message_of(bytes([n]) * (limit - 200)) for n in range(100)]
    size = limit - len(wire.encode(Rpc((large[0],)))[0])
    large = [message_of(bytes([n]) * (limit - 200 + size - 1)) for n in range(100)]
    assert limit - 4 <= len(wire.encode(Rpc((large[0],)))[0]) <= limit
    small = [message_of(b"small %d" % n) for n in range(100)]
    async with our_peer() as (_, mesh), run_program(rust_program) as theirs:
        peer = await join(mesh, theirs, "it dials")
        for pair in zip(large, small, strict=True):
            for message in pair:
                mesh.service._act(SendRpc((peer,), Rpc((message,)), False))
        await until(lambda: has(theirs, [message.data for message in large + small]))
        assert "pubsub streams lost" not in mesh.service.links()[0].counts


RUST_BUFFER_BYTES, RUST_READ_BYTES = 65_536, 8_192
WIDE = WireLimits(out_bytes_max=2**20)


def frame_of(size: int, mark: int) -> tuple[bytes, bytes]:
    """A frame with one message, of exactly so many bytes with its length; and that message's data."""
    data_bytes = size
    while True:
        data = mark.to_bytes(8) + bytes(data_bytes - 8)
        (frame,) = Wire(limits=WIDE).encode(Rpc((message_of(data),)))
        if len(frame) == size:
            return frame, data
        data_bytes -= len(frame) - size


@pytest.mark.parametrize("beyond", [0, 1])
@pytest.mark.parametrize("place", ["alone", "followed"])
async def test_edge_of_the_frames_that_rust_takes_lies_above_those_that_we_send(rust_program: str, place: str, beyond: int) -> None:
    """Its buffer may hold 65,536 bytes: of a frame alone, or of one and whatever the read that ends it has taken behind it."""
    is_followed = place == "followed"
    edge = RUST_BUFFER_BYTES - (RUST_READ_BYTES - 1 if is_followed else 0)
    assert WireLimits().out_bytes_max <= edge
    async with our_peer() as (log, mesh), run_program(rust_program) as theirs:
        peer = await join(mesh, theirs, "it dials")

        async def has_ended(data: bytes) -> bool:
            return streams_lost(mesh) > 0 or await has(theirs, [data])

        for attempt in range(60 if is_followed else 1):
            # What went before has been read, so that reads begin with what is sent now: the last but one ends a byte before the frame does.
            assert await heard_again(log, theirs)
            frame, data = frame_of(edge + beyond, 1_000 * attempt)
            around = [frame_of(RUST_READ_BYTES - 1 if not number else 1_024, 1_000 * attempt + 1 + number)[0] for number in range(24)]
            stream = mesh.service.host.peers[peer].rpcs._stream
            assert stream is not None
            await stream.send_all(b"".join((around[0], frame, *around[1:])) if is_followed else frame)
            await until(lambda data=data: has_ended(data))
            if streams_lost(mesh):
                break
        assert (streams_lost(mesh) > 0) is bool(beyond)


def streams_lost(mesh: Mesh) -> int:
    return sum(link.counts.get("pubsub streams lost", 0) for link in mesh.service.links())


async def test_largest_entries_of_a_mesh_reach_rust_by_iwant_and_cost_no_stream(rust_program: str) -> None:
    """We have no mesh and push to nobody: it asks for what is announced."""
    params = replace(MESH_PARAMS["gossipsub"], D=0, D_lo=0, D_hi=0, D_out=0, D_score=0, flood_publish=False)
    async with our_peer(params=params) as (log, mesh), run_program(rust_program) as theirs:
        await join(mesh, theirs, "it dials")
        padding = PUBLISHED_BYTES_MAX - len(event(sign_entry(Ed25519Signer.generate(), TOPIC, 1, [], pcf.encode("x" * 50_000)))) + 50_000
        for round_ in range(8):
            sizes = [padding - 300 - number for number in range(3)]
            entries = [await log.append(f"{round_}{number}".ljust(size, "x")) for number, size in enumerate(sizes)]
            assert all(PUBLISHED_BYTES_MAX - 1_000 < len(event(entry)) <= PUBLISHED_BYTES_MAX for entry in entries)
            await until(lambda entries=entries: has(theirs, map(event, entries)))
        assert mesh.service.links()[0].counts.get("pubsub streams lost", 0) == 0
        assert peer_state(mesh).peer in mesh.service.peers


@pytest.mark.parametrize("direction", DIRECTIONS)
async def test_rust_that_switched_its_pubsub_off_is_dialled_anew(
    rust_program: str, direction: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its handler counts streams and is deaf and mute from the fifth on, for as long as the connection lasts."""
    wide = WireLimits(out_bytes_max=2**20)
    async with our_peer(wire=wide) as (log, mesh), run_program(rust_program) as theirs:
        peer = await join(mesh, theirs, direction)
        first = mesh.host.connection_with(peer)

        async def is_lost(times: int) -> bool:
            """Whether so many streams were lost on the connection, or it was given up for that."""
            return mesh.host.connection_with(peer) is not first or mesh.service.links()[0].counts.get("pubsub streams lost", 0) >= times

        for lost in range(1, 5):
            mesh.service._act(SendRpc((peer,), Rpc((message_of(bytes([lost]) * 70_000),)), False))
            await until(lambda lost=lost: is_lost(lost))
        await until(lambda: returned(mesh.host.connection_with(peer) not in (None, first)))
        await until(lambda: knows(mesh, theirs, peer))
        assert await heard_again(log, theirs)
        entry = chain([b"\x01"])[0]
        await theirs.ask("publish", topic=TOPIC, data=event(entry).hex())
        await until(lambda: log.has(entry.id))
        warnings = [record for record in caplog.records if getattr(record, "event", "") == "pubsub ended on a connection that stays"]
        assert len(warnings) == 1


async def heard_again(log: GossipLog, theirs: Reference) -> bool:
    """Whether the other side gets what is appended now; what is published between two streams waits for the next one."""
    entry = await log.append("again")
    await until(lambda: has(theirs, [event(entry)]))
    return True


async def test_identify_of_several_messages_is_read_to_its_end(go_program: str) -> None:
    async with our_peer() as (_, mesh), run_program(go_program) as theirs:
        await connect(mesh, theirs, "we dial", protocols=60)
        (peering,) = mesh.host.peerings
        assert sum(protocol.startswith("/interop/") for protocol in peering.identity.protocols) == 60
        assert peering.identity.record is not None


async def test_messages_that_go_signs_are_refused_and_said_to_be_once(go_program: str, caplog: pytest.LogCaptureFixture) -> None:
    async with our_peer() as (log, mesh), run_program(go_program) as theirs:
        await join(mesh, theirs, "we dial", sign=True)
        for n in range(3):
            await theirs.ask("publish", topic=TOPIC, data=bytes([n]).hex())
        await until(lambda: returned(mesh.service.counts.get("messages refused") == 3))
        assert await log.count() == 0
        assert mesh.service.state().offences == {}
    warnings = [record.fields for record in caplog.records if getattr(record, "event", "") == "message refused"]
    assert ["StrictNoSign" in str(fields["reason"]) for fields in warnings] == [True]


async def test_go_peer_that_speaks_tls_alone_is_said_to(go_program: str, caplog: pytest.LogCaptureFixture) -> None:
    async with run_program(go_program) as theirs:
        await theirs.ask("start", listen=[LISTEN], tls=True)
        (address,) = await addresses(theirs)
        async with our_peer(bootstrap=(Address.parse(address),)):
            await until(lambda: returned([record for record in caplog.records if getattr(record, "event", "") == "peer not reached"]))
    (fields,) = (record.fields for record in caplog.records if getattr(record, "event", "") == "peer not reached")
    assert fields["address"] == address
    assert "does not speak noise" in fields["reason"]
