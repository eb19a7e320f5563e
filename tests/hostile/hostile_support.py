"""A hub in a process of its own, peers that attack it over real sockets, and honest ones that watch how they are served meanwhile."""

from __future__ import annotations

import json
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import loop_watch
import trio
from muxer_support import Bytes
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, RejectConnection, Request

import gossiplog
from gossiplog import Ed25519Signer, GossipLog
from gossiplog.net import Connection, Handler, open_muxed
from gossiplog.net.transport.websocket import WebSocketStream
from gossiplog.net.transport.yamux.machine import Yamux
from gossiplog.pubsub.types import PeerId

__all__ = [
    "PUSH",
    "SERVED_S",
    "SYNC",
    "TOPIC",
    "Attacker",
    "Refusal",
    "Server",
    "attacking",
    "honest_peers",
    "muxed_attacker",
    "running_server",
]

TOPIC = "hostile.example.com"
PUSH, SYNC = f"/canvas/v1/{TOPIC}/push", f"/canvas/v1/{TOPIC}/sync"
SERVED_S = 5.0
"""Within which an honest peer is served, whatever others do."""
_READY_S = 30.0
_WORK_S = 0.005


class Server:
    """`gossiplog serve` in its process.

    Attributes:
        process: The process.
        port: Where it listens on 127.0.0.1.
        path: Of its log.
        report: Which steps held its loop; see `loop_watch`.
    """

    def __init__(self, process: subprocess.Popen[str], port: int, path: Path, report: Path) -> None:
        self.process = process
        self.port = port
        self.path = path
        self.report = report

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    @property
    def is_up(self) -> bool:
        return self.process.poll() is None

    def memory_mib(self, name: str = "VmRSS") -> float:
        """What it holds now; `VmHWM`: the most that it ever held."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"^{name}:\s+(\d+) kB", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) / 1024

    def forget_peak(self) -> None:
        """Let `VmHWM` begin anew."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    async def get(self, target: str) -> tuple[int, bytes]:
        """Ask its HTTP API; return status and body."""
        return await self.http(f"GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())

    async def http(self, request: bytes) -> tuple[int, bytes]:
        """Send bytes and read what comes back; the status is 0 if nothing does."""
        stream = await self.tcp()
        async with stream:
            answer = b""
            try:
                await stream.send_all(request)
                async for data in stream:
                    answer += data
            except trio.BrokenResourceError:
                pass
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]) if head else 0, body

    async def count(self) -> int:
        """How many entries it has."""
        return int(json.loads((await self.get("/api/messages/count"))[1])["count"])

    async def tcp(self) -> trio.SocketStream:
        """Connect, and say nothing."""
        return await trio.open_tcp_stream("127.0.0.1", self.port)


@contextmanager
def running_server(folder: Path, *options: str, entries: int = 300, bulk: str = "") -> Iterator[Server]:
    """Start a hub whose log has some entries; it trusts `X-Forwarded-For`, so that attackers can come from any address."""
    path = folder / "served.db"

    async def fill() -> None:
        async with gossiplog.open(path, topic=TOPIC, signer=Ed25519Signer.from_seed(b"\7" * 32), durability="off") as log:
            await log.append_many({"n": n, "bulk": bulk} for n in range(entries))

    trio.run(fill)
    report = folder / "held.jsonl"
    command = [sys.executable, loop_watch.__file__, str(report), "gossiplog"]
    command += ["serve", str(path), "--listen", "127.0.0.1:0", "--proxy", "127.0.0.1", "--json", *options]
    with (folder / "served.log").open("w") as journal:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=journal, text=True)
        try:
            assert process.stdout is not None
            served = json.loads(process.stdout.readline())
            yield Server(process, int(served["urls"][0].rpartition(":")[2]), path, report)
            assert process.poll() is None, (folder / "served.log").read_text()[-3000:]
            process.send_signal(signal.SIGINT)
            assert process.wait(_READY_S) == 0, "it did not end cleanly"
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
    faults = [line for line in (folder / "served.log").read_text().splitlines() if "Traceback" in line or "fault in" in line]
    assert faults == []


class Refusal(Exception):
    """The server did not let us in.

    Attributes:
        status: Of its HTTP answer; 0 if it closed the connection.
    """

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class Attacker:
    """A WebSocket client that does what it likes below the muxer.

    Attributes:
        websocket: The bytes of yamux.
        muxer: A muxer without tasks, for those who keep to the protocol up to a point.
        accepted: The server's answer to the handshake.
    """

    def __init__(self, tcp: trio.SocketStream, websocket: WebSocketStream, accepted: AcceptConnection) -> None:
        self.tcp = tcp
        self.websocket = websocket
        self.accepted = accepted
        self.muxer = Yamux(is_client=True)

    async def send(self, data: bytes = b"") -> None:
        """Send what the muxer has, and then these bytes."""
        await self.websocket.send_all(self.muxer.take(2**30) + data)

    async def wait_closed(self) -> None:
        """Read until the server closes the connection."""
        try:
            while await self.websocket.receive_some():
                pass
        except gossiplog.GossipLogError:
            pass


