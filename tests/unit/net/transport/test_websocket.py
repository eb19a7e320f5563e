"""WebSockets as streams of bytes, both sides in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random

import pytest
import trio
from muxer_support import Bytes, tcp_pair
from trio.testing import memory_stream_pair, wait_all_tasks_blocked
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection
from wsproto.frame_protocol import FrameProtocol, Opcode

from gossiplog.errors import ClosedError, RemoteProtocolError
from gossiplog.net.transport.http_head import read_head
from gossiplog.net.transport.tcp import TcpStream
from gossiplog.net.transport.websocket import MESSAGE_BYTES_MAX, WebSocketStream, accept_websocket, connect_websocket

ASKED = b"GET /x HTTP/1.1\r\nhost: h\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-version: 13\r\n"
KEY = b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[WebSocketStream, WebSocketStream]]:
    """Client and server, after the handshake."""
    left, right = memory_stream_pair()
    found: list[WebSocketStream] = []

    async def accept() -> None:
        stream = Bytes(right)
        found.append(await accept_websocket(stream, await read_head(stream, 16_384)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept)
        client = await connect_websocket(Bytes(left), "localhost", "/")
    yield client, found[0]


@asynccontextmanager
async def raw_client(extra: bytes = b"") -> AsyncIterator[tuple[trio.abc.Stream, WebSocketStream, bytes]]:
    """A client's bare stream, the server after the handshake, and what the server answered."""
    left, right = memory_stream_pair()
    await left.send_all(ASKED + KEY + extra + b"\r\n")
    stream = Bytes(right)
    server = await accept_websocket(stream, await read_head(stream, 16_384))
    yield left, server, bytes(await left.receive_some())


async def test_bytes_go_both_ways_in_order() -> None:
    async with opened() as (client, server), trio.open_nursery() as nursery:
        for one, other in ((client, server), (server, client)):
            for chunk in (b"a", b"bc", *(b"x" * size for size in (125, 126, 65_535, 65_536, 200_000))):
                nursery.start_soon(one.send_all, chunk)
                received = b""
                while len(received) < len(chunk):
                    received += await other.receive_some()
                assert received == chunk


async def test_pong_does_not_come_between_the_parts_of_a_message_that_goes_out_bit_by_bit() -> None:
    left, right = await tcp_pair()
    await left.send_all(ASKED + KEY + b"\r\n")
    stream = TcpStream(right)
    server = await accept_websocket(stream, await read_head(stream, 16_384))
    frames = FrameProtocol(client=True, extensions=[])
    first, second = bytes(6_000_000), b"after it"
    assert not server.send_now(first), "a socket takes some of it"
    async with left, trio.open_nursery() as nursery:
        nursery.start_soon(server.receive_some)
        head, _, beginning = (await left.receive_some()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101")
        frames.receive_bytes(beginning)
        await left.send_all(frames.ping(b"well?"))
        await wait_all_tasks_blocked()
        assert not server.send_now(second), "the pong is on its way"
        nursery.start_soon(server.send_all, b"")
        received = list[tuple[Opcode, bytes]]()
        with trio.fail_after(30):
            while sum(len(payload) for _, payload in received) < len(first) + len(b"well?") + len(second):
                frames.receive_bytes(await left.receive_some())
                received += [(frame.opcode, bytes(frame.payload)) for frame in frames.received_frames()]
        nursery.cancel_scope.cancel()
    await server.aclose()
    assert b"".join(payload for opcode, payload in received if opcode is not Opcode.PONG) == first + second
    assert [payload for opcode, payload in received if opcode is Opcode.PONG] == [b"well?"]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("is_server", [True, False])
async def test_messages_arrive_alike_however_they_are_framed_and_cut(seed: int, is_server: bool) -> None:
    rng = Random(seed)
    frames = FrameProtocol(client=is_server, extensions=[])
    sent, wire, pings = b"", b"", 0
    for _ in range(300):
        payload = rng.randbytes(rng.choice([0, 1, 5, 125, 126, 127, 400, 65_535, 65_536] if rng.random() < 0.05 else [0, 3, 130, 300]))
        is_whole = rng.random() < 0.8
        wire += bytes(frames.send_data(payload, fin=is_whole))
        if not is_whole:
            if rng.random() < 0.5:
                wire, pings = wire + bytes(frames.ping(b"ping")), pings + 1
            wire += bytes(frames.send_data(b"the rest", fin=True))
            payload += b"the rest"
        sent += payload
        if rng.random() < 0.1:
            wire, pings = wire + bytes(rng.choice([frames.ping, frames.pong])(b"?")), pings + 1
    left, right = memory_stream_pair()
    end: WebSocketStream
    if is_server:
        await left.send_all(ASKED + KEY + b"\r\n")
        stream, begun = Bytes(right), 0
        end = await accept_websocket(stream, await read_head(stream, 16_384))
    else:
        # A server may send on in the same piece.
        begun = 5
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_and_begin, left, wire[:begun])
            end = await connect_websocket(Bytes(right), "localhost", "/")
    received = b""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_in_pieces, left, wire[begun:], rng)
        with trio.fail_after(30):
            while piece := await end.receive_some():
                received += piece
                if len(received) == len(sent):
                    break
        nursery.cancel_scope.cancel()
    assert received == sent
    assert pings


async def answer_and_begin(stream: trio.abc.Stream, beginning: bytes) -> None:
    server = WSConnection(ConnectionType.SERVER)
    server.receive_data(bytes(await stream.receive_some()))
    next(server.events())
    await stream.send_all(server.send(AcceptConnection()) + beginning)


