"""The browser client and hubs that mean harm: nothing of theirs is stored, and an honest hub is synced with after that."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from interop_support import Reference
from mesh_support import eventually
from network_support import PATIENCE_S, memory_log, signer

from gossiplog.codec import pcf
from gossiplog.codec.framing import FrameDecoder, encode_frame
from gossiplog.entry import Entry, sign_entry
from gossiplog.errors import StreamReset
from gossiplog.net.ground.protocol_ids import presence_protocol, push_protocol, reconcile_protocol
from gossiplog.net.transport.http_head import read_head
from gossiplog.net.transport.muxed import Connection, Handler, Stream, open_muxed
from gossiplog.net.transport.tcp import TcpStream
from gossiplog.net.transport.websocket import accept_websocket
from gossiplog.pubsub.types import PeerId
from gossiplog.reconcile.messages import Hello, More, Result, Symbols, Values, Want, decode, encode, pack
from gossiplog.sketch import SYMBOLS_MAX, Sketch
from gossiplog.sync.rpc import Insert, Update
from gossiplog.sync.wire import encode_event
from gossiplog.tree.node import Node

TOPIC = "client.example.com"
RESULT = Result(Node(0, None, bytes(16)))


def entry(number: int = 0, topic: str = TOPIC) -> Entry:
    return sign_entry(signer(9), topic, 1, [], pcf.encode({"n": number}))


def forged(number: int = 0) -> Entry:
    """One whose payload was changed after it was signed."""
    value = entry(number).value
    return Entry.decode(value[:-1] + bytes([value[-1] ^ 1]))


GOOD = sorted((entry(number) for number in range(20)), key=lambda one: one.key)


@asynccontextmanager
async def hostile_hub(handlers: Mapping[str, Handler], serve: Callable[[Any], Awaitable[None]] | None = None) -> AsyncIterator[str]:
    """A hub that answers with these handlers, or does with the WebSocket's bytes as it likes."""

    async def accept(raw: trio.SocketStream) -> None:
        stream = TcpStream(raw)
        websocket = await accept_websocket(stream, await read_head(stream, 65_536))
        if serve is not None:
            await serve(websocket)
        else:
            async with open_muxed(websocket, is_client=False, peer=PeerId("page"), handlers=handlers) as muxed:
                await muxed.wait_ended()

    async with trio.open_nursery() as nursery:
        listener, *_ = await nursery.start(partial(trio.serve_tcp, forgive(accept), 0, host="127.0.0.1"))
        yield f"ws://127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


def forgive(accept: Callable[[trio.SocketStream], Awaitable[None]]) -> Callable[[trio.SocketStream], Awaitable[None]]:
    async def accepting(raw: trio.SocketStream) -> None:
        try:
            await accept(raw)
        except Exception:  # the client hangs up in the middle of anything
            await raw.aclose()

    return accepting


class Session:
    """One reconciliation, of the hub's side."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._frames = FrameDecoder()

    async def receive(self) -> Any:
        while (frame := self._frames.next()) is None:
            data = await self.stream.receive_some()
            assert data
            self._frames.feed(data)
        assert isinstance(frame, bytes)
        return decode(frame)

    async def send(self, *messages: Any) -> None:
        for message in messages:
            await self.stream.send_all(message if isinstance(message, bytes) else encode(message))


def sketch_of(*entries: Entry) -> Sketch:
    sketch = Sketch()
    sketch.add([one.key for one in entries])
    return sketch


async def wholesale(session: Session, *messages: Any) -> None:
    await session.send(Hello(len(GOOD), is_wholesale=True), *messages)


async def difference(session: Session, *entries: Entry, gives: list[Entry]) -> None:
    """Say that we have these entries beside the client's one, and send others for them."""
    hello = await session.receive()
    sketch = sketch_of(*entries)
    sketch.counts[0] += hello.count
    await session.send(Hello(len(entries), pack(sketch_of(*entries), 0, 64)))
    while not isinstance(message := await session.receive(), Want):
        assert isinstance(message, More)
        await session.send(Symbols(b""))
    await session.send(Values([one.value for one in gives]), RESULT)


async def noise(session: Session) -> None:
    """Symbols without an end that mean nothing."""
    chance = random.Random(32)
    await session.receive()
    await session.send(Hello(100, b"".join(chance.randbytes(28) + b"\0" for _ in range(64))))
    while isinstance(message := await session.receive(), More):
        await session.send(Symbols(b"".join(chance.randbytes(28) + b"\0" for _ in range(message.count))))


