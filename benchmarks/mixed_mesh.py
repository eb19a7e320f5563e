"""Measure what our peers take beside go-libp2p-pubsub and rust-libp2p's gossipsub in one full mesh of processes.

    python -m benchmarks.mixed_mesh --write mixed-mesh
    python -m benchmarks.mixed_mesh --ours 1 --go 1 --rust 1 --rate 10 --seconds 5         small, to see whether it runs

Everybody is connected with everybody and sends its share of the entries: ours append to their logs, the others send what was signed
before, and neither verify nor store them. So ours run without logs at first, and do what the others do; then with logs in memory, then on
SQLite, beside new peers of the others each time. What verifying a signature takes is a figure of its own. CPU is that of whole processes,
appending and sending included, less what they use when nobody sends. Go, cargo and some minutes to build an optimized peer are needed the
first time.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import trio

import gossiplog
from gossiplog import Ed25519Signer
from gossiplog.entry.message import Entry
from gossiplog.sync.rpc import Insert
from gossiplog.sync.wire import encode_event
from tests.interop.interop_support import Reference, run_program
from tests.interop.native_support import build_go, build_rust
from tests.support.mesh_cluster import ClusterPeer, Nest

from .material import chain
from .measure import Figure, Goal, Stopwatch, machine, process_cpu_s, versions, write_results

__all__ = ["main"]

TOPIC = "mesh.example.com"
"""That of tests/support/mesh_peer.py."""
CPU_RATIO_MAX = 1.5
_LISTEN = ["/ip4/127.0.0.1/tcp/0"]
_RESULTS = Path(__file__).parent / "results"
_SETTLE_S = 8.0
_IDLE_S = 10.0
_LOOK_S = 0.2
_WAIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Place:
    """What our peers do with entries.

    Attributes:
        name: Of its figures.
        words: The same for the reader.
        flags: Of tests/support/mesh_peer.py.
        ratio_max: How much CPU ours should need at most, as a multiple of go's; None without a goal.
    """

    name: str
    words: str
    flags: tuple[str, ...]
    ratio_max: float | None = None


PLACES = (
    Place("pubsub", "pubsub alone, nothing verified or stored", ("--relay",), CPU_RATIO_MAX),
    Place("memory", "with logs in memory", ("--in-memory",)),
    Place("sqlite", "with logs on SQLite, durability normal", ("--durability", "normal")),
)


@dataclass
class OurPeer:
    """A log in a mesh, as a process."""

    process: ClusterPeer
    kind: str = "ours"

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def addresses(self) -> list[str]:
        return self.process.addresses

    async def send(self) -> None:
        await self.process.ask("append", count=1, interval_s=0.0)

    async def neighbours(self) -> int:
        return int((await self.process.ask("state"))["peers"])

    async def received(self) -> int:
        """How many entries it has, its own included."""
        return int(await self.process.ask("count"))


@dataclass
class OtherPeer:
    """A peer that passes on what it gets.

    Attributes:
        kind: "go" or "rust".
        program: Answers as tests/interop/go and rust do.
        waiting: What it will send, the next one last.
    """

    kind: str
    program: Reference
    waiting: list[bytes]
    addresses: list[str] = field(default_factory=list)
    sent: int = 0

    @property
    def pid(self) -> int:
        return self.program.pid

    async def start(self, others: Sequence[Peer]) -> None:
        await self.program.ask("start", listen=_LISTEN)
        with trio.fail_after(_WAIT_S):
            while not self.addresses:
                self.addresses = (await self.program.ask("state"))["addresses"]
        await self.program.ask("startPubsub", topic=TOPIC)
        for other in others:
            await self.program.ask("dial", address=other.addresses[0])

    async def send(self) -> None:
        self.sent += 1
        await self.program.ask("publish", topic=TOPIC, data=self.waiting.pop().hex())

    async def neighbours(self) -> int:
        return len((await self.program.ask("state"))["subscribers"])

    async def received(self) -> int:
        """How many entries it has; go's library hands a peer its own as well, rust's does not."""
        return len((await self.program.ask("state"))["received"]) + (self.sent if self.kind == "rust" else 0)


Peer: TypeAlias = OurPeer | OtherPeer


def main() -> None:
    """Run, print each figure, and write the results."""
    options = _parse()
    started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    programs = {"go": build_go(), "rust": build_rust(is_optimized=True)}
    samples: dict[str, tuple[str, list[float]]] = {}
    loads = [os.getloadavg()[0]]
    for repetition in range(options.repetitions):
        for place in PLACES:
            with tempfile.TemporaryDirectory(prefix="gossiplog-mixed-") as folder:
                for kind, cpu_ms in trio.run(_measure, Path(folder), place, programs, options).items():
                    what = f"CPU a delivery of {_named(kind)} peers, ours {place.words}"
                    samples.setdefault(f"{place.name}.{kind}", (what, []))[1].append(cpu_ms)
        print(f"  repetition {repetition + 1}: done", file=sys.stderr, flush=True)
    loads.append(os.getloadavg()[0])
    figures = _figures(samples, [round(each, 2) for each in loads])
    print("\n".join(map(str, figures)))
    header = {
        "command": " ".join(["python -m benchmarks.mixed_mesh", *sys.argv[1:]]),
        "measured": started,
        "machine": machine(),
        "versions": versions(),
        "settings": f"{options.ours} ours, {options.go} go, {options.rust} rust; {options.rate} entries/s in all, {options.seconds} s",
    }
    if options.write:
        write_results(_RESULTS / options.write, "Beside go and rust in one mesh", header, figures)


def _named(kind: str) -> str:
    return {"ours": "our", "go": "go's", "rust": "rust's"}[kind]


def _figures(samples: Mapping[str, tuple[str, list[float]]], load: list[float]) -> list[Figure]:
    figures = [Figure(name, what, "ms", values, load=load) for name, (what, values) in samples.items()]
    for place in PLACES:
        goal = None if place.ratio_max is None else Goal(at_most=place.ratio_max)
        pairs = zip(samples[f"{place.name}.ours"][1], samples[f"{place.name}.go"][1], strict=True)
        what = f"ours over go's in the same mesh, ours {place.words}"
        figures.append(Figure(f"{place.name}.ratio", what, "×", [ours / go for ours, go in pairs], goal, load=load))
    figures.append(Figure("verify", "of ours, to verify an entry", "ms", [_verification_ms() for _ in range(5)], load=load))
    return figures


async def _measure(folder: Path, place: Place, programs: Mapping[str, str], options: argparse.Namespace) -> dict[str, float]:
    """Build one mesh and load it; return the CPU milliseconds of a delivery by kind of peer."""
    kinds = ["ours"] * options.ours + ["go"] * options.go + ["rust"] * options.rust
    total = options.rate * options.seconds // len(kinds) * len(kinds)
    async with open_peers(folder, kinds, place.flags, programs, total // len(kinds)) as peers:
        with trio.fail_after(_WAIT_S):
            while min([await peer.neighbours() for peer in peers]) < len(peers) - 1:
                await trio.sleep(_LOOK_S)
        await trio.sleep(_SETTLE_S)
        idle = _cpu_s(peers)
        await trio.sleep(_IDLE_S)
        idle = {kind: (used - idle[kind]) / _IDLE_S for kind, used in _cpu_s(peers).items()}
        before, begun = _cpu_s(peers), time.perf_counter()
        for number in range(total):
            await trio.sleep(max(0.0, begun + number / options.rate - time.perf_counter()))
            await peers[number % len(peers)].send()
        ours = [peer for peer in peers if peer.kind == "ours"]
        with trio.fail_after(_WAIT_S):
            while min([await peer.received() for peer in ours]) < total:
                await trio.sleep(_LOOK_S)
        elapsed = time.perf_counter() - begun
        used = {kind: cpu_s - before[kind] - idle[kind] * elapsed for kind, cpu_s in _cpu_s(peers).items()}
        # Only now, as others answer with all that they have.
        with trio.fail_after(_WAIT_S):
            while min([await peer.received() for peer in peers]) < total:
                await trio.sleep(_LOOK_S)
    deliveries = total - total // len(kinds)
    return {kind: 1_000 * cpu_s / (deliveries * kinds.count(kind)) for kind, cpu_s in used.items()}


@asynccontextmanager
async def open_peers(
    folder: Path, kinds: Sequence[str], flags: tuple[str, ...], programs: Mapping[str, str], share: int
) -> AsyncIterator[list[Peer]]:
    """Start peers of these kinds, each of which dials all that run already, and end them at the end.

    Args:
        folder: For logs and keys.
        kinds: Of each peer, "ours", "go" or "rust".
        flags: Of ours.
        programs: Of the others, by kind.
        share: How many entries each will send.
    """
    peers: list[Peer] = []
    async with AsyncExitStack() as stack:
        nest = Nest()
        stack.callback(nest.close)
        for kind in kinds:
            if kind == "ours":
                process = ClusterPeer(folder / f"peer-{len(peers)}.db", flags)
                await process.start(nest, [address for other in peers for address in other.addresses])
                stack.push_async_callback(process.kill)
                peers.append(OurPeer(process))
            else:
                waiting = [encode_event(Insert(entry.key, entry.value)) for entry in reversed(_signed(share))]
                peer = OtherPeer(kind, await stack.enter_async_context(run_program(programs[kind])), waiting)
                await peer.start(peers)
                peers.append(peer)
        yield peers


def _signed(count: int) -> list[Entry]:
    """A chain, each entry of about the size that ours append."""
    return list(chain(Ed25519Signer.generate(), TOPIC, (f"{n:0100d}" for n in range(count))))


def _verification_ms() -> float:
    values = [entry.value for entry in _signed(1_000)]
    with Stopwatch() as watch:
        assert all(gossiplog.validate(value).accepted for value in values)
    return 1_000 * watch.cpu_s / len(values)


def _cpu_s(peers: Sequence[Peer]) -> dict[str, float]:
    """User and system seconds of all threads so far, by kind."""
    spent: dict[str, float] = {}
    for peer in peers:
        spent[peer.kind] = spent.get(peer.kind, 0.0) + process_cpu_s(peer.pid)
    return spent


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mixed_mesh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ours", type=int, default=3, metavar="N", help="peers of ours (3)")
    parser.add_argument("--go", type=int, default=3, metavar="N", help="of go-libp2p (3)")
    parser.add_argument("--rust", type=int, default=2, metavar="N", help="of rust-libp2p (2)")
    parser.add_argument("--rate", type=int, default=80, metavar="N", help="entries a second, in all (80)")
    parser.add_argument("--seconds", type=int, default=15, metavar="N", help="to send for (15)")
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="of each mesh (3)")
    parser.add_argument("--write", metavar="NAME", help="write NAME.md and NAME.json to benchmarks/results/")
    return parser.parse_args()


if __name__ == "__main__":
    main()
