"""Measure the network with the reference beside it, in the same run: what each of its figures costs there and here.

    python -m benchmarks.net_figures --write net-figures              all of it; half an hour, most of it the reference's
    python -m benchmarks.net_figures --only latency gossip            some of it
    python -m benchmarks.net_figures --entries 500 --repetitions 1    small, to see whether it runs

`tests/interop` must have its npm packages (`npm ci`). Logs are SQLite files on both sides. CPU is that of the processes of both peers,
without that of the line between them. The reference's round trips are its requests: it waits for each.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import trio

import gossiplog
from gossiplog import Entry
from gossiplog.net.hub.client import parse_url
from gossiplog.net.hub.exchange import Exchange, exchange
from gossiplog.tree.node import Node
from tests.support.mesh_cluster import open_cluster

from . import hub
from .hub import TOPIC, HubProcess, hub_process, make_log, scattered
from .measure import Figure, Goal, Stopwatch, machine, versions, write_results
from .net_line import open_line
from .net_reference import Reference, free_port, running_reference

__all__ = ["main"]

DELAY_S = 0.05
"""What a round trip takes besides: half of it each way."""
MISSING = (1, 10, 100, 1_000)
APPENDS = 300
_RESULTS = Path(__file__).parent / "results"
_LISTEN = "/ip4/127.0.0.1/tcp/{}/ws"


@dataclass(frozen=True, slots=True)
class Setup:
    folder: Path
    entries: int
    repetitions: int
    seconds: int
    emit: Callable[[Sequence[Figure]], None]
    """Takes figures as they come: those of the reference take long."""

    @property
    def of_hub(self) -> hub.Options:
        return hub.Options(self.folder, 10, 100, self.seconds, self.repetitions)


async def read(path: Path) -> tuple[list[Entry], Node]:
    """Return a log's entries and its root."""
    async with gossiplog.open(path, read_only=True) as log:
        return [entry async for entry in log.iterate()], await log.root()


@asynccontextmanager
async def reference_log(setup: Setup, name: str) -> AsyncIterator[Reference]:
    """Run the reference in a process of its own, with an empty log of this name."""
    async with running_reference() as process:
        (setup.folder / name).mkdir()
        await process.ask("open", log=name, topic=TOPIC, directory=str(setup.folder / name))
        yield process


async def pulled(setup: Setup, hub_process: HubProcess, url: str, name: str) -> tuple[Exchange, float, float]:
    """Pull into an empty log of ours; return what it came to, CPU of both sides and wall."""
    async with gossiplog.open(setup.folder / name, topic=TOPIC) as log:
        before = hub_process.cpu_s()
        with Stopwatch() as watch:
            done = await exchange(log, parse_url(url), pushes=False)
        return done, watch.cpu_s + hub_process.cpu_s() - before, watch.wall_s


async def sync(setup: Setup) -> None:
    """All entries into an empty log, and a few into a log that lacks them: ours from ours, the reference's from the reference's."""
    source = await make_log(setup.folder / "source.db", setup.entries)
    entries, root = await read(source)
    async with reference_log(setup, "hub") as server, reference_log(setup, "near") as client:
        await server.insert("hub", entries)
        port = free_port()
        await server.ask("listen", log="hub", port=port)
        await pull(setup, source, server, client, port, root)
        await differences(setup, source, entries, server, client, port)
        await pull_far(setup, source, server, port)


async def pull(setup: Setup, source: Path, server: Reference, client: Reference, port: int, root: Node) -> None:
    """All entries into an empty log."""
    async with hub_process(source) as served:
        ours = [await pulled(setup, served, served.url, f"near-{number}.db") for number in range(setup.repetitions)]
    async with gossiplog.open(setup.folder / "mixed.db", topic=TOPIC) as log:
        mixed = await exchange(log, parse_url(f"ws://127.0.0.1:{port}"), pushes=False)
    used, took, size = await _reference_pull(server, client, "near", port, root)
    assert all(done.is_equal for done in (mixed, *(done for done, _, _ in ours)))
    trips = str(await client.requests())
    cpu, wall, waits = [each[1] for each in ours], [each[2] for each in ours], [_waits(each[0]) for each in ours]
    what = f"pull {setup.entries:,} entries into an empty log over WebSocket"
    setup.emit(
        [
            Figure("pull.cpu", f"{what}, both sides", "s CPU", cpu, Goal(3.5), reference=f"{used:.1f} s"),
            Figure("pull.wall", "the same", "s", wall, reference=f"{took:.1f} s", needs_quiet=True),
            Figure("pull.waits", "sequential waits, from our hub", "", waits, Goal(20), reference=trips),
            Figure("pull.waits-reference", "sequential waits, from the reference's hub", "", [_waits(mixed)], Goal(20), reference=trips),
            Figure("pull.bytes", "bytes both ways", "MB", [_bytes(each[0]) / 1e6 for each in ours], reference=f"{size / 1e6:.2f} MB"),
        ]
    )


