"""Attacks by sources of syncs: those that say nothing, that break off, and that forge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count

import pytest
import trio
from hostile_support import PUSH, SERVED_S, SYNC, TOPIC, Refusal, Server, attacking, honest_peers, muxed_attacker
from sync_support import SmallLog, serve_one

import gossiplog
from gossiplog import Ed25519Signer, GossipLog
from gossiplog.codec import pcf
from gossiplog.codec.framing import FrameDecoder, encode_frame
from gossiplog.entry import sign_entry, validate
from gossiplog.errors import GossipLogError
from gossiplog.net import Connection, Stream
from gossiplog.sync.limits import ServerLimits
from gossiplog.sync.rpc import GetValues, Update
from gossiplog.sync.serve_plan import answer
from gossiplog.sync.wire import decode_request, encode_event, encode_response

pytestmark = pytest.mark.slow

_NUMBERS = count()


def new_key() -> bytes:
    return bytes([8]) + next(_NUMBERS).to_bytes(19, "big")


async def announce(connection: Connection, *keys: bytes) -> None:
    stream = await connection.open_stream([PUSH])
    await stream.send_all(encode_frame(encode_event(Update(list(keys)))))


async def serve_small(source: SmallLog, stream: Stream, until: type | None = None) -> None:
    """Serve a sync from any tree, up to a request of some kind."""
    frames = FrameDecoder()
    while data := await stream.receive_some():
        for message in frames.take(data):
            request = decode_request(message)
            if until is not None and isinstance(request, until):
                return
            await stream.send_all(encode_frame(encode_response(serve_one(source, request))))


async def say_nothing(connection: Connection, stream: Stream) -> None:
    while await stream.receive_some():
        pass


async def test_a_hundred_silent_sources_do_not_keep_offline_entries_waiting(server: Server) -> None:
    async with honest_peers(server) as watch, trio.open_nursery() as nursery:
        announced = trio.Event()
        many = 0

        async def crowd(number: int) -> None:
            nonlocal many
            while True:
                with suppress(Refusal, GossipLogError, trio.BrokenResourceError):
                    async with muxed_attacker(server, f"10.3.0.{number % 13}", {SYNC: say_nothing}) as connection:
                        many += 1
                        if many == 100:
                            announced.set()
                        while True:
                            await announce(connection, new_key())
                            await trio.sleep(1)
                await trio.sleep(0.1)

        for number in range(100):
            nursery.start_soon(crowd, number)
        await announced.wait()
        await watch.rounds(2)
        before = await server.count()
        async with gossiplog.open(":memory:", topic=TOPIC, signer=Ed25519Signer.from_seed(b"\x31" * 32)) as honest:
            entries = await honest.append_many({"offline": n} for n in range(20))
            began = trio.current_time()
            async with honest.connect(server.url):
                with trio.fail_after(60):
                    while (await server.get(f"/api/messages/{entries[-1].id}"))[0] != 200:
                        await trio.sleep(0.05)
            took = trio.current_time() - began
        assert await server.count() >= before + 20
        assert took < SERVED_S * watch.stretch, f"{took:.1f} s instead of 0.2"
        nursery.cancel_scope.cancel()


def resetting(log: GossipLog, answers: int, sessions: list[float]) -> Callable[[Connection, Stream], Awaitable[None]]:
    """Serve a log, and reset each stream together with the last of so many answers to getValues: they arrive in one piece."""

    async def serve(connection: Connection, stream: Stream) -> None:
        sessions.append(trio.current_time())
        frames, left = FrameDecoder(), answers
        async with log.snapshot() as snapshot:
            while data := await stream.receive_some():
                for request in map(decode_request, frames.take(data)):
                    reply = await snapshot.run(answer([request], ServerLimits()))
                    left -= isinstance(request, GetValues)
                    if not left:
                        assert stream._write(memoryview(reply.frames[0])) == len(reply.frames[0])
                        stream.reset()
                        return
                    await stream.send_all(reply.frames[0])

    return serve


async def test_what_a_source_answered_before_it_reset_its_stream_is_used(server: Server) -> None:
    sessions: list[float] = []
    signer = Ed25519Signer.from_seed(b"\x32" * 32)
    async with honest_peers(server), gossiplog.open(":memory:", topic=TOPIC, signer=signer) as log:
        entries = await log.append_many({"good": n} for n in range(1_000))
        async with muxed_attacker(server, "10.3.1.1", {SYNC: resetting(log, 1, sessions)}) as connection:
            await announce(connection, entries[-1].key)
            with trio.fail_after(30):
                while (await server.get(f"/api/messages/{entries[-1].id}"))[0] != 200:
                    await trio.sleep(0.05)
    assert len(sessions) <= 20


async def test_source_that_breaks_off_is_asked_less_and_less_often(server: Server) -> None:
    sessions: list[float] = []

    keys = sorted(new_key() for _ in range(1_000))
    source = SmallLog(dict.fromkeys(keys, b"never served"))

    async def break_off(connection: Connection, stream: Stream) -> None:
        sessions.append(trio.current_time())
        await serve_small(source, stream, until=GetValues)
        stream.reset()

    async with honest_peers(server) as watch, muxed_attacker(server, "10.3.2.1", {SYNC: break_off}) as connection:
        await announce(connection, *keys[:100])
        await trio.sleep(15)
        await watch.rounds(2)
    assert 2 <= len(sessions) <= 9


async def test_forgeries_that_come_by_sync_ban_their_source(server: Server) -> None:
    signer = Ed25519Signer.from_seed(b"\x33" * 32)
    forged: dict[bytes, bytes] = {}
    for number in range(8):
        value = sign_entry(signer, TOPIC, 1, [], pcf.encode({"forged": number})).value
        forged_value = value[:-1] + bytes([value[-1] ^ 1])
        verdict = validate(forged_value)
        assert verdict.entry is not None
        assert not verdict.accepted
        forged[verdict.entry.key] = forged_value
    source = SmallLog(forged)

    async def serve(connection: Connection, stream: Stream) -> None:
        await serve_small(source, stream)

    async with honest_peers(server):
        with suppress(GossipLogError):
            async with muxed_attacker(server, "10.3.3.1", {SYNC: serve}) as connection:
                await announce(connection, *forged)
                with trio.fail_after(20):
                    assert (await connection.wait_ended()).startswith("the peer closed it")
        with pytest.raises(Refusal):
            async with attacking(server, "10.3.3.1"):
                pass
