"""One peer of a mesh as a process: one request a line of JSON on stdin, one answer a line on stdout.

python mesh_peer.py LOG --topic T [--bootstrap MULTIADDR …] [--router episub] [--target 16] [--held REPORT] [--relay]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trio
from loop_watch import reporting_to
from mesh_relay import Relay, Relayed, stand_in

import gossiplog
from gossiplog import Ed25519Signer, GossipLog
from gossiplog.broadcast.events import EntriesCommitted
from gossiplog.entry.message import Entry
from gossiplog.net.libp2p import Address, PeerKey
from gossiplog.net.mesh import ROUTERS, Mesh, MeshConfig, open_mesh

LISTEN = (Address.parse("/ip4/127.0.0.1/tcp/0"),)


class Peer:
    """Answers the requests."""

    def __init__(self, log: GossipLog, mesh: Mesh, nursery: trio.Nursery) -> None:
        self.log = log
        self.mesh = mesh
        self.nursery = nursery
        self.appending = 0
        self.latencies_ms: list[float] = []

    def on_commit(self, entries: Sequence[Entry]) -> None:
        """Measure how old the entries of others are when they are visible here; all clocks are this machine's."""
        now = time.monotonic_ns()
        for entry in entries:
            payload = entry.message.payload
            if isinstance(payload, dict) and payload.get("by") != self.mesh.host.id:
                self.latencies_ms.append((now - payload["at"]) / 1e6)

    async def append(self, count: int, interval_s: float, after_s: float = 0.0) -> None:
        """Append in the background, at even intervals; `state` says how many are left."""
        self.appending += count
        begun = trio.current_time() + after_s

        async def run() -> None:
            for number in range(count):
                await trio.sleep_until(begun + number * interval_s)
                await self.append_one(number)
                self.appending -= 1

        self.nursery.start_soon(run)

    async def append_one(self, number: int) -> None:
        await self.log.append({"by": self.mesh.host.id, "n": number, "at": time.monotonic_ns()})

    async def count(self) -> int:
        return await self.log.count()

    async def state(self) -> dict[str, Any]:
        root = await self.log.root()
        # Pages that processes share, as those of a nest do, count for each by its share.
        rollup = dict(line.split(maxsplit=1) for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
        (topic,) = self.mesh.service.state().router.topics
        return {
            "count": await self.count(),
            "root": root.hash.hex(),
            "heads": await self.log.heads(),
            "appending": self.appending,
            "peers": len(self.mesh.host.peers),
            "connections": len(self.mesh.host.peerings),
            "degree": len(topic.full_message),
            "buckets": [len(bucket) for bucket in self.mesh.discovery.table.buckets()],
            "walks": self.mesh.discovery.walks,
            "counts": dict(self.mesh.service.counts),
            "cpu_s": cpu_s(),
            "memory_mb": int(rollup["Pss:"].split()[0]) / 1024,
        }

    async def latencies(self) -> list[float]:
        taken, self.latencies_ms = self.latencies_ms, []
        return taken

    async def answer(self, request: dict[str, Any]) -> Any:
        match request:
            case {"op": "append", **how}:
                return await self.append(**how)
            case {"op": "state"}:
                return await self.state()
            case {"op": "cpu"}:
                return cpu_s()
            case {"op": "count"}:
                return await self.count()
            case {"op": "latencies"}:
                return await self.latencies()
        raise ValueError(request)


class RelayPeer(Peer):
    """Answers for a peer that stores nothing; see mesh_relay.py."""

    @property
    def relay(self) -> Relay:
        machine = self.mesh.service.machine.spreading
        assert isinstance(machine, Relay)
        return machine

    async def append_one(self, number: int) -> None:
        self.mesh.service.tell(EntriesCommitted([Relayed.new()]))

    async def count(self) -> int:
        return self.relay.count

    async def latencies(self) -> list[float]:
        taken, self.relay.latencies_ms = self.relay.latencies_ms, []
        return taken


async def main(options: argparse.Namespace) -> None:
    path = Path(options.log)
    key = PeerKey.load_or_create(path.with_suffix(".peer.pem"))
    bootstrap = tuple(Address.parse(text) for text in options.bootstrap)
    place = ":memory:" if options.in_memory or options.relay else path
    if options.relay:
        stand_in()
    config = MeshConfig(listen=LISTEN, bootstrap=bootstrap, router=options.router, target=options.target)
    async with (
        gossiplog.open(place, topic=options.topic, signer=Ed25519Signer.generate(), durability=options.durability) as log,
        open_mesh(log, key, config) as mesh,
        trio.open_nursery() as nursery,
    ):
        peer = (RelayPeer if options.relay else Peer)(log, mesh, nursery)
        with log.watch_commits(peer.on_commit):
            # As `gossiplog serve` does it.
            gc.freeze()
            say({"peer": mesh.host.id, "addresses": [str(address) for address in mesh.host.announced]})
            buffer = bytearray()
            async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as stdin:
                async for chunk in stdin:
                    buffer += chunk
                    while (end := buffer.find(b"\n")) >= 0:
                        line = bytes(buffer[:end])
                        del buffer[: end + 1]
                        say(await peer.answer(json.loads(line)))
            nursery.cancel_scope.cancel()


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def say(answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("log")
    parser.add_argument("--topic", default="mesh.example.com")
    parser.add_argument("--bootstrap", nargs="*", default=[])
    parser.add_argument("--router", choices=ROUTERS, default="gossipsub")
    parser.add_argument("--target", type=int, default=16)
    parser.add_argument("--durability", default="full")
    parser.add_argument("--in-memory", action="store_true", help="keep the log in memory")
    parser.add_argument("--relay", action="store_true", help="verify and store nothing; see mesh_relay.py")
    parser.add_argument("--held", type=Path, help="where to report steps that hold the loop; see loop_watch.py")
    return parser.parse_args(arguments)


def nest(descriptor: int) -> None:
    """Fork a peer for each request, until the other end of the socket is closed; the peers end by themselves then, as their stdin does."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    requests = socket.socket(fileno=descriptor)
    while True:
        request, descriptors, _, _ = socket.recv_fds(requests, 65_536, 1)
        if not request:
            return
        pid = os.fork()
        if pid:
            os.close(descriptors[0])
            requests.sendall(f"{pid}\n".encode())
            continue
        requests.close()
        os.dup2(descriptors[0], 0)
        os.dup2(descriptors[0], 1)
        os.close(descriptors[0])
        start(parse(json.loads(request)))
        return


def start(options: argparse.Namespace) -> None:
    trio.run(main, options, instruments=[] if options.held is None else [reporting_to(options.held)])


if __name__ == "__main__":
    if sys.argv[1] == "--nest":
        nest(int(sys.argv[2]))
    else:
        start(parse(sys.argv[1:]))
