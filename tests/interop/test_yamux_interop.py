"""Our muxer against the reference's, `@chainsafe/libp2p-yamux` and `@libp2p/multistream-select` as its hub uses them, on TCP."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

import pytest
import trio
from interop_support import FOLDER
from muxer_support import Bytes, echo

from gossiplog.errors import GossipLogError, ProtocolNotSupported, StreamReset
from gossiplog.net import Connection, Stream, open_muxed
from gossiplog.pubsub.types import PeerId

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("installed_reference")]

PATTERN = bytes(n % 251 for n in range(251 * 400))
BULK = 2_000_000


def pattern(size: int) -> bytes:
    return (PATTERN * (size // len(PATTERN) + 1))[:size]


async def count(stream: Stream, pause_s: float = 0) -> int:
    """Read to the end, and check each byte."""
    size = 0
    while data := await stream.receive_some():
        assert data == (PATTERN[size % 251 :] + PATTERN)[: len(data)]
        size += len(data)
        if pause_s:
            await trio.sleep(pause_s)
    return size


async def exchange(stream: Stream, size: int, pause_s: float = 0) -> int:
    """Send so many bytes and the end while reading to the end; return how many bytes came."""
    received = 0

    async def read() -> None:
        nonlocal received
        received = await count(stream, pause_s)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        for at in range(0, size, 100_000):
            await stream.send_all(pattern(size)[at : at + 100_000])
        stream.close_sending()
    return received


async def bulk(connection: object, stream: Stream) -> None:
    await exchange(stream, BULK)


async def slow(connection: object, stream: Stream) -> None:
    await exchange(stream, 100_000, pause_s=0.002)


HANDLERS: Any = {"/echo": echo, "/bulk": bulk, "/slow": slow}


class Node:
    """The other side, as `yamux.mjs` runs it."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._answers: dict[int, trio.MemorySendChannel[Any]] = {}
        self._asking = trio.Lock()

    async def ask(self, op: str, **request: Any) -> Any:
        number = len(self._answers)
        self._answers[number], answer = trio.open_memory_channel[Any](1)
        assert self._process.stdin is not None
        async with self._asking:
            await self._process.stdin.send_all(json.dumps({"op": op, "number": number, **request}).encode() + b"\n")
        with trio.fail_after(120):
            result = await answer.receive()
        assert "error" not in result, result["error"]
        return result["result"]

    async def read(self) -> None:
        assert self._process.stdout is not None
        buffer = b""
        while chunk := await self._process.stdout.receive_some():
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                result = json.loads(line)
                await self._answers[result["number"]].send(result)