async def pull_far(setup: Setup, source: Path, server: Reference, port: int) -> None:
    """The same, with a delay on the line. Our hub has meanwhile got what the differences needed, and so has the reference's."""
    async with gossiplog.open(source, read_only=True) as log:
        entries, root = await log.count(), await log.root()
    async with hub_process(source) as served, open_line(int(served.url.rpartition(":")[2]), delay_s=DELAY_S / 2) as line:
        # The line runs in this process, so that only the wall time tells something.
        url = f"ws://127.0.0.1:{line.port}"
        ours = [await pulled(setup, served, url, f"far-{number}.db") for number in range(setup.repetitions)]
    async with reference_log(setup, "far") as client:
        _, took, _ = await _reference_pull(server, client, "far", port, root, delay_s=DELAY_S)
    walls = [wall for _, _, wall in ours]
    setup.emit(
        [
            Figure(
                "pull.far",
                f"pull {entries:,} entries with 50 ms more a round trip",
                "entries/s",
                [entries / wall for wall in walls],
                reference=f"{entries / took:.0f}/s",
                needs_quiet=True,
            ),
            Figure(
                "pull.far-ratio",
                "of the reference's, that many times",
                "×",
                [took / wall for wall in walls],
                Goal(at_least=20),
                needs_quiet=True,
            ),
        ]
    )


async def _reference_pull(
    server: Reference, client: Reference, log: str, port: int, root: Node, *, delay_s: float = 0.0
) -> tuple[float, float, int]:
    """Return CPU seconds of both sides, wall seconds, and bytes."""
    async with open_line(port, delay_s=delay_s / 2) as line:
        before, began = await server.cpu_s() + await client.cpu_s(), time.perf_counter()
        await client.ask("connect", log=log, url=f"ws://127.0.0.1:{line.port}")
        await client.ask("until", log=log, hash=root.hash.hex())
        took = time.perf_counter() - began
        used = await server.cpu_s() + await client.cpu_s() - before
        size = line.bytes
        await client.ask("disconnect", log=log)
    return used, took, size


def _waits(done: Exchange) -> float:
    assert done.pulled is not None
    return float(done.pulled.waits)


def _bytes(done: Exchange) -> float:
    return float(done.bytes_sent + done.bytes_received)


async def differences(setup: Setup, path: Path, base: list[Entry], server: Reference, client: Reference, port: int) -> None:
    """A few entries scattered over many, which the hub has and the client lacks."""
    async with gossiplog.open(setup.folder / "target.db", topic=TOPIC, durability="off") as target:
        await target.insert_many([entry.value for entry in base])
    for missing in (each for each in MISSING if each * 4 <= setup.entries):
        extra = await scattered(base, missing)
        await server.insert("hub", extra)
        async with gossiplog.open(path, topic=TOPIC, durability="off") as log:
            await log.insert_many([entry.value for entry in extra])
            root = await log.root()
        before = await client.requests()
        _, _, size = await _reference_pull(server, client, "near", port, root)
        requests = await client.requests() - before
        done, our_size = await _difference(setup, path)
        what = f"{missing:,} scattered entries missing of {setup.entries:,}"
        setup.emit(
            [
                Figure(f"difference-{missing}.waits", f"{what}: sequential waits", "", [_waits(done)], Goal(12), reference=f"{requests}"),
                Figure(
                    f"difference-{missing}.bytes",
                    "the same: bytes both ways, muxer and WebSocket included",
                    "kB",
                    [our_size / 1e3],
                    Goal(size / 1e3),
                    reference=f"{size / 1e3:.1f} kB",
                ),
            ]
        )


async def _difference(setup: Setup, path: Path) -> tuple[Exchange, int]:
    async with (
        hub_process(path) as served,
        open_line(int(served.url.rpartition(":")[2])) as line,
        gossiplog.open(setup.folder / "target.db", topic=TOPIC, durability="off") as target,
    ):
        done = await exchange(target, parse_url(f"ws://127.0.0.1:{line.port}"), pushes=False)
        assert done.is_equal
        return done, line.bytes


async def latency(setup: Setup) -> None:
    """From an append on one client until another one has the entry, through the hub."""
    figures = await hub.latency(setup.of_hub)
    async with reference_log(setup, "hub") as server, reference_log(setup, "a") as clients:
        (setup.folder / "b").mkdir()
        await clients.ask("open", log="b", topic=TOPIC, directory=str(setup.folder / "b"))
        port = free_port()
        await server.ask("listen", log="hub", port=port)
        for name in ("a", "b"):
            await clients.ask("connect", log=name, url=f"ws://127.0.0.1:{port}")
        theirs = await _reference_latencies(clients, clients, 0)
        rested = await _reference_latencies(clients, clients, hub.REST_S)
    setup.emit(
        [replace(figure, reference=_quantile(rested if figure.name == "latency.rested" else theirs, figure.name)) for figure in figures]
    )
    ratio = figures[0].median / statistics.median(theirs)
    what = "of the reference's p50 in the same run, that many times; the goal is that of 5 ms to the 11.5 ms that it needed elsewhere"
    setup.emit([Figure("latency.ratio", what, "×", [ratio], Goal(5 / 11.5), needs_quiet=True)])