@asynccontextmanager
async def attacking(
    server: Server, address: str = "10.0.0.1", *, target: str = "/", origin: str | None = None, extensions: str = ""
) -> AsyncIterator[Attacker]:
    """Open a WebSocket as if from some address.

    Raises:
        Refusal: The server does not let us in.
    """
    headers = [(b"x-forwarded-for", address.encode())]
    if origin is not None:
        headers.append((b"origin", origin.encode()))
    if extensions:
        headers.append((b"sec-websocket-extensions", extensions.encode()))
    tcp = await server.tcp()
    try:
        protocol = WSConnection(ConnectionType.CLIENT)
        await tcp.send_all(protocol.send(Request(host="x", target=target, extra_headers=headers)))
        event, said = None, b""
        while event is None:
            data = await tcp.receive_some()
            if not data:
                raise Refusal(0)
            said += data
            protocol.receive_data(data)
            event = next(protocol.events(), None)
        if isinstance(event, RejectConnection):
            raise Refusal(event.status_code)
        assert isinstance(event, AcceptConnection)
        yield Attacker(tcp, WebSocketStream(Bytes(tcp), is_client=True, beginning=said.partition(b"\r\n\r\n")[2]), event)
    finally:
        await trio.aclose_forcefully(tcp)


@asynccontextmanager
async def muxed_attacker(
    server: Server, address: str = "10.0.0.1", handlers: Mapping[str, Handler] | None = None
) -> AsyncIterator[Connection]:
    """Attack above the muxer: a client whose streams are in order, and nothing else.

    Raises:
        Refusal: As `attacking`.
    """
    async with (
        attacking(server, address) as attacker,
        open_muxed(attacker.websocket, is_client=True, peer=PeerId("hub"), handlers=handlers) as connection,
    ):
        yield connection


class Watch:
    """What the honest peers saw.

    Attributes:
        served_s: How long each entry took from one to the other.
        stretches: How much longer than on an idle machine a little work took beside each: others may use it as well.
    """

    def __init__(self) -> None:
        self.served_s: list[float] = []
        self.stretches: list[float] = []
        self._more = trio.Event()

    @property
    def stretch(self) -> float:
        return max(1.0, statistics.median(self.stretches))

    def note(self, seconds: float) -> None:
        self.served_s.append(seconds)
        wall, cpu = time.perf_counter(), time.thread_time()
        while (used := time.thread_time() - cpu) < _WORK_S:
            pass
        self.stretches.append((time.perf_counter() - wall) / used)
        more, self._more = self._more, trio.Event()
        more.set()

    async def rounds(self, count: int) -> None:
        """Wait until so many more entries went over."""
        goal = len(self.served_s) + count
        while len(self.served_s) < goal:
            await self._more.wait()


@asynccontextmanager
async def honest_peers(server: Server, *, memory_mib: float = 60) -> AsyncIterator[Watch]:
    """Keep two honest clients on the hub for the length of a block: each entry of one must reach the other within 5 s.

    At the end the hub must be up, and must not have taken more memory than it may; and no step of its loop may have been too long.

    Args:
        server: The hub.
        memory_mib: What it may take for the attack, at most and for a moment.
    """
    signer = Ed25519Signer.from_seed(b"\1" * 32)
    watch = Watch()
    async with (
        gossiplog.open(":memory:", topic=TOPIC, signer=signer) as near,
        gossiplog.open(":memory:", topic=TOPIC) as far,
        near.connect(server.url) as one,
        far.connect(server.url) as other,
    ):
        with trio.fail_after(30):
            await one.wait_connected()
            await other.wait_connected()
            await _converge(near, far)
        # Only now: what two clients pull that have nothing yet is no attack's, and earlier tests may have left entries of 60 kB.
        server.forget_peak()
        before, held_before = server.memory_mib(), len(loop_watch.read_report(server.report))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_append_and_wait, near, far, watch)
            await watch.rounds(1)
            yield watch
            await watch.rounds(2)
            nursery.cancel_scope.cancel()
        assert one.attempts == other.attempts == 1, "an honest client was dropped"
    assert server.is_up
    assert max(watch.served_s) < SERVED_S * watch.stretch, (watch.served_s, watch.stretch)
    peak = server.memory_mib("VmHWM") - before
    assert peak <= memory_mib, f"it took {peak:.0f} MiB"
    assert loop_watch.read_report(server.report)[held_before:] == [], "its loop was held"


async def _converge(near: GossipLog, far: GossipLog) -> None:
    while await near.root() != await far.root() or not await near.count():
        await trio.sleep(0.05)


async def _append_and_wait(near: GossipLog, far: GossipLog, watch: Watch) -> None:
    async with far.subscribe(from_now=True) as arriving:
        number = 0
        while True:
            started = trio.current_time()
            entry = await near.append({"honest": number})
            with trio.fail_after(6 * SERVED_S):
                while (await anext(arriving)).id != entry.id:
                    pass
            watch.note(trio.current_time() - started)
            number += 1
            await trio.sleep(0.05)
