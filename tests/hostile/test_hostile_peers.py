"""Attacks by peers whose streams are in order: on what is pushed, on heads, on sync from both sides, and on HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

import pytest
import trio
from hostile_support import PUSH, SERVED_S, SYNC, TOPIC, Refusal, Server, attacking, honest_peers, muxed_attacker

from gossiplog import Ed25519Signer
from gossiplog.codec import pcf
from gossiplog.codec.framing import FrameDecoder, encode_frame
from gossiplog.codec.varint import encode_varint
from gossiplog.entry import Entry, sign_entry
from gossiplog.entry.rules import next_clock
from gossiplog.errors import GossipLogError, StreamReset
from gossiplog.net import Connection, Stream
from gossiplog.net.transport.multistream import Proposal
from gossiplog.net.transport.yamux.frames import FrameKind, encode_header
from gossiplog.sync.rpc import (
    AbortResponse,
    ChildrenResponse,
    GetChildren,
    GetNode,
    GetRoot,
    GetValues,
    Insert,
    Response,
    RootResponse,
    Update,
    ValuesResponse,
)
from gossiplog.sync.wire import decode_request, encode_event, encode_request, encode_response
from gossiplog.tree.node import Node

pytestmark = pytest.mark.slow

SIGNER = Ed25519Signer.from_seed(b"\x66" * 32)
RNG = Random(1)


def orphan(number: int = 0, size: int = 10) -> Entry:
    """An entry in order but for its parent, which nobody has."""
    parent = next_key(number)
    return sign_entry(SIGNER, TOPIC, next_clock([parent]), [parent], pcf.encode({"n": number, "x": "x" * size}))


def next_key(number: int) -> bytes:
    return bytes([8]) + number.to_bytes(4, "big") + RNG.randbytes(15)


def pushed(key: bytes, value: bytes) -> bytes:
    return encode_frame(encode_event(Insert(key, value)))


def invalid_entries() -> list[tuple[bytes, bytes]]:
    """One entry for each way in which an entry can be wrong."""
    good = sign_entry(SIGNER, TOPIC, 1, [], pcf.encode({"good": True}))
    other_topic = sign_entry(SIGNER, "other.example.com", 1, [], pcf.encode(1))
    lying_clock = sign_entry(SIGNER, TOPIC, 1_000, [], pcf.encode(1))
    broken = bytearray(good.value)
    broken[-1] ^= 1
    return [
        (good.key, bytes(broken)),
        (bytes(20), good.value),
        (other_topic.key, other_topic.value),
        (lying_clock.key, lying_clock.value),
        (good.key, b"\xff" * 100),
        (good.key, good.value + b"\0"),
    ]


async def test_invalid_entries_are_not_stored_and_the_fifth_bans_their_sender(server: Server) -> None:
    async with honest_peers(server):
        before = await server.count()
        async with muxed_attacker(server, "10.2.0.1") as connection:
            stream = await connection.open_stream([PUSH])
            with suppress(GossipLogError):
                for key, value in invalid_entries():
                    await stream.send_all(pushed(key, value))
            with trio.fail_after(60):
                await connection.wait_ended()
        with pytest.raises(Refusal) as refused:
            async with attacking(server, "10.2.0.1"):
                pass
        assert refused.value.status == 503
        async with attacking(server, "10.2.0.2"):
            pass
        stored = await server.count() - before
        assert stored < 1_000
        for key, _ in invalid_entries():
            assert (await server.get(f"/api/messages/{key.hex()}"))[0] in (400, 404)


async def test_messages_that_are_none_and_frames_that_are_too_long_end_the_push_stream(server: Server) -> None:
    async with honest_peers(server):
        for number, data in enumerate(
            (encode_varint(5 * 2**20) + bytes(1000), b"\xff" * 20, encode_frame(b"\x07\xff\xff" * 20), encode_frame(b""))
        ):
            async with muxed_attacker(server, f"10.2.1.{number}") as connection:
                stream = await connection.open_stream([PUSH])
                with trio.fail_after(60):
                    with suppress(GossipLogError):
                        for _ in range(10):
                            await stream.send_all(data)
                    with suppress(GossipLogError):
                        while await stream.receive_some():
                            pass


async def test_entries_as_large_as_a_frame_are_refused(server: Server) -> None:
    async with honest_peers(server, memory_mib=90), muxed_attacker(server, "10.2.2.1") as connection:
        stream = await connection.open_stream([PUSH])
        with trio.fail_after(20), suppress(GossipLogError):
            for _ in range(20):
                await stream.send_all(pushed(bytes([2]) * 20, bytes(3 * 2**20)))
            await connection.wait_ended()


async def test_orphans_are_not_penalised_and_start_one_sync_at_a_time(server: Server) -> None:
    running = most = sessions = 0

    async def stall(connection: Connection, stream: Stream) -> None:
        nonlocal running, most, sessions
        running, sessions = running + 1, sessions + 1
        most = max(most, running)
        try:
            while await stream.receive_some():
                pass
        finally:
            running -= 1

    async with honest_peers(server) as watch, muxed_attacker(server, "10.2.3.1", {SYNC: stall}) as connection:
        stream = await connection.open_stream([PUSH])

        async def flood() -> None:
            for number in range(2_000):
                entry = orphan(number, 1_000)
                await stream.send_all(pushed(entry.key, entry.value))

        with trio.fail_after(60):
            await flood()
        await watch.rounds(5)
        assert connection.end is None, "an orphan is no offence"
        assert most == 1
        assert sessions <= 3


async def test_updates_with_invented_heads_start_few_syncs_which_back_off(server: Server) -> None:
    sessions = 0

    async def empty(connection: Connection, stream: Stream) -> None:
        nonlocal sessions
        sessions += 1
        frames = FrameDecoder()
        while data := await stream.receive_some():
            for _ in frames.take(data):
                await stream.send_all(encode_frame(encode_response(RootResponse(Node(0, None, b"\0" * 16)))))

    async with honest_peers(server) as watch, muxed_attacker(server, "10.2.4.1", {SYNC: empty}) as connection:
        stream = await connection.open_stream([PUSH])
        for number in range(200):
            heads = [next_key(1000 * number + n) for n in range(1_000)]
            await stream.send_all(encode_frame(encode_event(Update(heads))))
        await watch.rounds(20)
        assert connection.end is None
        assert sessions <= 8


async def test_updates_with_more_heads_than_allowed_are_an_offence(server: Server) -> None:
    async with honest_peers(server), muxed_attacker(server, "10.2.5.1") as connection:
        heads = b"".join(b"\x0a\x14" + next_key(n) for n in range(150_000))
        with trio.fail_after(60):
            for _ in range(5):
                with suppress(GossipLogError):
                    stream = await connection.open_stream([PUSH])
                    await stream.send_all(encode_frame(b"\x12" + encode_varint(len(heads)) + heads))
                    while await stream.receive_some():
                        pass
            end = await connection.wait_ended()
        assert end.startswith("the peer closed it"), "the fifth offence bans"


Answer = Callable[[object, Stream], Awaitable[Response | bytes | None]]


def lying(answer: Answer, sessions: list[float]) -> Callable[[Connection, Stream], Awaitable[None]]:
    """Serve sync with whatever `answer` makes of each request."""

    async def serve(connection: Connection, stream: Stream) -> None:
        sessions.append(trio.current_time())
        frames = FrameDecoder()
        while data := await stream.receive_some():
            for message in frames.take(data):
                response = await answer(decode_request(message), stream)
                if isinstance(response, bytes):
                    await stream.send_all(response)
                elif response is not None:
                    await stream.send_all(encode_frame(encode_response(response)))

    return serve


FAKE_ROOT = Node(3, None, b"r" * 16)


async def never_ending_children(request: object, stream: Stream) -> Response:
    if isinstance(request, GetRoot):
        return RootResponse(Node(200, None, b"r" * 16))
    if isinstance(request, GetChildren):
        return ChildrenResponse(
            [Node(request.level - 1, request.key, RNG.randbytes(16))] + [Node(request.level - 1, next_key(n), b"h" * 16) for n in range(50)]
        )
    return ValuesResponse([])


async def keys_without_values(request: object, stream: Stream) -> Response | None:
    if isinstance(request, GetRoot):
        return RootResponse(FAKE_ROOT)
    if isinstance(request, GetChildren):
        keys = sorted(next_key(n) for n in range(100))
        first = Node(request.level - 1, request.key, b"h" * 16)
        return ChildrenResponse([first] + [Node(request.level - 1, key, b"h" * 16) for key in keys])
    return None


async def wrong_values(request: object, stream: Stream) -> Response:
    if isinstance(request, GetValues):
        return ValuesResponse([b"\xff" * 500 for _ in request.keys])
    answer = await keys_without_values(request, stream)
    assert answer is not None
    return answer


async def byte_by_byte(request: object, stream: Stream) -> None:
    for byte in encode_frame(encode_response(RootResponse(FAKE_ROOT))):
        await stream.send_all(bytes([byte]))
        await trio.sleep(1)


async def only_aborts(request: object, stream: Stream) -> Response:
    return AbortResponse(0)


async def frame_of_four_gigabytes(request: object, stream: Stream) -> bytes:
    return encode_varint(2**32) + bytes(1000)


async def answers_without_questions(request: object, stream: Stream) -> bytes:
    return encode_frame(encode_response(RootResponse(FAKE_ROOT))) * 10_000


@pytest.mark.parametrize(
    "answer",
    [
        never_ending_children,
        keys_without_values,
        wrong_values,
        byte_by_byte,
        only_aborts,
        frame_of_four_gigabytes,
        answers_without_questions,
    ],
    ids=lambda answer: answer.__name__,
)
async def test_lying_sync_server_costs_little_and_is_backed_off_from(server: Server, answer: Answer) -> None:
    sessions: list[float] = []
    address = f"10.2.6.{len(answer.__name__)}"
    async with honest_peers(server) as watch:
        with suppress(Refusal):
            async with muxed_attacker(server, address, {SYNC: lying(answer, sessions)}) as connection:
                stream = await connection.open_stream([PUSH])
                with suppress(GossipLogError):
                    with trio.move_on_after(6):
                        while True:
                            await stream.send_all(encode_frame(encode_event(Update([next_key(0)]))))
                            await trio.sleep(0.2)
        await watch.rounds(2)
    assert 1 <= len(sessions) <= 8


async def requests(stream: Stream, *asked: object) -> None:
    await stream.send_all(b"".join(encode_frame(encode_request(request)) for request in asked))


async def test_flood_of_sync_requests_is_paced_and_holds_up_nobody(server: Server) -> None:
    async with honest_peers(server) as watch, muxed_attacker(server, "10.2.7.1") as connection, trio.open_nursery() as nursery:
        stream = await connection.open_stream([SYNC])
        answered = 0

        @nursery.start_soon
        async def flood() -> None:
            with suppress(GossipLogError):
                while True:
                    await requests(stream, *[GetRoot()] * 1_000)

        @nursery.start_soon
        async def read() -> None:
            nonlocal answered
            frames = FrameDecoder()
            with suppress(GossipLogError):
                while data := await stream.receive_some():
                    answered += len(frames.take(data))

        started = trio.current_time()
        await watch.rounds(20)
        # 2,000 a second, and as many at once.
        assert answered <= 2_000 * (trio.current_time() - started) + 2_300
        nursery.cancel_scope.cancel()


async def test_responses_that_nobody_reads_are_bounded(server: Server) -> None:
    async with honest_peers(server) as watch, trio.open_nursery() as nursery:

        async def hold(number: int) -> None:
            async with attacking(server, f"10.2.8.{number}") as attacker:
                for _ in range(20):
                    stream = attacker.muxer.open(0.0)
                    attacker.muxer.write(stream, memoryview(Proposal([SYNC]).start()))
                    asked = b"".join(encode_frame(encode_request(GetChildren(1, None))) for _ in range(10_000))
                    attacker.muxer.write(stream, memoryview(asked)[:200_000])
                    with suppress(GossipLogError):
                        await attacker.send(encode_header(FrameKind.WINDOW, 0, stream.id, 2**31))
                await trio.sleep_forever()

        for number in range(6):
            nursery.start_soon(hold, number)
        await watch.rounds(30)
        nursery.cancel_scope.cancel()


async def test_requests_for_too_many_keys_or_that_are_none_are_refused(server: Server) -> None:
    async with honest_peers(server), muxed_attacker(server, "10.2.9.1") as connection:
        too_many = encode_frame(b"\x22" + encode_varint(22 * 5_000) + b"".join(b"\x0a\x14" + next_key(n) for n in range(5_000)))
        for data in (too_many, b"\xff" * 20, encode_frame(b"\x07\x07"), encode_frame(encode_request(GetNode(0, bytes(20))) + b"\xff")):
            stream = await connection.open_stream([SYNC])
            with trio.fail_after(60), pytest.raises(StreamReset):
                await stream.send_all(data)
                while await stream.receive_some():
                    pass


async def test_many_sync_sessions_of_one_peer_wait_for_each_other(server: Server) -> None:
    async with honest_peers(server) as watch, muxed_attacker(server, "10.2.10.1") as connection:
        for _ in range(120):
            with suppress(GossipLogError):
                stream = await connection.open_stream([SYNC])
                await requests(stream, GetRoot())
        await watch.rounds(5)


async def test_sync_sessions_of_forty_peers_leave_room_for_an_honest_one(server: Server) -> None:
    async with honest_peers(server) as watch, trio.open_nursery() as nursery:

        async def occupy(number: int) -> None:
            async with muxed_attacker(server, f"10.2.11.{number}") as connection:
                while True:
                    with suppress(GossipLogError):
                        stream = await connection.open_stream([SYNC])
                        while True:
                            await requests(stream, GetRoot())
                            if not await stream.receive_some():
                                break
                            await trio.sleep(0.5)
                    await trio.sleep(0.5)

        for number in range(40):
            nursery.start_soon(occupy, number)
        await watch.rounds(5)
        with trio.fail_after(SERVED_S * watch.stretch):
            async with muxed_attacker(server, "10.2.12.1") as honest:
                stream = await honest.open_stream([SYNC])
                await requests(stream, GetRoot())
                assert await stream.receive_some()
        nursery.cancel_scope.cancel()


async def test_client_that_stops_reading_is_dropped_and_the_others_do_not_notice(server: Server) -> None:
    async with honest_peers(server, memory_mib=100) as watch, attacking(server, "10.2.13.1") as idle:
        stream = idle.muxer.open(0.0)
        idle.muxer.write(stream, memoryview(Proposal([PUSH]).start() + encode_frame(encode_event(Update([])))))
        await idle.send()
        async with muxed_attacker(server, "10.2.14.1") as connection:
            busy = await connection.open_stream([PUSH])

            async def flood() -> None:
                parents: list[bytes] = []
                for number in range(250):
                    payload = pcf.encode({"n": number, "x": "x" * 60_000})
                    entry = sign_entry(SIGNER, TOPIC, next_clock(parents), parents, payload)
                    await busy.send_all(pushed(entry.key, entry.value))
                    parents = [entry.key]

            with trio.fail_after(60):
                await flood()
            await watch.rounds(10)
        with trio.fail_after(90):
            while True:
                _, connections = await server.get("/api/connections")
                if b"10.2.13.1" not in connections:
                    break
                await trio.sleep(0.5)


async def test_http_requests_out_of_bounds_are_refused(server: Server) -> None:
    async with honest_peers(server, memory_mib=40):
        for target in (
            "/api/messages?limit=1000000",
            "/api/messages?gt=../../etc",
            "/api/messages/" + "x" * 1000,
            "/api/messages?order=sideways",
        ):
            assert (await server.get(target))[0] in (400, 404), target
        for length in (8 * 2**20, 2**40):
            request = (
                f"POST /api/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
            )
            with trio.fail_after(20):
                status, _ = await server.http(request.encode() + b" " * (2 * 2**20))
            assert status in (0, 400, 413)
        request = b"POST /api/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        with trio.fail_after(20):
            status, _ = await server.http(request + b"10000\r\n" + b"[" * 65_536 + b"\r\n0\r\n\r\n")
        assert status in (0, 400, 413)