async def gossip(setup: Setup) -> None:
    """From an append on one peer of a mesh of two until the other one has the entry."""
    flags = ("--target", "1", "--durability", "full")
    samples: list[float] = []
    async with open_cluster(setup.folder, 2, *flags) as cluster:
        await cluster.until(lambda states: all(state["peers"] >= 1 and state["degree"] >= 1 for state in states), wait_s=120)
        await cluster.peers[0].ask("append", count=APPENDS, interval_s=0.02)
        await cluster.until(lambda states: all(state["count"] >= APPENDS for state in states), wait_s=300)
        samples = await cluster.peers[1].ask("latencies")
    async with reference_log(setup, "a") as one, reference_log(setup, "b") as other:
        address = _LISTEN.format(free_port())
        [dialled, *_] = await one.ask("mesh", log="a", listen=[address], dial=None)
        await other.ask("mesh", log="b", listen=[_LISTEN.format(free_port())], dial=dialled)
        await trio.sleep(8)
        theirs = await _reference_latencies(one, other, 0.02)
    figures = [
        Figure(
            "gossip.p50",
            "append on one peer → stored on the other, a mesh of two, p50",
            "ms",
            [statistics.median(samples)],
            Goal(5),
            needs_quiet=True,
        ),
        Figure("gossip.p99", f"the same, p99 of {len(samples)}", "ms", [statistics.quantiles(samples, n=100)[98]], needs_quiet=True),
    ]
    setup.emit([replace(figure, reference=_quantile(theirs, figure.name)) for figure in figures])


async def _reference_latencies(one: Reference, other: Reference, rest_s: float) -> list[float]:
    """Append on `a` of one process and wait for each entry on `b` of another, rest and go on; return milliseconds."""
    samples = []
    for number in range(APPENDS):
        appended = await one.ask("append", log="a", number=number)
        with trio.move_on_after(20):
            arrived = await other.ask("arrival", log="b", id=appended["id"])
            samples.append((int(arrived) - int(appended["at"])) / 1e6)
        await trio.sleep(rest_s)
    return samples[20:]


def _quantile(samples: list[float], name: str) -> str:
    at = 98 if name.endswith("p99") else 49
    return f"{statistics.quantiles(samples, n=100)[at]:.1f} ms" if name.endswith(("p50", "p99", "rested")) else ""


async def fan_out(setup: Setup) -> None:
    """Ten clients, and what a delivery costs the hub."""
    setup.emit(await hub.fan_out(setup.of_hub))


BENCHMARKS: dict[str, Callable[[Setup], Awaitable[None]]] = {
    "latency": latency,
    "gossip": gossip,
    "fan-out": fan_out,
    "sync": sync,
}


def main() -> None:
    """Run what the command line names, print each figure as it comes, and write the results."""
    options = _parse()
    started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    figures: list[Figure] = []
    loads = [round(os.getloadavg()[0], 2)]

    def emit(found: Sequence[Figure]) -> None:
        loads.append(round(os.getloadavg()[0], 2))
        figures.extend(replace(figure, load=loads[-2:]) for figure in found)
        print("\n".join(f"{figure}  (reference {figure.reference})" for figure in figures[-len(found) :]), flush=True)
        if options.write:
            _write(options.write, started, options, figures)

    for name in options.only or BENCHMARKS:
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="gossiplog-net-") as folder:
            trio.run(BENCHMARKS[name], Setup(Path(folder), options.entries, options.repetitions, options.seconds, emit))
        print(f"  {name}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)


def _write(name: str, started: str, options: argparse.Namespace, figures: list[Figure]) -> None:
    loads = [load for figure in figures for load in figure.load]
    header = {
        "command": " ".join(["python -m benchmarks.net_figures", *sys.argv[1:]]),
        "measured": started,
        "machine": machine(),
        "versions": {**versions(), "reference": "@canvas-js/gossiplog 0.13.14, in the same run"},
        "settings": f"{options.entries:,} entries, {options.repetitions} repetitions of ours and one of the reference, loopback",
        "load_average": f"{min(loads)} to {max(loads)} while it was measured",
    }
    write_results(_RESULTS / name, "The network, and the reference beside it", header, figures)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.net_figures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--entries", type=int, default=10_000, metavar="N", help="in the usual log (10000)")
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="of each measurement of ours (3)")
    parser.add_argument("--seconds", type=int, default=10, metavar="S", help="of load for a figure that needs some (10)")
    parser.add_argument("--write", metavar="NAME", help="write NAME.md and NAME.json to benchmarks/results/")
    return parser.parse_args()


if __name__ == "__main__":
    main()
