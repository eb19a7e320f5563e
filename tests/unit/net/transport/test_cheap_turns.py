"""Small pieces cost few steps of tasks: what is read is handed on in the reader's step, and one task writes for all connections."""

from collections import Counter
from contextlib import asynccontextmanager
from random import Random

import pytest
import trio
from muxer_support import echo, muxed_pair, tcp_pair
from trio.testing import wait_all_tasks_blocked

from gossiplog.errors import DecodeError, StreamReset
from gossiplog.net import open_muxed
from gossiplog.net.transport.flushes import Flushes
from gossiplog.net.transport.http_head import read_head
from gossiplog.net.transport.tcp import TcpStream
from gossiplog.net.transport.websocket import accept_websocket, connect_websocket
from gossiplog.net.transport.yamux import WINDOW_BYTES
from gossiplog.pubsub.types import PeerId


class Steps(trio.abc.Instrument):
    """Counts the steps of tasks by the names of their functions."""

    def __init__(self):
        self.of = Counter()

    def before_task_step(self, task):
        self.of[task.name.rpartition(".")[2]] += 1


async def test_what_is_handed_on_wakes_no_task_of_the_stream():
    taken, ends, steps = [], [], Steps()

    async def read(connection, stream):
        ends.append(await stream.hand_on(lambda data: not taken.append(data)))

    async with muxed_pair({}, {"/read": read}) as (client, _):
        stream = await client.open_stream(["/read"])
        await wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(steps)
        for number in range(20):
            await stream.send_all(b"%d" % number)
            await wait_all_tasks_blocked()
        trio.lowlevel.remove_instrument(steps)
        assert taken == [b"%d" % number for number in range(20)]
        assert steps.of["_read"] >= 20
        assert not steps.of["_serve_stream"]
        stream.close_sending()
        await wait_all_tasks_blocked()
        assert ends == [False]


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

    async with muxed_pair({}, {"/read": read}) as (client, server):
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
        assert server.counters.handlers_failed == 0


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
        with trio.fail_after(5):
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
        ends["server"] = await accept_websocket(right, (await read_head(right, 16_384)).raw)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept)
        ends["client"] = await connect_websocket(left, "localhost", "/")
    return ends["client"], ends["server"]


@asynccontextmanager
async def flushed_pair(handlers, *, are_websockets):
    """Two connections on loopback whose writing one task does for both."""
    left, right = [TcpStream(end) for end in await tcp_pair()]
    if are_websockets:
        left, right = await websockets(left, right)
    flushes = Flushes()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(flushes.run)
        async with (
            open_muxed(left, is_client=True, peer=PeerId("server"), flushes=flushes) as client,
            open_muxed(right, is_client=False, peer=PeerId("client"), handlers=handlers, flushes=flushes) as server,
        ):
            yield client, server
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("are_websockets", [False, True])
async def test_small_pieces_are_written_by_one_task_for_all_connections(are_websockets):
    async with flushed_pair({"/echo": echo}, are_websockets=are_websockets) as (client, _):
        stream = await client.open_stream(["/echo"])
        await wait_all_tasks_blocked()
        steps = Steps()
        trio.lowlevel.add_instrument(steps)
        for number in range(20):
            await stream.send_all(b"%d" % number)
            assert await stream.receive_some() == b"%d" % number
        trio.lowlevel.remove_instrument(steps)
        assert steps.of["run"] >= 40
        # The task in which a connection lives writes what has to wait.
        assert not steps.of["serve"]


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

    async with flushed_pair({"/echo": echo}, are_websockets=are_websockets) as (client, server):
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(check, client)
        assert client.end is server.end is None
