"""Squatters who graft themselves first and forward nothing, over real sockets: every honest entry arrives all the same, and soon."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import trio
from mesh_support import TOPIC, a_host, a_peer, eventually

from gossiplog.net import Connection, Stream
from gossiplog.net.discovery import Discovery
from gossiplog.net.libp2p import Address, Host
from gossiplog.pubsub.rpc import Control, Rpc, Subscription
from gossiplog.pubsub.types import Topic
from gossiplog.pubsub.wire.rpc_codec import Wire

pytestmark = pytest.mark.slow

SQUATTERS = 24
ENTRIES = 10
ARRIVES_S = 8.0
MESHSUB = "/meshsub/1.1.0"
GRAFT = Rpc(subscriptions=(Subscription(Topic(TOPIC), True),), control=Control(graft=(Topic(TOPIC),)))


async def take(connection: Connection, stream: Stream) -> None:
    while await stream.receive_some():
        pass


async def squat(host: Host, addresses: tuple[Address, ...]) -> None:
    connection = await host.connect(None, addresses)
    stream = await connection.open_stream([MESHSUB])
    await stream.send_all(b"".join(Wire().encode(GRAFT)))


async def test_entries_arrive_although_squatters_hold_the_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    # With Kademlia the two would find each other, and need nobody between them.
    monkeypatch.setattr(Discovery, "_keep_walking", lambda discovery: trio.sleep_forever())
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(a_peer(target=1))
        for _ in range(SQUATTERS):
            await squat(await stack.enter_async_context(a_host(handlers={MESHSUB: take})), server.host.announced)

        def held() -> int:
            return len(server.service.state().router.topics[0].full_message)

        await eventually(lambda: held() >= 12)
        writer, reader = [await stack.enter_async_context(a_peer(*server.host.announced, target=1)) for _ in range(2)]
        await eventually(lambda: len(server.host.peers) == SQUATTERS + 2)
        late = []
        for number in range(ENTRIES):
            entry = await writer.service.log.append({"n": number})
            started = trio.current_time()
            with trio.move_on_after(ARRIVES_S):
                while not await reader.service.log.has(entry.id):
                    await trio.sleep(0.02)
            late.append(round(trio.current_time() - started, 1))
            await trio.sleep(0.3)
        assert max(late) < ARRIVES_S, late
