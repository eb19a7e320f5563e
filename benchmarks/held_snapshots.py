"""What eight clients cost a hub who hold overlapping sync sessions while entries come in: how far the write-ahead log grows.

    python -m benchmarks.held_snapshots --seconds 45

A real server in a process of its own; a client that pushes entries of 1 KiB as fast as the server takes them; eight holders, each from an
address of its own, that ask now and then and begin anew as soon as their session is ended.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import trio

import gossiplog
from gossiplog import Ed25519Signer
from gossiplog.codec.framing import FrameDecoder, encode_frame
from gossiplog.net.hub.client import connect
from gossiplog.sync.rpc import AbortResponse, GetRoot
from gossiplog.sync.wire import decode_response, encode_request

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / "support"), str(TESTS / "hostile")]

from hostile_support import SYNC, TOPIC, Server, muxed_attacker, running_server  # noqa: E402

HOLDERS = 8
BATCH, AHEAD = 500, 2_000


class Run:
    """One run.

    Attributes:
        sessions: Sessions that the server ended.
        answers: What the holders were answered.
        wal_bytes_max: The most that the write-ahead log had.
    """

    def __init__(self, server: Server) -> None:
        self.sessions = 0
        self.answers = 0
        self.wal_bytes_max = 0
        self._server = server
        self._wal = server.path.with_name(server.path.name + "-wal")

    async def hold(self, number: int) -> None:
        """Hold one session after the other."""
        async with muxed_attacker(self._server, f"10.{number}.0.1") as connection:
            while True:
                stream, frames = await connection.open_stream([SYNC]), FrameDecoder()
                answer: object = None
                while not isinstance(answer, AbortResponse):
                    await stream.send_all(encode_frame(encode_request(GetRoot())))
                    while not (found := frames.take(await stream.receive_some())):
                        pass
                    answer = decode_response(found[0])
                    self.answers += 1
                    await trio.sleep(0.2)
                self.sessions += 1

    async def watch(self) -> None:
        """Look at the write-ahead log."""
        while True:
            self.wal_bytes_max = max(self.wal_bytes_max, self._wal.stat().st_size if self._wal.exists() else 0)
            await trio.sleep(0.05)

    async def feed(self) -> None:
        """Push entries, and wait where the server is too far behind."""
        signer = Ed25519Signer.from_seed(b"\x51" * 32)
        async with gossiplog.open(":memory:", topic=TOPIC, signer=signer) as log, connect(log, self._server.url):
            number = 0
            while True:
                await log.append_many([f"{number + at} {'x' * 1_000}" for at in range(BATCH)])
                number += BATCH
                while await self._server.count() < number - AHEAD:
                    await trio.sleep(0.05)


async def run(server: Server, seconds: float) -> None:
    """Measure, and print a line."""
    load, began, before = os.getloadavg()[0], time.monotonic(), await server.count()
    measured = Run(server)
    async with trio.open_nursery() as nursery:
        for number in range(HOLDERS):
            nursery.start_soon(measured.hold, number)
        nursery.start_soon(measured.watch)
        nursery.start_soon(measured.feed)
        await trio.sleep(seconds)
        nursery.cancel_scope.cancel()
    rate = (await server.count() - before) / (time.monotonic() - began)
    print(
        f"{seconds:.0f} s, {HOLDERS} holders: {rate:,.0f} entries/s,"
        f" the write-ahead log had at most {measured.wal_bytes_max / 2**20:.1f} MiB,"
        f" {measured.answers} answers to the holders, {measured.sessions} sessions ended by the server,"
        f" its memory at most {server.memory_mib('VmHWM'):.0f} MiB,"
        f" file {server.path.stat().st_size / 2**20:.0f} MiB; load {load:.1f}"
    )


def main() -> None:
    """Start a server, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=45)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_server(Path(folder), entries=10) as server:
        trio.run(run, server, arguments.seconds)


if __name__ == "__main__":
    main()