VALUES = [one.value for one in GOOD]
SESSIONS: dict[str, Callable[[Session], Awaitable[None]]] = {
    "values out of order": lambda session: wholesale(session, Values(VALUES[::-1]), Values([]), RESULT),
    "more values than were told of": lambda session: wholesale(session, *[Values(VALUES[:1] * 400)] * 3, Values([]), RESULT),
    "forged entries": lambda session: wholesale(session, Values([forged(n).value for n in range(3)]), Values([]), RESULT),
    "entries of another topic": lambda session: wholesale(session, Values([entry(1, "other.example.com").value]), Values([]), RESULT),
    "values that are none": lambda session: wholesale(session, Values([b"", b"\x00", b"\xff" * 100]), Values([]), RESULT),
    "a result in place of values": lambda session: wholesale(session, RESULT),
    "a frame of 1 GiB": lambda session: session.send(b"\x80\x80\x80\x80\x04" + bytes(1_000)),
    "a frame without a length": lambda session: session.send(b"\xff" * 1_000),
    "a frame of two million values": lambda session: session.send(Hello(1, is_wholesale=True), encode_frame(b"\5" + b"\x0a\0" * 2_000_000)),
    "a frame of two million fields": lambda session: session.send(encode_frame(b"\1" + b"\x52\0" * 2_000_000)),
    "a message of no kind": lambda session: session.send(encode_frame(b"\x63abc")),
    "a hello without symbols": lambda session: session.send(Hello(5)),
    "a symbol that is cut short": lambda session: session.send(Hello(5, bytes(20))),
    "more symbols than a sketch has": lambda session: session.send(Hello(5, bytes(29) * (SYMBOLS_MAX + 1))),
    "a count of 2^63": lambda session: session.send(encode_frame(b"\x01\x08" + b"\xff" * 8 + b"\x7f")),
    "symbols that mean nothing": noise,
    "another entry than was wanted": lambda session: difference(session, GOOD[0], gives=[GOOD[1]]),
    "fewer symbols than were asked for": lambda session: difference(session, *(entry(n) for n in range(90)), gives=[]),
}


def serving(session: Callable[[Session], Awaitable[None]]) -> dict[str, Handler]:
    async def serve(_: Connection, stream: Stream) -> None:
        await session(Session(stream))

    async def push(_: Connection, stream: Stream) -> None:
        await trio.sleep_forever()

    return {reconcile_protocol(TOPIC): serve, push_protocol(TOPIC): push}


def pushing(*frames: bytes) -> dict[str, Handler]:
    async def reconcile(_: Connection, stream: Stream) -> None:
        session = Session(stream)
        await session.receive()
        await session.send(RESULT)

    async def push(_: Connection, stream: Stream) -> None:
        for frame in frames:
            await stream.send_all(frame)
        await trio.sleep_forever()

    return {reconcile_protocol(TOPIC): reconcile, push_protocol(TOPIC): push}


def pushed(one: Entry) -> bytes:
    return encode_event(Insert(one.key, one.value))


PUSHES = {
    "a forged entry": [encode_frame(pushed(forged()))],
    "an entry of another topic": [encode_frame(pushed(entry(0, "other.example.com")))],
    "what is no event": [encode_frame(b"\x0a\x05abc")],
    "an update with what are no heads": [encode_frame(b"\x12\x04\x0a\x02ab")],
    "a frame beyond 4 MiB": [b"\x81\x80\x80\x02" + bytes(100)],
}
BYTES = {
    "noise": random.Random(32).randbytes(4_000),
    "a stream with an id of ours": bytes.fromhex("00 01 00 01 00000001 00000000"),
    "data for a stream that is not open": bytes.fromhex("00 00 00 00 00000008 00004000") + bytes(0x4000),
    "more data than there is room for": bytes.fromhex("00 00 00 00 00000001 7fffffff") + bytes(1_000),
    "two hundred streams": b"".join(bytes.fromhex("00 01 00 01") + (2 * n).to_bytes(4) + bytes(4) for n in range(1, 201)),
}


QUICK = {"values out of order", "a forged entry", "noise"}


def cases(all_: Mapping[str, Any]) -> list[Any]:
    """One of each kind is quick."""
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in all_]


async def assert_harmless(client: Reference, url: str, *, is_cut_off: bool = True) -> None:
    """Connect to such a hub, and to an honest one after it."""
    await client.ask("open", name="a", topic=TOPIC, seed="07" * 32)
    own = await client.ask("append", name="a", payload={"own": True})
    await client.ask("connect", name="a", url=url)
    if is_cut_off:

        async def has_error() -> bool:
            return bool((await client.ask("link", name="a"))["error"])

        await eventually(has_error, PATIENCE_S)
    else:
        await trio.sleep(0.2)
    await client.ask("disconnect", name="a")
    kept = set(await client.ask("ids", name="a")) - {own}
    assert kept <= {one.id for one in GOOD}
    async with memory_log(1, TOPIC) as log, log.listen("127.0.0.1:0") as hub:
        await log.append_many(range(5))
        await client.ask("connect", name="a", url=hub.urls[0])
        with trio.fail_after(PATIENCE_S):
            await client.ask("settled", name="a")
        assert await client.ask("ids", name="a") == [one.id async for one in log.iterate()]
        assert {own, *kept} <= {one.id async for one in log.iterate()}


