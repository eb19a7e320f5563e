"""Measure a hub: the way of an entry through it, what a delivery costs, and 500 clients at once.

    python -m benchmarks.hub                                             all of it, about three minutes
    python -m benchmarks.hub --only latency fan-out --seconds 10         some of it
    python -m benchmarks.hub --only crowd --clients 50 --seconds 5       small, to see whether it runs

The hub is `gossiplog serve` in a process of its own, with a log in SQLite that syncs each commit to the disk. CPU is read from /proc.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import trio

import gossiplog
from gossiplog import Ed25519Signer, Entry, GossipLog
from gossiplog.codec import pcf
from gossiplog.entry import next_clock, sign_entry

from .measure import Figure, Goal, machine, process_cpu_s, versions, write_results

__all__ = ["TOPIC", "HubProcess", "Options", "fan_out", "hub_process", "latency", "main", "make_log", "scattered"]

TOPIC = "hub.bench"
_RESULTS = Path(__file__).parent / "results"
_PAGE = os.sysconf("SC_PAGE_SIZE")

REST_S = 0.01


@dataclass(frozen=True, slots=True)
class Options:
    folder: Path
    clients: int
    rate: int
    seconds: int
    repetitions: int


@dataclass(frozen=True, slots=True)
class HubProcess:
    """A running hub."""

    pid: int
    url: str

    def cpu_s(self) -> float:
        return process_cpu_s(self.pid)

    def rss_bytes(self) -> int:
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE


def signer(number: int) -> Ed25519Signer:
    return Ed25519Signer.from_seed(number.to_bytes(32))


@asynccontextmanager
async def hub_process(path: Path, server: str = "serve") -> AsyncIterator[HubProcess]:
    """Serve the log at a path, by `gossiplog serve` or in an application under `uvicorn`."""
    command = [sys.executable, "-m", "gossiplog", "serve", str(path), "--listen", "127.0.0.1:0", "--json", "-q"]
    if server == "uvicorn":
        command = [sys.executable, "-m", "benchmarks.hub_mounted", str(path)]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    said = json.loads(await process.stdout.receive_some())
    try:
        yield HubProcess(process.pid, said["urls"][0])
    finally:
        with trio.CancelScope(shield=True):
            process.terminate()
            await process.wait()


async def make_log(path: Path, count: int, number: int = 1) -> Path:
    async with gossiplog.open(path, topic=TOPIC, signer=signer(number), durability="off") as log:
        for start in range(0, count, 1000):
            await log.append_many({"n": n, "text": "x" * 40} for n in range(start, min(count, start + 1000)))
    return path


def load() -> list[float]:
    return [round(each, 2) for each in os.getloadavg()]


async def scattered(entries: Sequence[Entry], count: int) -> list[Entry]:
    step = len(entries) // count
    parents = [entries[n * step + step // 2] for n in range(count)]
    return [
        sign_entry(signer(2), TOPIC, next_clock([p.key]), [p.key], pcf.encode({"extra": n, "text": "x" * 40}))
        for n, p in enumerate(parents)
    ]


async def latency(options: Options) -> list[Figure]:
    """From `append` on one client until another one has the entry, through the hub; every log syncs its commits.

    One entry goes after the other, and then again with a rest in between, from which processors and caches wake up cold.
    """
    samples, acknowledged = await _latencies(options, "latency", 0)
    rested, _ = await _latencies(options, "rested", REST_S)
    what = "append on one client → stored on another through the hub, p50; medians of 5 × 100, each commit synced to disk"
    return [
        Figure("latency.p50", what, "ms", _medians(samples), Goal(3), reference="11.5 ms", needs_quiet=True),
        Figure("latency.p99", "the same, p99 of 500", "ms", [statistics.quantiles(samples, n=100)[98]], needs_quiet=True),
        Figure(
            "latency.append", "of that, until the append was acknowledged, p50", "ms", [statistics.median(acknowledged)], needs_quiet=True
        ),
        Figure(
            "latency.rested",
            f"`latency.p50` with {1000 * REST_S:.0f} ms of rest after each entry",
            "ms",
            _medians(rested),
            needs_quiet=True,
        ),
    ]


def _medians(samples: Sequence[float]) -> list[float]:
    return [statistics.median(samples[start : start + 100]) for start in range(0, len(samples), 100)]


async def _latencies(options: Options, name: str, rest_s: float) -> tuple[list[float], list[float]]:
    """How long 500 entries took to the other client, and how long their appends, in ms."""
    path = await make_log(options.folder / f"{name}.db", 10)
    arrived: dict[bytes, float] = {}
    changed = trio.Event()

    def on_commit(entries: Sequence[Entry]) -> None:
        nonlocal changed
        at = time.perf_counter()
        arrived.update((entry.key, at) for entry in entries)
        changed.set()
        changed = trio.Event()

    samples, acknowledged = [], []
    async with (
        hub_process(path) as hub,
        gossiplog.open(options.folder / f"{name}-a.db", topic=TOPIC, signer=signer(2)) as a,
        gossiplog.open(options.folder / f"{name}-b.db", topic=TOPIC, signer=signer(3)) as b,
    ):
        with b.watch_commits(on_commit):
            async with a.connect(hub.url), b.connect(hub.url):
                while await a.count() < 10 or await b.count() < 10:
                    await trio.sleep(0.05)
                for n in range(520):
                    began = time.perf_counter()
                    entry = await a.append({"n": n})
                    acknowledged.append((time.perf_counter() - began) * 1000)
                    while entry.key not in arrived:
                        waiting = changed
                        if entry.key not in arrived:
                            await waiting.wait()
                    samples.append((arrived[entry.key] - began) * 1000)
                    await trio.sleep(rest_s)
    return samples[20:], acknowledged[20:]


async def fan_out(options: Options) -> list[Figure]:
    """Ten clients, and what a delivery costs the hub."""
    return (await _crowd(options, "fan-out", 10, 0, min(options.seconds, 20)))[:3]


async def crowd(options: Options) -> list[Figure]:
    """Many clients, one of which reads nothing."""
    return await _crowd(options, "crowd", options.clients, 1, options.seconds)


async def mounted(options: Options) -> list[Figure]:
    """What a delivery costs an application of uvicorn's with `gossiplog.asgi`, over what it costs `serve`, in turns."""
    ratios, figures = [], []
    for turn in range(options.repetitions):
        cost = {}
        for server in ("serve", "uvicorn"):
            figures = await _crowd(options, f"mounted-{server}-{turn}", 10, 0, min(options.seconds, 20), server)
            cost[server] = figures[0].samples[0]
        ratios.append(cost["uvicorn"] / cost["serve"])
    what = "10 clients: CPU for each delivery of gossiplog.asgi under uvicorn, over that of serve, in turns"
    return [Figure("mounted.cpu", what, "×", ratios, Goal(1.5)), replace(figures[1], name="mounted.undelivered")]


