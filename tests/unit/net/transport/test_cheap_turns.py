"""Small pieces are soon where they go: what is read is handed on in the reader's step, and one task writes for all connections."""

from contextlib import asynccontextmanager
from random import Random
from statistics import mean

import pytest
import trio
from busy_loop import busy_neighbour
from muxer_support import echo, muxed_pair, tcp_pair
from trio.testing import wait_all_tasks_blocked

from gossiplog.errors import DecodeError, StreamReset
from gossiplog.net import open_muxed
from gossiplog.net.transport.flushes import Flushes
from gossiplog.net.transport.http_head import read_head
from gossiplog.net.transport.tcp import TcpStream
from gossiplog.net.transport.websocket import accept_websocket, connect_websocket
from gossiplog.net.transport.yamux.machine import WINDOW_BYTES
from gossiplog.pubsub.types import PeerId


async def rounds_until_taken(take_all):
    """In how many rounds of a busy event loop a piece is taken by a handler, on average: trio begins a round with any of its tasks."""
    taken, waited = [], []

    async def read(connection, stream):
        await take_all(stream, taken)

    async with muxed_pair({}, {"/read": read}) as (client, _), busy_neighbour(0.002) as rounds:
        stream = await client.open_stream(["/read"])
        for number in range(60):
            before = rounds()
            await stream.send_all(b"%d" % number)
            while len(taken) <= number:
                await trio.lowlevel.checkpoint()
            waited.append(rounds() - before)
        assert taken == [b"%d" % number for number in range(60)]
        stream.close_sending()
    return mean(waited)


async def test_what_is_handed_on_is_taken_a_round_earlier_than_what_is_received():
    """It wakes no task of the stream: the reader's step takes it."""

    async def hand_on(stream, taken):
        assert not await stream.hand_on(lambda data: not taken.append(data))

    async def receive(stream, taken):
        while data := await stream.receive_some():
            taken.append(data)

    assert await rounds_until_taken(hand_on) < await rounds_until_taken(receive)


async def test_what_is_handed_on_waits_while_its_taker_wants_no_more():
    taken, resume = [], trio.Event()

    def take(data):
        taken.append(data)
        return data != b"enough"

    async def read(connection, stream):
        assert await stream.hand_on(take)
        await resume.wait()
        assert await stream.receive_some() == b"rest"
        assert not await stream.hand_on(take)

    async with muxed_pair({}, {"/read": read}) as (client, _):
        stream = await client.open_stream(["/read"])
        for data in (b"one", b"enough", b"rest"):
            await stream.send_all(data)
            await wait_all_tasks_blocked()
        assert taken == [b"one", b"enough"]
        resume.set()
        await wait_all_tasks_blocked()
        await stream.send_all(b"two")
        stream.close_sending()
        await wait_all_tasks_blocked()
        assert taken == [b"one", b"enough", b"two"]
        assert await stream.receive_some() == b"", "the handler ended without a fault"


@pytest.mark.parametrize("ends", ["fault", "reset", "gone"])
async def test_what_goes_wrong_while_bytes_are_handed_on_is_raised_to_who_waits_for_them(ends):
    raised = []

    def take(data):
        if ends == "fault":
            raise DecodeError("nonsense")
        return True

    async def read(connection, stream):
        with pytest.raises((DecodeError, StreamReset)) as caught:
            await stream.hand_on(take)
        raised.append(type(caught.value))

    async with muxed_pair({}, {"/read": read, "/echo": echo}) as (client, server):
        stream = await client.open_stream(["/read"])
        await stream.send_all(b"x")
        await wait_all_tasks_blocked()
        if ends == "reset":
            stream.reset()
        elif ends == "gone":
            # Without a word, as a process that is killed.
            await client._byte_stream.aclose()
        else:
            other = await client.open_stream(["/echo"])
            await other.send_all(b"as good as new")
            assert await other.receive_some() == b"as good as new"
        await server.wait_ended() if ends == "gone" else await wait_all_tasks_blocked()
        with trio.fail_after(60):
            while not raised:
                await trio.lowlevel.checkpoint()
        assert raised == [DecodeError if ends == "fault" else StreamReset]


