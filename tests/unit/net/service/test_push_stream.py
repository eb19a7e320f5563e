"""One push stream: its queue, its order, and how it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest
import trio
from muxer_support import muxed_pair

from gossiplog.codec.framing import FrameDecoder, encode_frame
from gossiplog.errors import DecodeError
from gossiplog.net import Stream
from gossiplog.net.service.push_stream import QUEUE_BYTES_MAX, STALLED_S, PushStream
from gossiplog.net.service.timers import Timers
from gossiplog.pubsub.types import TimerToken


@asynccontextmanager
async def pushing(received: list[bytes]) -> AsyncIterator[tuple[PushStream, Stream]]:
    """A push stream that runs, and the other end of it."""
    opened: list[PushStream] = []
    ended = trio.Event()

    async def take(message: bytes) -> None:
        received.append(message)

    async def serve(connection: object, stream: Stream) -> None:
        opened.append(PushStream(stream, take))
        try:
            await opened[0].run()
        finally:
            ended.set()

    async with muxed_pair({}, {"/push": serve}) as (client, _):  # type: ignore[dict-item]
        theirs = await client.open_stream(["/push"])
        while not opened:
            await trio.lowlevel.checkpoint()
        yield opened[0], theirs
        theirs.reset()
        with trio.fail_after(60):
            await ended.wait()


async def test_messages_arrive_whole_and_in_order() -> None:
    received: list[bytes] = []
    async with pushing(received) as (push, theirs):
        sent = [bytes([n % 256]) * (n * 37 % 3000) for n in range(300)]
        for message in sent:
            assert push.put(encode_frame(message))
        await theirs.send_all(b"".join(map(encode_frame, sent)))
        frames, back = FrameDecoder(), list[bytes]()
        while len(back) < len(sent):
            back += frames.take(await theirs.receive_some())
        assert back == sent
        with trio.fail_after(60):
            await push.drain()
        while len(received) < len(sent):
            await trio.lowlevel.checkpoint()
        assert received == sent
        assert push.queued_bytes == 0


async def test_queue_of_a_reader_that_stops_has_an_end() -> None:
    async with pushing([]) as (push, _):
        frame = encode_frame(bytes(100_000))
        taken = 0
        for _ in range(200):
            taken += push.put(frame)
            await trio.testing.wait_all_tasks_blocked()
        assert push.queued_bytes <= QUEUE_BYTES_MAX
        assert not push.put(frame)
        # The queue, and what the window and the muxer took.
        assert QUEUE_BYTES_MAX <= taken * len(frame) <= QUEUE_BYTES_MAX + 2 * 2**20


async def test_message_larger_than_the_queue_finds_room_when_it_is_alone() -> None:
    async with pushing([]) as (push, _):
        assert push.put(bytes(QUEUE_BYTES_MAX + 1))
        assert not push.put(b"x")


async def test_reader_that_took_nothing_for_long_is_stalled(autojump_clock: trio.testing.MockClock) -> None:
    async with pushing([]) as (push, theirs):
        assert not push.is_stalled()
        push.put(bytes(QUEUE_BYTES_MAX))
        await trio.testing.wait_all_tasks_blocked()
        assert not push.is_stalled()
        await trio.sleep(STALLED_S + 1)
        assert push.is_stalled()
        received = 0
        while received < QUEUE_BYTES_MAX:
            received += len(await theirs.receive_some(2**20))
        await push.drain()
        assert not push.is_stalled()


async def test_end_of_the_stream_frees_the_queue_and_whoever_waits_for_it() -> None:
    async with pushing([]) as (push, theirs):
        push.put(bytes(QUEUE_BYTES_MAX))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(push.drain)
            await trio.testing.wait_all_tasks_blocked()
            theirs.reset()
        assert push.queued_bytes == 0


@pytest.mark.parametrize("seed", range(3))
async def test_messages_keep_their_order_whether_they_are_taken_at_once_or_have_to_wait(seed: int) -> None:
    rng = Random(seed)
    sent = [rng.randbytes(rng.choice([1, 100, 9_000])) for _ in range(400)]
    taken, waited, done = list[bytes](), 0, trio.Event()

    async def take(message: bytes) -> None:
        nonlocal waited
        await trio.lowlevel.checkpoint()
        waited += 1
        taken.append(message)

    def take_now(message: bytes) -> bool:
        if rng.random() < 0.1:
            return False
        taken.append(message)
        return True

    async def serve(connection: object, stream: Stream) -> None:
        await PushStream(stream, take, take_now).run()
        done.set()

    async with muxed_pair({}, {"/push": serve}) as (client, _):  # type: ignore[dict-item]
        stream = await client.open_stream(["/push"])
        data = b"".join(map(encode_frame, sent))
        while data:
            size = rng.choice([1, 50, 20_000])
            await stream.send_all(data[:size])
            data = data[size:]
        stream.close_sending()
        with trio.fail_after(30):
            await done.wait()
    assert taken == sent
    assert 0 < waited < len(sent)


async def test_what_is_no_frame_raises() -> None:
    async def take(message: bytes) -> None:
        raise AssertionError

    raised: list[BaseException] = []

    async def serve(connection: object, stream: Stream) -> None:
        with pytest.raises(DecodeError) as caught:
            await PushStream(stream, take).run()
        raised.append(caught.value)

    async with muxed_pair({}, {"/push": serve}) as (client, _):  # type: ignore[dict-item]
        stream = await client.open_stream(["/push"])
        await stream.send_all(b"\xff" * 11)
        with trio.fail_after(60):
            while not raised:
                await trio.sleep(0.01)


async def test_timers_fire_once_at_their_last_time(autojump_clock: trio.testing.MockClock) -> None:
    fired: list[tuple[str, float]] = []
    timers = Timers(lambda token: fired.append((token, trio.current_time())))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timers.run)
        timers.set(TimerToken("late"), 100.0)
        timers.set(TimerToken("moved"), 5.0)
        await trio.sleep(1)
        timers.set(TimerToken("moved"), 50.0)
        timers.set(TimerToken("soon"), 3.0)
        await trio.sleep(200)
        timers.set(TimerToken("past"), 10.0)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert [token for token, _ in fired] == ["soon", "moved", "late", "past"]
    assert [round(at) for _, at in fired] == [3, 50, 100, 201]


async def test_thousands_of_small_messages_in_one_piece_do_not_take_one_turn() -> None:
    turns, taken_in = 0, list[int]()

    def take_now(message: bytes) -> bool:
        taken_in.append(turns)
        return True

    async def take(message: bytes) -> None:
        take_now(message)

    async def serve(connection: object, stream: Stream) -> None:
        await PushStream(stream, take, take_now).run()

    async with muxed_pair({}, {"/push": serve}) as (client, _):  # type: ignore[dict-item]
        theirs = await client.open_stream(["/push"])
        await trio.testing.wait_all_tasks_blocked()
        await theirs.send_all(encode_frame(b"x") * 2_000)
        with trio.fail_after(30):
            while len(taken_in) < 2_000:
                turns += 1
                await trio.lowlevel.checkpoint()
        theirs.reset()
    assert max(taken_in.count(turn) for turn in set(taken_in)) < 100