async def send_in_pieces(stream: trio.abc.Stream, data: bytes, rng: Random) -> None:
    while data:
        size = rng.choice([1, 2, 7, 300, 5_000, 70_000])
        await stream.send_all(data[:size])
        await wait_all_tasks_blocked()
        data = data[size:]


async def test_extension_and_subprotocol_are_not_accepted() -> None:
    async with raw_client(b"sec-websocket-extensions: permessage-deflate\r\nsec-websocket-protocol: t\r\n") as (_, _, answer):
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert b"extensions" not in answer.lower()
        assert b"sec-websocket-protocol" not in answer.lower()


async def test_text_and_endless_messages_are_refused() -> None:
    frames = FrameProtocol(client=True, extensions=[])
    async with raw_client() as (client, server, _):
        await client.send_all(frames.send_data("text", fin=True))
        with pytest.raises(ClosedError, match="text"):
            await server.receive_some()
        assert bytes(await client.receive_some())[2:4] == (1003).to_bytes(2)
    frames = FrameProtocol(client=True, extensions=[])
    async with raw_client() as (client, server, _), trio.open_nursery() as nursery:

        async def send() -> None:
            for _ in range(MESSAGE_BYTES_MAX // 65_536 + 2):
                await client.send_all(frames.send_data(bytes(65_536), fin=False))

        nursery.start_soon(send)
        size = 0
        with pytest.raises(ClosedError, match="message of more than"):
            while True:
                size += len(await server.receive_some())
        assert size <= MESSAGE_BYTES_MAX
        nursery.cancel_scope.cancel()


async def test_frame_that_claims_to_be_huge_takes_no_memory() -> None:
    async with raw_client() as (client, server, _):
        await client.send_all(b"\x82\xff" + (2**62).to_bytes(8) + bytes(4) + b"beginning")
        assert await server.receive_some() == b"beginning"


@pytest.mark.parametrize(
    "garbage", [b"\x82\x05hello", b"\xf2\x80\x00\x00\x00\x00", b"\x8f\x80\x00\x00\x00\x00", b"\x80\x80\x00\x00\x00\x00"]
)
async def test_what_breaks_the_protocol_ends_the_stream(garbage: bytes) -> None:
    async with raw_client() as (client, server, _):
        await client.send_all(garbage)
        await client.aclose()
        with suppress(ClosedError):
            assert await server.receive_some() == b""


async def test_ping_is_answered_and_goodbye_returned() -> None:
    frames = FrameProtocol(client=True, extensions=[])
    async with raw_client() as (client, server, _), trio.open_nursery() as nursery:
        nursery.start_soon(server.receive_some)
        await client.send_all(frames.ping(b"are you there"))
        assert bytes(await client.receive_some()) == b"\x8a\x0dare you there"
        await client.send_all(frames.close(1000))
        assert bytes(await client.receive_some())[0] == 0x80 | Opcode.CLOSE


async def test_what_came_before_a_goodbye_is_read_and_nothing_after_it() -> None:
    frames = FrameProtocol(client=True, extensions=[])
    async with raw_client() as (client, server, _):
        await client.send_all(frames.send_data(b"last words", fin=True) + frames.close(3000, "tired") + b"garbage")
        assert await server.receive_some() == b"last words"
        assert await server.receive_some() == b""
        assert bytes(await client.receive_some())[:4] == b"\x88\x02" + (3000).to_bytes(2)
        with pytest.raises(ClosedError):
            await server.send_all(b"too late")


async def test_closing_is_told_and_done_once() -> None:
    async with opened() as (client, server):
        await client.aclose()
        assert await server.receive_some() == b""
        await client.aclose()
        with pytest.raises(ClosedError):
            await client.send_all(b"late")
        await server.aclose()


@pytest.mark.parametrize(
    "request_",
    [
        ASKED,
        ASKED.replace(b"13", b"8") + KEY,
        ASKED.replace(b"connection: Upgrade\r\n", b"") + KEY,
        ASKED + KEY + b"sec-websocket-extensions: \xff\r\n",
    ],
)
async def test_request_that_is_no_handshake_is_refused(request_: bytes) -> None:
    left, right = memory_stream_pair()
    await left.send_all(request_ + b"\r\n")
    stream = Bytes(right)
    head = await read_head(stream, 16_384)
    with pytest.raises(RemoteProtocolError):
        await accept_websocket(stream, head)
    assert bytes(await left.receive_some()).startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 101 X\r\nconnection: \xff\r\n\r\n",
        b"",
    ],
)
async def test_server_that_is_no_hub_is_found_out(answer: bytes) -> None:
    left, right = memory_stream_pair()

    async def serve() -> None:
        await right.receive_some()
        await right.send_all(answer)
        await right.send_eof()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        with pytest.raises((RemoteProtocolError, ClosedError)):
            await connect_websocket(Bytes(left), "localhost", "/")


async def test_head_names_its_parts() -> None:
    left, right = memory_stream_pair()
    await left.send_all(b"GET /a?b=c HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 1.1.1.1, 2.2.2.2\r\nX-Forwarded-For: 3.3.3.3\r\n\r\nrest")
    head = await read_head(Bytes(right), 16_384)
    assert (head.path, head.target, head.is_upgrade) == ("/a", "/a?b=c", False)
    assert head.all(b"x-forwarded-for") == [b"1.1.1.1, 2.2.2.2", b"3.3.3.3"]
    assert head.first(b"origin") is None
    assert head.beyond == b"rest" and head.raw.endswith(b"\r\n\r\n")