@pytest.mark.parametrize("case", cases(SESSIONS))
async def test_a_session_with_what_it_must_not_have_ends(case: str, client: Reference) -> None:
    async with hostile_hub(serving(SESSIONS[case])) as url:
        # A few forged entries do not end a session: an older log may have some, and they are not taken.
        await assert_harmless(client, url, is_cut_off=not case.startswith(("forged", "entries of", "values that are none")))


async def test_where_each_sends_all_that_it_has_nothing_is_sent_back_that_came_meanwhile(client: Reference) -> None:
    parents: list[Entry] = []
    for clock in range(1, 21):
        parents.append(sign_entry(signer(9), TOPIC, clock, [one.key for one in parents[-1:]], pcf.encode("theirs")))
    came: list[bytes] = []
    is_over = trio.Event()

    async def session(session: Session) -> None:
        await session.receive()
        await session.send(Hello(20_000, is_wholesale=True), Values([one.value for one in parents]), Values([]))

        async def has_all() -> bool:
            return len(await client.ask("ids", name="a")) == 30

        # What the client sends is more than we have room for, so it goes on only now.
        await eventually(has_all, PATIENCE_S)
        while (message := await session.receive()).values:
            came.extend(message.values)
        is_over.set()
        await session.send(RESULT)

    await client.ask("open", name="a", topic=TOPIC, seed="07" * 32)
    await client.ask("appendMany", name="a", payloads=["x" * 60_000] * 10)
    async with hostile_hub(serving(session)) as url:
        await client.ask("connect", name="a", url=url)
        with trio.fail_after(PATIENCE_S):
            await is_over.wait()
    assert [len(value) > 60_000 for value in came] == [True] * 10


@pytest.mark.parametrize("case", cases(PUSHES))
async def test_what_must_not_be_pushed_costs_the_connection(case: str, client: Reference) -> None:
    async with hostile_hub(pushing(*PUSHES[case])) as url:
        await assert_harmless(client, url)


@pytest.mark.parametrize("case", cases(BYTES))
async def test_what_is_not_the_muxers_costs_the_connection(case: str, client: Reference) -> None:
    async def serve(websocket: Any) -> None:
        await websocket.send_all(BYTES[case])
        await trio.sleep_forever()

    async with hostile_hub({}, serve) as url:
        await assert_harmless(client, url, is_cut_off=case != "two hundred streams")


@pytest.mark.slow
async def test_bytes_that_come_one_by_one_cost_what_they_weigh(client: Reference) -> None:
    """A frame of 1 MiB in a million pieces: copied anew with each, it would take minutes."""

    async def serve(websocket: Any) -> None:
        stream = bytes.fromhex("00 00 00 00 00000001 00000001")
        frame = encode_frame(bytes(1 << 20))
        while not (await websocket.receive_some()):
            pass
        for at in range(0, len(frame), 50_000):
            await websocket.send_all(b"".join(stream + bytes([byte]) for byte in frame[at : at + 50_000]))
        await trio.sleep_forever()

    async with hostile_hub({}, serve) as url:
        before = await client.ask("spent")
        await assert_harmless(client, url)
        spent = await client.ask("spent")
    assert spent["user"] - before["user"] < 10e6


@pytest.mark.slow
async def test_a_hub_that_does_not_read_what_it_lets_the_page_send_is_left(client: Reference) -> None:
    """The third stream that a client opens is its session, for which this hub has a window of 1 GiB."""

    async def serve(websocket: Any) -> None:
        agreed = b"".join(encode_frame(line + b"\n") for line in (b"/multistream/1.0.0", reconcile_protocol(TOPIC).encode()))
        body = agreed + encode(Hello(0, is_wholesale=True))
        await websocket.receive_some()
        await websocket.send_all(bytes.fromhex("00 01 00 00 00000005 40000000"))
        await websocket.send_all(bytes.fromhex("00 00 00 00 00000005") + len(body).to_bytes(4) + body)
        await trio.sleep_forever()

    async with hostile_hub({}, serve) as url:
        await client.ask("open", name="a", topic=TOPIC, seed="07" * 32)
        await client.ask("appendMany", name="a", payloads=["x" * 60_000] * 400)
        await client.ask("connect", name="a", url=url)

        async def is_left() -> bool:
            return "does not read" in ((await client.ask("link", name="a"))["error"] or "")

        await eventually(is_left, PATIENCE_S)