async def _crowd(options: Options, name: str, clients: int, deaf: int, seconds: int, server: str = "serve") -> list[Figure]:
    path = await make_log(options.folder / f"{name}.db", 10)
    count = options.rate * seconds
    async with (
        hub_process(path, server) as hub,
        gossiplog.open(options.folder / f"{name}-a.db", topic=TOPIC, signer=signer(2)) as log,
        log.connect(hub.url),
    ):
        while await log.count() < 10:
            await trio.sleep(0.05)
        empty = hub.rss_bytes()
        command = [
            sys.executable,
            "-m",
            "benchmarks.hub_clients",
            hub.url,
            TOPIC,
            str(clients),
            str(deaf),
            str(count),
            str(seconds * 4 + 30),
        ]
        process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert (await process.stdout.receive_some()).strip() == b"ready"
        connected = hub.rss_bytes()
        before, began = hub.cpu_s(), time.perf_counter()
        peak = await _append_at_rate(log, options.rate, count, hub)
        appended_s = time.perf_counter() - began
        output = b""
        while chunk := await process.stdout.receive_some():
            output += chunk
        used, took = hub.cpu_s() - before, time.perf_counter() - began
        await process.wait()
    seen = json.loads(output)
    what = f"{clients:,} clients, {options.rate} appends/s for {seconds} s"
    deliveries = clients * count
    missing = deliveries - seen["delivered"]
    return [
        Figure(
            f"{name}.cpu",
            f"{what}: the hub's CPU for each delivery",
            "ms CPU",
            [used * 1000 / seen["delivered"]],
            Goal(0.15),
            reference="py-libp2p's pubsub 6.4 ms",
        ),
        Figure(
            f"{name}.undelivered",
            f"of {deliveries:,} deliveries, {seen['whole']} clients whole, {seen['lost']} lost",
            "",
            [float(missing)],
            Goal(0),
        ),
        Figure(
            f"{name}.p99",
            f"append → read by a client, p99; p50 {seen['p50_ms']:.1f}, p90 {seen['p90_ms']:.1f}, most {seen['max_ms']:.0f} ms",
            "ms",
            [seen["p99_ms"]],
            needs_quiet=True,
        ),
        Figure(
            f"{name}.cores", f"the hub's CPU over wall; appends took {appended_s:.1f} s, everything {took:.1f} s", "cores", [used / took]
        ),
        Figure(
            f"{name}.memory",
            f"the hub's RSS for each client; {empty / 1e6:.0f} MB without, {connected / 1e6:.0f} MB with, {peak / 1e6:.0f} MB under load"
            + (", one client more reading nothing" if deaf else ""),
            "kB",
            [(connected - empty) / clients / 1000],
        ),
        Figure(
            f"{name}.client-cpu",
            "CPU of the process with all clients, for each delivery",
            "ms CPU",
            [seen["cpu_s"] * 1000 / seen["delivered"]],
        ),
    ]


async def _append_at_rate(log: GossipLog, rate: int, count: int, hub: HubProcess) -> int:
    """Append so many a second, each saying when; return the hub's largest RSS."""
    began, peak = trio.current_time(), 0
    for n in range(count):
        await trio.sleep_until(began + n / rate)
        await log.append({"mark": f"#@{n},{time.monotonic_ns()}@#", "text": "x" * 100})
        if n % rate == 0:
            peak = max(peak, hub.rss_bytes())
    return peak


BENCHMARKS: dict[str, Callable[[Options], Awaitable[list[Figure]]]] = {
    "latency": latency,
    "fan-out": fan_out,
    "crowd": crowd,
    "mounted": mounted,
}


def main() -> None:
    """Run what the command line names, print each figure as it comes, and write the results."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hub", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(BENCHMARKS), default=list(BENCHMARKS))
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--rate", type=int, default=100, help="appends a second")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None, help="where to write hub.md and hub.json; nowhere unless given")
    options = parser.parse_args()
    figures: list[Figure] = []
    started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    with tempfile.TemporaryDirectory() as folder:
        setup = Options(Path(folder), options.clients, options.rate, options.seconds, options.repetitions)
        for name in options.only:
            before = load()
            for figure in trio.run(BENCHMARKS[name], setup):
                figure = replace(figure, load=[before[0], load()[0]])
                print(figure, figure.what, flush=True)
                figures.append(figure)
    header = {"command": "python -m benchmarks.hub", "when": started, "machine": machine(), "versions": versions(), "durability": "full"}
    if options.out is not None:
        write_results(options.out / "hub", "Hub", header, figures)


if __name__ == "__main__":
    main()