@pytest.mark.parametrize("seed", range(4))
async def test_no_byte_is_lost_or_moved_whether_pieces_are_handed_on_or_read(seed):
    rng = Random(seed)
    sent, received, done = rng.randbytes(400_000), bytearray(), trio.Event()

    def take(data):
        received.extend(data)
        return rng.random() < 0.6

    async def read(connection, stream):
        while await stream.hand_on(take):
            if rng.random() < 0.5:
                await trio.lowlevel.checkpoint()
            if rng.random() < 0.5:
                received.extend(await stream.receive_some(rng.choice([1, 1000])))
        done.set()

    async with muxed_pair({}, {"/read": read}, pair=await tcp_pair() if seed % 2 else None) as (client, _):
        stream = await client.open_stream(["/read"])
        start = 0
        while start < len(sent):
            size = rng.choice([1, 100, 70_000])
            await stream.send_all(sent[start : start + size])
            start += size
        stream.close_sending()
        with trio.fail_after(30):
            await done.wait()
    assert received == sent


async def websockets(left, right):
    """A WebSocket's two ends on two of a connection."""
    ends = {}

    async def accept():
        ends["server"] = await accept_websocket(right, await read_head(right, 16_384))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept)
        ends["client"] = await connect_websocket(left, "localhost", "/")
    return ends["client"], ends["server"]


class Deaf(TcpStream):
    """An end that reads nothing until its event is set."""

    __slots__ = ("may_read",)

    async def receive_some(self):
        await self.may_read.wait()
        return await super().receive_some()


@asynccontextmanager
async def flushed_pair(handlers, flushes, left, right):
    """The connections at both ends, whose writing one task does for both."""
    async with (
        open_muxed(left, is_client=True, peer=PeerId("server"), flushes=flushes) as client,
        open_muxed(right, is_client=False, peer=PeerId("client"), handlers=handlers, flushes=flushes) as server,
    ):
        yield client, server


@asynccontextmanager
async def running_flushes():
    """Have a task write for all connections that are given this."""
    flushes = Flushes()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(flushes.run)
        yield flushes
        nursery.cancel_scope.cancel()


async def test_a_peer_that_reads_nothing_holds_up_none_of_the_others_one_task_writes_for():
    left, right = await tcp_pair()
    left.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_SNDBUF, 4_096)
    deaf_end = Deaf(right)
    deaf_end.may_read = trio.Event()
    deaf_end.may_read.set()
    others = [TcpStream(end) for end in await tcp_pair()]
    async with (
        running_flushes() as flushes,
        flushed_pair({"/echo": echo}, flushes, TcpStream(left), deaf_end) as (deaf, _),
        flushed_pair({"/echo": echo}, flushes, *others) as (client, _),
        trio.open_nursery() as nursery,
    ):
        held_up, stream = [await connection.open_stream(["/echo"]) for connection in (deaf, client)]
        await held_up.send_all(b"x")
        assert await held_up.receive_some() == b"x"
        deaf_end.may_read = trio.Event()
        nursery.start_soon(held_up.send_all, bytes(64 * WINDOW_BYTES))
        await wait_all_tasks_blocked()
        with trio.fail_after(30):
            for number in range(100):
                await stream.send_all(b"%d" % number)
                assert await stream.receive_some() == b"%d" % number
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("are_websockets", [False, True])
async def test_what_a_socket_does_not_take_at_once_goes_out_whole_and_in_order(are_websockets):
    data = Random(0).randbytes(8 * WINDOW_BYTES)

    async def send(stream):
        await stream.send_all(data)
        stream.close_sending()

    async def check(client):
        stream = await client.open_stream(["/echo"])
        received = bytearray()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, stream)
            while piece := await stream.receive_some():
                received += piece
        assert received == data

    ends = [TcpStream(end) for end in await tcp_pair()]
    if are_websockets:
        ends = await websockets(*ends)
    async with running_flushes() as flushes, flushed_pair({"/echo": echo}, flushes, *ends) as (client, server):
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(check, client)
        assert client.end is server.end is None