@pytest.mark.parametrize(("frames", "is_cut_off"), [(4_900, False), (8_000, True)])
async def test_presence_without_an_end_costs_its_stream(frames: int, is_cut_off: bool, client: Reference) -> None:
    """4,000 frames are heard and 1,000 forgiven; a departure of nobody costs as little as any."""
    ended = trio.Event()

    async def presence(_: Connection, stream: Stream) -> None:
        try:
            await stream.send_all(encode_frame(b"\2" + bytes(48)) * frames)
            while await stream.receive_some():
                pass
        except StreamReset:
            ended.set()

    async with hostile_hub({**pushing(), presence_protocol(TOPIC): presence}) as url:
        await client.ask("open", name="a", topic=TOPIC, seed="07" * 32)
        await client.ask("presence", name="a")
        await client.ask("connect", name="a", url=url)
        with trio.move_on_after(PATIENCE_S if is_cut_off else 1):
            await ended.wait()
        assert ended.is_set() == is_cut_off
        assert (await client.ask("link", name="a"))["isConnected"]


async def test_heads_without_an_end_cost_ten_sessions_a_second(client: Reference) -> None:
    begun = list[float]()

    async def reconcile(_: Connection, stream: Stream) -> None:
        session = Session(stream)
        hello = await session.receive()
        begun.append(trio.current_time())
        await session.send(Hello(0, is_wholesale=True), Values([]), RESULT) if hello.after else await session.send(RESULT)

    async def push(_: Connection, stream: Stream) -> None:
        while True:
            await stream.send_all(encode_frame(encode_event(Update([random.randbytes(20)]))))
            await trio.sleep(0.001)

    async with hostile_hub({reconcile_protocol(TOPIC): reconcile, push_protocol(TOPIC): push}) as url:
        await client.ask("open", name="a", topic=TOPIC, seed="07" * 32)
        await client.ask("connect", name="a", url=url)
        await eventually(lambda: len(begun) >= 14, PATIENCE_S)
        await client.ask("disconnect", name="a")
    # The first, the one of everything and the one after it are not provoked.
    assert begun[13] - begun[0] >= 0.9


async def test_heads_that_nobody_has_cost_one_stream_of_everything_and_no_more(client: Reference) -> None:
    begun = list[bool]()

    async def reconcile(_: Connection, stream: Stream) -> None:
        session = Session(stream)
        hello = await session.receive()
        begun.append(hello.after is not None)
        await session.send(Hello(0, is_wholesale=True), Values([]), RESULT) if hello.after else await session.send(RESULT)

    async def push(_: Connection, stream: Stream) -> None:
        for _ in range(20):
            await stream.send_all(encode_frame(encode_event(Update([random.randbytes(20)]))))
            await trio.sleep(0.01)
        await trio.sleep_forever()

    async with hostile_hub({reconcile_protocol(TOPIC): reconcile, push_protocol(TOPIC): push}) as url:
        await client.ask("open", name="a", topic=TOPIC, seed="07" * 32)
        await client.ask("connect", name="a", url=url)
        with trio.fail_after(PATIENCE_S):
            while sum(begun) < 1 or len(begun) < 4:
                await trio.sleep(0.02)
        await trio.sleep(0.3)
        await client.ask("disconnect", name="a")
        assert sum(begun) == 1
        assert len(begun) <= 30


async def test_heads_that_are_told_of_during_a_session_cost_one_more_and_no_stream_of_everything(client: Reference) -> None:
    """The session began before the hub had them, so that it did not bring them says nothing."""
    begun, told = list[bool](), trio.Event()
    late = entry(1)

    async def reconcile(_: Connection, stream: Stream) -> None:
        session = Session(stream)
        hello = await session.receive()
        begun.append(hello.after is not None)
        if len(begun) == 1:
            told.set()
            await trio.sleep(0.3)
            await session.send(RESULT)
        elif hello.count == 0:
            await session.send(Hello(1, pack(sketch_of(late), 0, 1)))
            assert isinstance(await session.receive(), Want)
            await session.send(Values([late.value]), RESULT)
        else:
            await session.send(RESULT)

    async def push(_: Connection, stream: Stream) -> None:
        await told.wait()
        await stream.send_all(encode_frame(encode_event(Update([late.key]))))
        await trio.sleep_forever()

    async with hostile_hub({reconcile_protocol(TOPIC): reconcile, push_protocol(TOPIC): push}) as url:
        await client.ask("open", name="a", topic=TOPIC, seed="07" * 32)
        await client.ask("connect", name="a", url=url)

        async def has_it() -> bool:
            return bool(await client.ask("ids", name="a") == [late.id])

        await eventually(has_it, PATIENCE_S)
        await client.ask("disconnect", name="a")
    assert begun[:2] == [False, False]
