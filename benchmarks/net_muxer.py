"""Measure the muxer: what a stream, a small request and a megabyte cost, both sides together, on TCP over loopback without encryption.

    python -m benchmarks.net_muxer --write net-muxer

Both sides run in one process and one thread, so that CPU is that of both and a megabyte's wall time is its CPU time.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import trio

from gossiplog.errors import StreamReset
from gossiplog.net import Connection, Stream, open_muxed
from gossiplog.net.transport.tcp import TcpStream
from gossiplog.pubsub.types import PeerId

from .measure import Figure, Stopwatch, machine, versions, write_results

__all__ = ["main"]

STREAMS = 2_000
REQUESTS = 10_000
MEBIBYTES = 400
BULK_STREAMS = 16
_MIB = 2**20
_RESULTS = Path(__file__).parent / "results"


async def echo(connection: Connection, stream: Stream) -> None:
    with suppress(StreamReset):
        while data := await stream.receive_some():
            await stream.send_all(data)


async def count(connection: Connection, stream: Stream) -> None:
    size = 0
    while data := await stream.receive_some():
        size += len(data)
    await stream.send_all(b"%d" % size)


@asynccontextmanager
async def connected() -> AsyncIterator[Connection]:
    """Open a client whose server echoes and counts."""
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        near = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
        far = await listener.accept()
    async with (
        open_muxed(TcpStream(far), is_client=False, peer=PeerId("client"), handlers={"/echo": echo, "/count": count}),
        open_muxed(TcpStream(near), is_client=True, peer=PeerId("server")) as client,
    ):
        yield client


async def streams(client: Connection, *, is_lazy: bool) -> float:
    """Open a stream, send a byte, read it back, close; return CPU milliseconds of one."""
    with Stopwatch() as watch:
        for _ in range(STREAMS):
            stream = await client.open_stream(["/echo"], is_lazy=is_lazy)
            await stream.send_all(b"x")
            assert await stream.receive_some() == b"x"
            stream.close_sending()
            assert await stream.receive_some() == b""
    return watch.cpu_s * 1000 / STREAMS


async def requests(client: Connection) -> float:
    """Send 100 bytes and read them back on one stream; return CPU milliseconds of one."""
    stream = await client.open_stream(["/echo"])
    with Stopwatch() as watch:
        for _ in range(REQUESTS):
            await stream.send_all(bytes(100))
            size = 0
            while size < 100:
                size += len(await stream.receive_some())
    stream.close_sending()
    return watch.cpu_s * 1000 / REQUESTS


async def bulk(client: Connection, streams: int) -> float:
    """Send MiBs on so many streams at once; return MiB for each CPU second."""

    async def send() -> None:
        stream = await client.open_stream(["/count"])
        data = bytes(_MIB)
        for _ in range(MEBIBYTES // streams):
            await stream.send_all(data)
        stream.close_sending()
        assert await stream.receive_some() == b"%d" % (MEBIBYTES // streams * _MIB)

    with Stopwatch() as watch:
        async with trio.open_nursery() as nursery:
            for _ in range(streams):
                nursery.start_soon(send)
    return MEBIBYTES / watch.cpu_s


async def measure(repetitions: int) -> list[Figure]:
    benchmarks: list[tuple[Figure, Callable[[Connection], Awaitable[float]]]] = [
        (Figure("stream", "open a stream, a byte there and back, close", "ms CPU", []), lambda client: streams(client, is_lazy=False)),
        (Figure("stream-lazy", "the same, without waiting for the protocol", "ms CPU", []), lambda client: streams(client, is_lazy=True)),
        (Figure("request", "100 bytes there and back on an open stream", "ms CPU", []), requests),
        (Figure("bulk", "one stream, one way", "MiB/s of CPU", []), lambda client: bulk(client, 1)),
        (Figure("bulk-16", "16 streams, one way", "MiB/s of CPU", []), lambda client: bulk(client, BULK_STREAMS)),
    ]
    figures = []
    async with connected() as client:
        for figure, benchmark in benchmarks:
            before = round(os.getloadavg()[0], 2)
            samples = [await benchmark(client) for _ in range(repetitions)]
            figures.append(replace(figure, samples=samples, load=[before, round(os.getloadavg()[0], 2)]))
    return figures


def main() -> None:
    """Run, print, and write the results."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.net_muxer", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="of each measurement (5)")
    parser.add_argument("--write", metavar="NAME", help="write NAME.md and NAME.json to benchmarks/results/")
    options = parser.parse_args()
    started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    figures = trio.run(measure, options.repetitions)
    print("\n".join(map(str, figures)))
    if options.write:
        header = {
            "command": " ".join(["python -m benchmarks.net_muxer", *sys.argv[1:]]),
            "measured": started,
            "machine": machine(),
            "versions": versions(),
            "settings": f"{STREAMS:,} streams, {REQUESTS:,} requests, {MEBIBYTES} MiB a repetition; TCP on loopback, one thread",
        }
        write_results(_RESULTS / options.write, "The muxer", header, figures)


if __name__ == "__main__":
    main()
