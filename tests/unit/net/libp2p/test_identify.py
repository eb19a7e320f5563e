"""Identify, its push, and ping, between hosts over loopback."""

from __future__ import annotations

import pytest
import trio
from mesh_support import TCP, TOPIC, WS, a_host, a_peer, eventually

from gossiplog.codec.framing import FrameDecoder, encode_frame
from gossiplog.errors import RemoteProtocolError
from gossiplog.net import Connection, Stream
from gossiplog.net.ground.protocol_ids import IDENTIFY_PROTOCOLS, IDENTIFY_PUSH_PROTOCOLS, PING_PROTOCOLS
from gossiplog.net.libp2p import Address, PeerKey
from gossiplog.net.libp2p import identify as module
from gossiplog.net.libp2p.identify import ask_identity, identify_message
from gossiplog.net.libp2p.records import seal_record
from gossiplog.pubsub.rpc import Rpc, Subscription
from gossiplog.pubsub.types import Topic
from gossiplog.pubsub.wire.rpc_codec import Wire

MESHSUB = "/meshsub/1.1.0"
ONE = PeerKey(b"\1" * 32)
HOME = Address.parse("/ip4/127.0.0.1/tcp/4001")


@pytest.mark.parametrize("address", [TCP, WS], ids=("tcp", "websocket"))
async def test_each_side_is_told_where_it_connects_from(address: Address) -> None:
    async with a_host(address) as one, a_host() as two:
        connection = await two.connect(one.id, one.announced)
        for asker in (connection, *(peering.connection for peering in one.peerings)):
            stream = await asker.open_stream(IDENTIFY_PROTOCOLS)
            frames = FrameDecoder()
            while (message := frames.next()) is None:
                frames.feed(await stream.receive_some())
            observed = Address.from_bytes(module._IDENTIFY.decode(message)["observedAddr"])
            assert observed.host == "127.0.0.1"
            # The listening side sees the port that the system chose, the other one the port that it dialled.
            assert (observed.port == one.announced[0].port) == (not asker.is_outbound)


async def test_application_that_begins_with_pubsub_after_connecting_is_heard_of_by_identify_push() -> None:
    heard: list[Rpc] = []

    async def read(connection: Connection, stream: Stream) -> None:
        frames = FrameDecoder()
        while data := await stream.receive_some():
            heard.extend(Wire().decode(body).rpc for body in frames.take(data))

    handlers = {"/other": read}
    async with a_peer() as mesh, a_host(handlers=handlers, key=ONE) as stranger:
        connection = await stranger.connect(mesh.host.id, mesh.host.announced)
        await eventually(lambda: len(mesh.service.links()) == 1)
        assert mesh.service.state().router.peers == ()
        handlers[MESHSUB] = read
        for protocols in ([MESHSUB], ["/other"], [MESHSUB]):
            heard.clear()
            stream = await connection.open_stream(IDENTIFY_PUSH_PROTOCOLS[1:])
            await stream.send_all(identify_message(ONE, protocols, (), seal_record(ONE, (HOME,), 7), None))
            stream.close_sending()
            if MESHSUB in protocols:
                await eventually(lambda: heard and heard[0].subscriptions == (Subscription(Topic(TOPIC), True),))
                assert HOME.of(ONE.id) in mesh.discovery.book.of(ONE.id)
            else:
                await eventually(lambda: mesh.service.state().router.peers == ())
        assert [peering.identity.agent for peering in mesh.host.peerings] == [module._AGENT]


async def test_push_of_another_peers_key_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with a_host(TCP) as one, a_host() as two:
        connection = await two.connect(one.id, one.announced)
        await eventually(lambda: len(one.peerings) == 1)
        before = one.peerings[0].identity
        stream = await connection.open_stream(IDENTIFY_PUSH_PROTOCOLS)
        await stream.send_all(identify_message(ONE, ["/x"], (), b"", None))
        stream.close_sending()
        await eventually(lambda: "the public key is another peer's" in caplog.text)
        assert one.peerings[0].identity == before


async def answering(*parts: bytes, closes: bool = True) -> module.Identity:
    """What is made of a peer that answers this to identify."""

    async def answer(connection: Connection, stream: Stream) -> None:
        for part in parts:
            await stream.send_all(part)
        if not closes:
            await trio.sleep_forever()

    async with a_host(TCP, key=ONE) as one, a_host() as two:
        connection = await two.connect(one.id, one.announced)
        one._handlers.maps[0].update(dict.fromkeys(IDENTIFY_PROTOCOLS, answer))  # type: ignore[attr-defined]
        with trio.fail_after(60):
            return await ask_identity(connection)


async def test_identify_is_read_to_its_end() -> None:
    record = seal_record(ONE, (HOME,), 7)
    first = identify_message(ONE, ["/a", "/b"], (), b"", None)
    rest = encode_frame(module._IDENTIFY.encode({"signedPeerRecord": record, "protocols": ["/c"]}))
    for parts in ([first, rest], [first + rest], [bytes([byte]) for byte in first + rest]):
        identity = await answering(*parts)
        assert identity.protocols == {"/a", "/b", "/c"}
        assert identity.record == record
        assert identity.addresses == (HOME.of(ONE.id),)


async def test_identify_without_end_is_taken_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_END_S", 0.1)
    assert (await answering(identify_message(ONE, ["/a"], (), b"", None), closes=False)).protocols == {"/a"}


async def test_identify_of_too_many_messages_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="more than 10 messages"):
        await answering(encode_frame(b"") * 11)


@pytest.mark.parametrize("sizes", [(33,), (1, 62, 1), (5, 40, 51), (96,)])
async def test_pings_are_answered_whatever_chunks_they_come_in(sizes: tuple[int, ...]) -> None:
    async with a_host(TCP) as one, a_host() as two:
        connection = await two.connect(one.id, one.announced)
        stream = await connection.open_stream(PING_PROTOCOLS)
        sent = bytes(n % 256 for n in range(sum(sizes)))
        start = 0
        for size in sizes:
            await stream.send_all(sent[start : start + size])
            start += size
            await trio.sleep(0)
        whole = len(sent) - len(sent) % 32
        answer = b""
        with trio.fail_after(60):
            while len(answer) < whole:
                answer += await stream.receive_some()
            assert answer == sent[:whole]
            # The tail is kept until the rest of its ping comes.
            if whole < len(sent):
                await stream.send_all(bytes(32 - len(sent) + whole))
                assert await stream.receive_some() == sent[whole:] + bytes(32 - len(sent) + whole)
