"""Links without processes: an echo at the one end, a plain socket at the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from random import Random

import pytest
import trio

from gossiplog.testnet.links import Conditions, Links, late_by

HERE, DOOR = "127.0.0.1", "127.91.0.1"
DIALLER, STRANGER = "127.91.0.2", "127.91.0.3"
PATIENCE_S = 20.0


@asynccontextmanager
async def echo_at_a_door(conditions: Conditions | None = None) -> AsyncIterator[tuple[Links, tuple[str, int]]]:
    async with trio.open_nursery() as nursery:

        async def echo(stream: trio.SocketStream) -> None:
            with suppress(trio.BrokenResourceError):
                async for data in stream:
                    await stream.send_all(data)

        [listener] = await nursery.start(partial(trio.serve_tcp, echo, 0, host=HERE))
        place = listener.socket.getsockname()[:2]
        links = Links(conditions or Conditions(), Random(1), nursery)
        known = {DIALLER: (1, DIALLER)}
        await links.stand_for(0, place, (DOOR, place[1]), known.get)
        with trio.fail_after(PATIENCE_S):
            yield links, (DOOR, place[1])
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def dialled(door: tuple[str, int], source: str = DIALLER) -> AsyncIterator[trio.SocketStream]:
    async with await trio.open_tcp_stream(*door, local_address=source) as stream:
        yield stream


async def test_what_is_sent_arrives_whole_and_in_order_over_a_lossy_link() -> None:
    async with echo_at_a_door(Conditions(lambda a, b: 0.001, jitter=1.0, loss=0.01)) as (links, door), dialled(door) as stream:
        sent, received = Random(2).randbytes(60_000), bytearray()
        await stream.send_all(sent)
        while len(received) < len(sent):
            received += await stream.receive_some()
        assert received == sent
        assert links.between(0, 1).bytes >= len(sent)


async def test_cut_resets_what_stands_and_refuses_what_comes_and_heals() -> None:
    async with echo_at_a_door() as (links, door), dialled(door) as stream:
        await stream.send_all(b"before")
        assert await stream.receive_some() == b"before"
        links.cut(1, 0)
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()
        async with dialled(door) as late:
            with pytest.raises(trio.BrokenResourceError):
                await late.receive_some()
        links.heal(0, 1)
        async with dialled(door) as again:
            await again.send_all(b"after")
            assert await again.receive_some() == b"after"


async def test_silent_cut_holds_back_what_is_sent_until_it_heals() -> None:
    async with echo_at_a_door() as (links, door), dialled(door) as stream:
        await stream.send_all(b"1")
        assert await stream.receive_some() == b"1"
        links.cut(0, 1, silent_s=PATIENCE_S)
        await stream.send_all(b"2")
        with trio.move_on_after(0.2) as waiting:
            await stream.receive_some()
        assert waiting.cancelled_caught
        links.heal(0, 1)
        assert await stream.receive_some() == b"2"


async def test_silent_cut_that_lasts_is_told_at_its_end() -> None:
    async with echo_at_a_door() as (links, door), dialled(door) as stream:
        links.cut(0, 1, silent_s=0.05)
        with pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()


async def test_what_waits_at_a_slow_link_comes_at_once_when_it_is_slow_no_more() -> None:
    async with echo_at_a_door() as (links, door), dialled(door) as stream:
        links.between(0, 1).limit(10.0)
        await stream.send_all(bytes(1_000))
        with trio.move_on_after(0.2) as waiting:
            await stream.receive_some()
        assert waiting.cancelled_caught
        links.between(0, 1).limit(0.0)
        received = 0
        while received < 1_000:
            received += len(await stream.receive_some())


async def test_stranger_finds_no_way_around_a_cut() -> None:
    async with echo_at_a_door() as (_, door), dialled(door, STRANGER) as stream:
        await stream.send_all(b"let me in")
        with suppress(trio.BrokenResourceError):
            assert await stream.receive_some() == b""


def test_lost_segments_come_after_a_time_out_or_a_round_trip_and_never_without_loss() -> None:
    rng = Random(3)
    assert late_by(100_000, 0.05, 0.0, rng) == 0.0
    single = [late_by(100, 0.05, 0.1, rng) for _ in range(20_000)]
    late = [value for value in single if value]
    assert len(late) / len(single) == pytest.approx(0.1, abs=0.01)
    assert min(late) == pytest.approx(0.3)
    assert any(value == pytest.approx(0.9) for value in late), "the time-out doubles"
    assert any(late_by(100_000, 0.05, 0.02, rng) == pytest.approx(0.1) for _ in range(100)), "one round trip, as others follow"
