"""Floods of the router's own messages, over libp2p: a peer of a mesh in a process of its own, an honest one beside it, and the attacker."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import pytest
import trio
from hostile_support import SERVED_S, Watch
from loop_watch import read_report
from mesh_cluster import Cluster, open_cluster

import gossiplog
from gossiplog import Ed25519Signer
from gossiplog.codec import pcf
from gossiplog.codec.framing import encode_frame
from gossiplog.codec.varint import encode_varint
from gossiplog.entry import sign_entry
from gossiplog.entry.rules import next_clock
from gossiplog.errors import GossipLogError
from gossiplog.net import Connection, Stream
from gossiplog.net.libp2p import Address, Host, Peering, PeerKey
from gossiplog.net.libp2p.records import seal_record
from gossiplog.net.mesh import MeshConfig, open_mesh
from gossiplog.pubsub.rpc import Control, IHave, Message, Prune, Rpc, Subscription
from gossiplog.pubsub.types import MessageId, Topic, peer_id_bytes
from gossiplog.pubsub.wire.rpc_codec import Wire
from gossiplog.sync.rpc import Insert
from gossiplog.sync.wire import encode_event

pytestmark = pytest.mark.slow

TOPIC = Topic("mesh.example.com")
MESHSUB = "/meshsub/1.1.0"
SIGNER = Ed25519Signer.from_seed(b"\x66" * 32)
RNG = Random(1)
MEMORY_MIB = 80


def ids(count: int) -> tuple[MessageId, ...]:
    return tuple(MessageId(RNG.randbytes(32)) for _ in range(count))


def frames(*rpcs: Rpc) -> bytes:
    return b"".join(frame for rpc in rpcs for frame in Wire().encode(rpc))


def published(*values: tuple[bytes, bytes]) -> Rpc:
    events = [encode_event(Insert(key, value)) for key, value in values]
    return Rpc(messages=tuple(Message.of(TOPIC, event) for event in events))


def orphans(count: int) -> bytes:
    made = []
    for _ in range(count):
        parent = bytes([8]) + RNG.randbytes(19)
        entry = sign_entry(SIGNER, TOPIC, next_clock([parent]), [parent], pcf.encode(1))
        made.append(published((entry.key, entry.value)))
    return frames(*made)


def replay() -> bytes:
    entry = sign_entry(SIGNER, TOPIC, 1, [], pcf.encode("again and again"))
    return frames(published((entry.key, entry.value))) * 300


def forged() -> bytes:
    return frames(*(published((RNG.randbytes(20), RNG.randbytes(300))) for _ in range(50)))


@functools.cache
def prunes_with_records() -> bytes:
    """1,000 PRUNEs with 16 signed records each, in frames of a hundred."""
    place = Address.parse("/ip4/127.0.0.1/tcp/9")
    keys = [PeerKey.generate() for _ in range(16)]
    peers = [b"\x0a" + encode_varint(38) + peer_id_bytes(key.id) + b"\x12" + prefixed(seal_record(key, [place] * 16, 1)) for key in keys]
    prune = b"\x0a" + prefixed(TOPIC.encode()) + b"".join(b"\x12" + prefixed(peer) for peer in peers)
    return encode_frame(b"\x1a" + prefixed(b"".join(b"\x22" + prefixed(prune) for _ in range(100)))) * 10


def prefixed(data: bytes) -> bytes:
    return encode_varint(len(data)) + data


ATTACKS = {
    "prunes with records": prunes_with_records,
    "invented ids": lambda: frames(*(Rpc(control=Control(ihave=(IHave(TOPIC, ids(5000)),))) for _ in range(2))),
    "ihave": lambda: frames(*(Rpc(control=Control(ihave=(IHave(TOPIC, ids(200)),))) for _ in range(50))),
    "iwant": lambda: frames(*(Rpc(control=Control(iwant=ids(200))) for _ in range(50))),
    "graft and prune": lambda: frames(*(Rpc(control=Control(graft=(TOPIC,), prune=(Prune(TOPIC, (), 1),))) for _ in range(500))),
    "foreign topics": lambda: frames(*(Rpc(subscriptions=(Subscription(Topic(RNG.randbytes(20).hex()), True),)) for _ in range(500))),
    "in and out": lambda: frames(*(Rpc(subscriptions=(Subscription(TOPIC, n % 2 == 0),)) for n in range(500))),
    "idontwant": lambda: frames(*(Rpc(control=Control(idontwant=ids(200))) for _ in range(50))),
    "replays": replay,
    "orphans": lambda: orphans(100),
    "forgeries": forged,
    "no protobuf": lambda: encode_frame(b"\xff" * 1000) * 50,
    "too long": lambda: encode_varint(2**30) + bytes(100_000),
    "many parts": lambda: encode_frame(b"\x1a\x00" * 400_000),
}


def memory_mib(pid: int, name: str) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith(f"{name}:"))


async def discard(connection: Connection, stream: Stream) -> None:
    while await stream.receive_some():
        pass


@asynccontextmanager
async def honest_peer(cluster: Cluster) -> AsyncIterator[Watch]:
    """Append on an honest peer throughout: the attacked one must have each entry within 5 s."""
    [attacked] = cluster.peers
    watch = Watch()
    config = MeshConfig(bootstrap=tuple(Address.parse(text) for text in attacked.addresses), target=1)
    async with (
        gossiplog.open(":memory:", topic=TOPIC, signer=Ed25519Signer.from_seed(b"\1" * 32)) as log,
        open_mesh(log, PeerKey.generate(), config) as mesh,
        trio.open_nursery() as nursery,
    ):

        async def append_and_wait() -> None:
            while True:
                started = trio.current_time()
                entry = await log.append(["honest", started])
                with trio.fail_after(6 * SERVED_S):
                    while not await has(entry.id):
                        await trio.sleep(0.02)
                watch.note(trio.current_time() - started)
                await trio.sleep(0.1)

        async def has(id: str) -> bool:
            state = await attacked.ask("state")
            return id in state["heads"]

        with trio.fail_after(30):
            while not mesh.host.peers:
                await trio.sleep(0.05)
        nursery.start_soon(append_and_wait)
        await watch.rounds(1)
        yield watch
        await watch.rounds(2)
        nursery.cancel_scope.cancel()
    assert max(watch.served_s) < SERVED_S * watch.stretch, (watch.served_s, watch.stretch)


@pytest.mark.parametrize("name", ATTACKS)
async def test_flood_is_bounded_and_an_honest_peer_is_served(tmp_path: Path, name: str) -> None:
    async def keep(peering: Peering) -> None:
        await trio.sleep_forever()

    report = tmp_path / "held.jsonl"
    async with open_cluster(tmp_path, 1, "--held", str(report)) as cluster, honest_peer(cluster) as watch:
        [attacked] = cluster.peers
        before, held_before = memory_mib(attacked.pid, "VmRSS"), len(read_report(report))
        handlers = {MESHSUB: discard}

        async def attack() -> None:
            while True:
                # A new key each time: a banned one is not let in again.
                async with Host(PeerKey.generate(), serve=keep, handlers=handlers).listening(()) as host:
                    with suppress(GossipLogError):
                        connection = await host.connect(None, [Address.parse(text) for text in attacked.addresses])
                        stream = await connection.open_stream([MESHSUB])
                        await stream.send_all(frames(Rpc(subscriptions=(Subscription(TOPIC, True),))))
                        while True:
                            await stream.send_all(ATTACKS[name]())
                await trio.sleep(0.05)

        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(attack)
            with trio.fail_after(120):
                await watch.rounds(12)
            nursery.cancel_scope.cancel()
        assert memory_mib(attacked.pid, "VmHWM") - before < MEMORY_MIB
        assert read_report(report)[held_before:] == [], "its loop was held"
