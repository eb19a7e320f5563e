"""Measure meshes of peers as processes on this machine, found through one bootstrap peer.

    python -m benchmarks.mesh --write mesh                 16 and 64 peers; ten minutes and 3 GB
    python -m benchmarks.mesh --peers 8 --rates 2          small, to see whether it runs
    python -m benchmarks.mesh --peers 16 --rates 5 10 --against ../older --write delivery-16
    python -m benchmarks.mesh --peers 3 --rates 300 --in-memory --against ../older --write delivery-3-memory
    python -m benchmarks.mesh --peers 3 --rates 300 --pubsub-alone --write delivery-3-pubsub

Each peer is a process with its own log (SQLite, durability normal) and libp2p host. With logs in memory a delivery is still half an append
or a third, a verification, a commit and a tree. With pubsub alone nothing is verified or stored, as libraries of pubsub do it: host, noise,
muxer, streams and router are as ever, and each message is accepted at once. Peers are forked from one that has loaded libp2p, so a
peer's memory is less than the 97 MB of one by itself; it is told as its share (PSS). Appends go round, each by another peer, at even
intervals. Latency is from just before an append to the commit on another peer; the clock is the machine's. CPU is that of all peers
together, less what they use when nobody appends; what asks for it, and for a peer's count, costs next to nothing. With many peers a
core, latency is a measure of the machine: compare CPU.

With `--against`, meshes of another tree's package run in turns with those of this one, as nothing else can be compared on a machine
that others use as well; its figures have `was.` before their names.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import trio

from tests.support.mesh_cluster import Cluster, is_converged, open_cluster

from .measure import Figure, machine, versions, write_results

__all__ = ["main"]

_RESULTS = Path(__file__).parent / "results"
_SETTLE_S = 15.0
"""For searches and grafts to come to rest, so that their work is not taken for that of an idle mesh."""
_IDLE_S = 20.0
_LOOK_S = 0.2


@dataclass
class _Samples:
    """Figures by name, while repetitions add to them."""

    figures: dict[str, tuple[str, str, list[float]]] = field(default_factory=dict)

    def add(self, name: str, what: str, unit: str, value: float) -> None:
        self.figures.setdefault(name, (what, unit, []))[2].append(value)


def main() -> None:
    """Run, print each figure, and write the results."""
    options = _parse()
    started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    samples = _Samples()
    loads = [os.getloadavg()[0]]
    trees = [None] if options.against is None else [options.against.absolute(), None]
    for count in options.peers:
        for repetition in range(options.repetitions if count < 32 else 1):
            for tree in trees:
                with tempfile.TemporaryDirectory(prefix="gossiplog-mesh-") as folder:
                    trio.run(_measure, Path(folder), count, options, samples, tree)
            print(f"  {count} peers, repetition {repetition + 1}: done", file=sys.stderr, flush=True)
    loads.append(os.getloadavg()[0])
    load = [round(each, 2) for each in loads]
    figures = [Figure(name, what, unit, values, load=load) for name, (what, unit, values) in samples.figures.items()]
    header = {
        "command": " ".join(["python -m benchmarks.mesh", *sys.argv[1:]]),
        "measured": started,
        "machine": machine(),
        "versions": versions(),
        "settings": f"router {options.router}, target {options.target} connections, {_log_kind(options)}, {options.seconds} s a rate",
        "load_average": f"{load[0]} before, {load[1]} after",
    }
    print(header["settings"], *figures, sep="\n")
    if options.write:
        write_results(_RESULTS / options.write, "Meshes of processes", header, figures)


def _log_kind(options: argparse.Namespace) -> str:
    if options.pubsub_alone:
        return "pubsub alone, nothing verified or stored"
    return "logs in memory" if options.in_memory else "durability normal"


async def _measure(folder: Path, count: int, options: argparse.Namespace, samples: _Samples, tree: Path | None) -> None:
    """Build one mesh and load it at each rate."""
    flags = ["--target", str(options.target), "--router", options.router, "--durability", "normal"]
    flags += ["--in-memory"] * options.in_memory + ["--relay"] * options.pubsub_alone
    begun = time.perf_counter()
    async with open_cluster(folder, count, *flags, tree=tree) as cluster:
        started = time.perf_counter()
        enough = min(options.target, count - 1) * 3 // 4
        states = await cluster.until(lambda states: all(state["peers"] >= enough for state in states), wait_s=900, pause_s=1)
        meshed_s = time.perf_counter() - started
        prefix = f"{'was.' * (tree is not None)}{'pubsub' if options.pubsub_alone else 'mesh'}-{count}"
        samples.add(f"{prefix}.start", f"start {count} processes, one after the other", "s", started - begun)
        samples.add(f"{prefix}.meshed", f"until each has {enough} connections, after the last one started", "s", meshed_s)
        samples.add(f"{prefix}.connections", "connections of a peer, mean", "", statistics.fmean(state["peers"] for state in states))
        samples.add(f"{prefix}.start-cpu", "CPU of a peer until then", "s", statistics.fmean(state["cpu_s"] for state in states))
        await trio.sleep(_SETTLE_S)
        idle_cpu = await _idle(cluster)
        samples.add(f"{prefix}.idle", "CPU of a peer when nobody appends", "% of a core", 100 * idle_cpu / count)
        total = 0
        for rate in options.rates:
            total += rate * options.seconds
            await _load(cluster, rate, options.seconds, total, idle_cpu, samples, prefix)
        states = await cluster.states()
        samples.add(f"{prefix}.degree", "grafted peers, mean", "", statistics.fmean(state["degree"] for state in states))
        samples.add(
            f"{prefix}.memory",
            "memory of a peer (PSS)",
            "MB",
            statistics.fmean(state["memory_mb"] for state in states),
        )


async def _idle(cluster: Cluster) -> float:
    """Return the CPU seconds a second of all peers together while nothing happens."""
    before, begun = await _cpu(cluster), time.perf_counter()
    await trio.sleep(_IDLE_S)
    return (await _cpu(cluster) - before) / (time.perf_counter() - begun)


async def _load(cluster: Cluster, rate: int, seconds: int, total: int, idle_cpu: float, samples: _Samples, of: str) -> None:
    """Append so many a second in all, for so many seconds, and wait until all have all."""
    count = len(cluster.peers)
    before, begun = await _cpu(cluster), time.perf_counter()
    for number, peer in enumerate(cluster.peers):
        await peer.ask("append", count=len(range(number, rate * seconds, count)), interval_s=count / rate, after_s=number / rate)
    await trio.sleep(seconds)
    with trio.fail_after(900):
        for peer in cluster.peers:
            while await peer.ask("count") < total:
                await trio.sleep(_LOOK_S)
    used, elapsed = await _cpu(cluster) - before, time.perf_counter() - begun
    await cluster.until(lambda states: is_converged(states, total), wait_s=60)
    latencies = sorted([latency for peer in cluster.peers for latency in await peer.ask("latencies")])
    deliveries = rate * seconds * (count - 1)
    if len(latencies) != deliveries:
        raise RuntimeError(f"{len(latencies)} deliveries, expected {deliveries}")
    prefix = f"{of}.{rate}/s"
    cpu = used - idle_cpu * elapsed
    samples.add(f"{prefix}.p50", f"append to visible elsewhere, {rate} appends/s in all", "ms", latencies[len(latencies) // 2])
    samples.add(f"{prefix}.p99", "the same", "ms", latencies[len(latencies) * 99 // 100])
    samples.add(f"{prefix}.cpu", "CPU a delivery (an entry at one more peer)", "ms", 1000 * cpu / deliveries)


async def _cpu(cluster: Cluster) -> float:
    return sum([float(await peer.ask("cpu")) for peer in cluster.peers])


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mesh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", type=int, nargs="+", default=[16, 64], metavar="N", help="sizes of meshes (16 64)")
    parser.add_argument("--rates", type=int, nargs="+", default=[1, 5, 10], metavar="N", help="appends a second, in all (1 5 10)")
    parser.add_argument("--seconds", type=int, default=20, metavar="N", help="for each rate (20)")
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="of meshes with fewer than 32 peers (3); others once")
    parser.add_argument("--target", type=int, default=12, metavar="N", help="connections that a peer keeps (12)")
    parser.add_argument("--router", choices=("gossipsub", "episub"), default="gossipsub")
    parser.add_argument("--in-memory", action="store_true", help="logs in memory")
    parser.add_argument("--pubsub-alone", action="store_true", help="no logs: entries are neither verified nor stored")
    parser.add_argument("--against", type=Path, metavar="TREE", help="another checkout, whose package is measured in turns with this one")
    parser.add_argument("--write", metavar="NAME", help="write NAME.md and NAME.json to benchmarks/results/")
    return parser.parse_args()


if __name__ == "__main__":
    main()