@asynccontextmanager
async def node() -> AsyncIterator[Node]:
    async with trio.open_nursery() as nursery:
        start = partial(trio.run_process, ["node", "yamux.mjs"], cwd=FOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process: trio.Process = await nursery.start(start)
        running = Node(process)
        nursery.start_soon(running.read)
        try:
            yield running
        finally:
            assert process.stdin is not None
            with trio.CancelScope(shield=True):
                await process.stdin.aclose()


@asynccontextmanager
async def connected(*, we_dial: bool) -> AsyncIterator[tuple[Node, Connection]]:
    async with node() as other:
        if we_dial:
            stream = await trio.open_tcp_stream("127.0.0.1", await other.ask("listen"))
        else:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            async with listeners[0] as listener, trio.open_nursery() as nursery:
                nursery.start_soon(partial(other.ask, "dial", port=listener.socket.getsockname()[1]))
                stream = await listener.accept()
        async with open_muxed(Bytes(stream), is_client=we_dial, peer=PeerId("node"), handlers=HANDLERS) as connection:
            yield other, connection


@pytest.mark.parametrize("we_dial", [True, False])
@pytest.mark.parametrize("is_lazy", [True, False])
async def test_streams_are_opened_and_closed_by_both_sides(we_dial: bool, is_lazy: bool) -> None:
    async with connected(we_dial=we_dial) as (other, connection):
        for size in (0, 1, 100_000):
            stream = await connection.open_stream([f"/bulk/{size}"], is_lazy=is_lazy)
            assert await exchange(stream, size) == size
            assert await other.ask("bulk", streams=1, protocol="/slow", size=size) == [100_000]
        stream = await connection.open_stream(["/unknown", "/echo"])
        assert stream.protocol == "/echo"
        await stream.send_all(b"half")
        assert await stream.receive_some() == b"half"
        stream.close_sending()
        assert await stream.receive_some() == b""
        state = await other.ask("state")
        assert state == {"streams": 0, "isClosed": False, "failures": []}
        assert connection.streams == []


async def test_protocols_that_nobody_speaks_are_refused_by_both_sides() -> None:
    async with connected(we_dial=True) as (other, connection):
        with pytest.raises(ProtocolNotSupported):
            await connection.open_stream(["/unknown"])
        assert await other.ask("refused", protocol="/unknown") == "UnsupportedProtocolError"
        stream = await connection.open_stream(["/echo"])
        await stream.send_all(b"still there")
        assert await stream.receive_some() == b"still there"


async def test_a_reset_of_the_reference_is_an_error_of_ours_and_of_that_stream_only() -> None:
    async with connected(we_dial=True) as (_, connection):
        good, bad = await connection.open_stream(["/echo"]), await connection.open_stream(["/abort/100000"])
        await bad.send_all(b"x")
        with pytest.raises(StreamReset):
            while True:
                assert await bad.receive_some()
        await good.send_all(b"still there")
        assert await good.receive_some() == b"still there"


async def churn(connection: Connection, rng: Random, streams: int) -> None:
    """Open streams and leave them in every way there is, in the middle of a call as well."""
    for _ in range(streams):
        with trio.move_on_after(rng.choice([0.0, 0.001, 0.003, 0.01, 5.0])):
            stream = None
            try:
                stream = await connection.open_stream([rng.choice(["/echo", "/bulk/100000", "/abort/100000"])], is_lazy=rng.random() < 0.5)
                await stream.send_all(pattern(rng.choice([1, 1000, 300_000])))
                await stream.receive_some(rng.choice([1, 65_536]))
                if rng.random() < 0.5:
                    stream.close_sending()
                    await count(stream)
            except (GossipLogError, AssertionError):
                # Reset by the other side; or the echo of what we have sent in parts, which does not count up from zero.
                pass
            finally:
                if stream is not None:
                    stream.reset()


@pytest.mark.parametrize("we_dial", [True, False])
async def test_sixteen_bulk_streams_each_way_among_opens_resets_and_cancellations(we_dial: bool) -> None:
    received: list[int] = []

    async def pull(connection: Connection) -> None:
        stream = await connection.open_stream([f"/bulk/{BULK}"])
        received.append(await exchange(stream, BULK))

    counts: dict[str, Any] = {}

    async def theirs(other: Node) -> None:
        counts["bulk"] = await other.ask("bulk", streams=16, protocol="/bulk", size=BULK)

    async def their_churn(other: Node) -> None:
        counts["churn"] = await other.ask("churn", streams=60, protocol="/echo")

    async with connected(we_dial=we_dial) as (other, connection):
        with trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                for _ in range(16):
                    nursery.start_soon(pull, connection)
                nursery.start_soon(theirs, other)
                nursery.start_soon(their_churn, other)
                nursery.start_soon(churn, connection, Random(1), 150)
        assert received == [BULK] * 16
        assert counts["bulk"] == [BULK] * 16
        assert counts["churn"] == {"closed": 40, "aborted": 20, "failed": 0}
        assert connection.end is None
        stream = await connection.open_stream(["/echo"])
        await stream.send_all(b"alive")
        assert await stream.receive_some() == b"alive"


async def test_slow_readers_on_both_sides_hold_up_nobody_else() -> None:
    async with connected(we_dial=True) as (other, connection), trio.open_nursery() as nursery:
        done: list[int] = []
        is_released = trio.Event()

        async def slowly() -> None:
            stream = await connection.open_stream(["/slow/2000000"])
            nursery.start_soon(send, stream)
            await is_released.wait()
            done.append(await count(stream))

        async def send(stream: Stream) -> None:
            await stream.send_all(pattern(BULK))
            stream.close_sending()

        async def slowly_there() -> None:
            done.extend(await other.ask("bulk", streams=2, protocol="/bulk", size=BULK, pauseMs=10))

        for _ in range(2):
            nursery.start_soon(slowly)
        nursery.start_soon(slowly_there)
        for _ in range(50):
            stream = await connection.open_stream(["/echo"])
            with trio.fail_after(60):
                await stream.send_all(b"x" * 5_000)
                stream.close_sending()
                received = b""
                while data := await stream.receive_some():
                    received += data
            assert len(received) == 5_000
        is_released.set()
        with trio.fail_after(100):
            while len(done) < 4:
                await trio.sleep(0.05)
        assert done == [BULK] * 4


async def test_either_side_may_close_with_streams_open() -> None:
    async with connected(we_dial=True) as (other, connection):
        stream = await connection.open_stream(["/echo"])
        await stream.send_all(b"x")
        assert await stream.receive_some() == b"x"
        await other.ask("close")
        with trio.fail_after(60):
            end = await connection.wait_ended()
        assert end.startswith("the peer closed it")
        with pytest.raises(StreamReset):
            await stream.send_all(b"more")
    async with connected(we_dial=True) as (other, connection):
        stream = await connection.open_stream(["/echo"])
        await stream.send_all(b"x")
        assert await stream.receive_some() == b"x"
        await connection.aclose()
        assert await other.ask("state") == {"streams": 0, "isClosed": True, "failures": []}
