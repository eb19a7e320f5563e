"""Measure reconciliation beside the merkle sync: bytes through a counting proxy, round trips, CPU; our client, our hub, files.

    python -m benchmarks.reconcile --sizes 10000,100000 --write reconcile

The two logs share a chain of entries, and differ in entries that hang on it at random places, half of them on either side. Overhead is
what passes the proxy, WebSocket included, less the VALUEs and less what a connection costs that carries nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

import gossiplog
from gossiplog.codec import pcf
from gossiplog.entry.message import Entry
from gossiplog.entry.signing import sign_entry
from gossiplog.net.hub.client import open_websocket, parse_url
from gossiplog.net.hub.exchange import Exchange, exchange
from gossiplog.net.service import sessions
from gossiplog.net.transport.muxed import open_muxed
from gossiplog.pubsub.types import PeerId

from .material import TOPIC, payloads
from .measure import Figure, Goal, Stopwatch, machine, process_cpu_s, versions, write_results
from .net_line import Line, open_line

__all__ = ["main"]

DIFFERENCES = (0, 1, 100, 10_000)
SERVED = 10
_RESULTS = Path(__file__).parent / "results"
_GOALS = {0: 250.0, 1: 600.0, 100: 8_000.0, 10_000: 800_000.0}
_WAITS = {0: 1.0, 1: 2.0, 100: 3.0, 10_000: 4.0}
_SIGNERS = [gossiplog.Ed25519Signer.from_seed(bytes([number]) * 32) for number in range(3)]


def scattered(chain: list[bytes], count: int, seed: int) -> list[Entry]:
    """Entries that hang on a chain at random places, parents in it."""
    pick = random.Random(seed)
    return [
        sign_entry(_SIGNERS[1 + seed % 2], TOPIC, index + 2, [chain[index]], pcf.encode({"n": number, "seed": seed, "x": "x" * 150}))
        for number, index in enumerate(pick.randrange(len(chain)) for _ in range(count))
    ]


class Pair:
    """Two files that share a chain, from which each measurement begins anew."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.chain: list[bytes] = []

    async def make(self, size: int) -> None:
        async with gossiplog.open(self.folder / "base.db", topic=TOPIC, signer=_SIGNERS[0], durability="off") as log:
            for first in range(0, size, 1_000):
                self.chain += [entry.key for entry in await log.append_many(payloads(1_000, seed=1, first=first))]
            # As in a log that has reconciled before.
            await log.sketch()

    async def fork(self, name: str, entries: list[Entry]) -> Path:
        path = self.folder / name
        for end in ("", "-wal", "-shm", "-lock"):
            (self.folder / f"{name}{end}").unlink(missing_ok=True)
        shutil.copy(self.folder / "base.db", path)
        async with gossiplog.open(path, durability="off") as log:
            await log.insert_many([entry.value for entry in entries])
        return path


@asynccontextmanager
async def lined(log: gossiplog.GossipLog) -> AsyncIterator[tuple[Line, str]]:
    async with log.listen("127.0.0.1:0") as hub, open_line(hub.port) as line:
        yield line, f"ws://127.0.0.1:{line.port}"


async def idle_bytes(line: Line, url: str) -> int:
    """What a connection costs that carries nothing."""
    before = line.bytes
    websocket = await open_websocket(parse_url(url))
    async with open_muxed(websocket, is_client=True, peer=PeerId(url), handlers={}):
        await trio.sleep(0.3)
    await trio.sleep(0.2)
    return line.bytes - before


async def no_sketch(log: object) -> None:
    """As a log whose sketch is not ready: the merkle sync does it."""


async def one(pair: Pair, count: int, *, is_merkle: bool) -> tuple[Exchange, float, Stopwatch]:
    ours, theirs = scattered(pair.chain, count // 2, 2), scattered(pair.chain, count - count // 2, 3)
    here, there = await pair.fork("ours.db", ours), await pair.fork("theirs.db", theirs)
    values = sum(len(entry.value) for entry in [*ours, *theirs])
    async with (
        gossiplog.open(here, durability="off") as log,
        gossiplog.open(there, durability="off") as hub_log,
        lined(hub_log) as (line, url),
    ):
        await log.sketch()
        await hub_log.sketch()
        idle = await idle_bytes(line, url)
        before = line.bytes
        ready = sessions.sketch_in_time
        try:
            if is_merkle:
                sessions.sketch_in_time = no_sketch  # type: ignore[assignment]
            with Stopwatch() as watch:
                done = await exchange(log, parse_url(url))
        finally:
            sessions.sketch_in_time = ready
        await trio.sleep(0.2)
        assert done.is_equal
        assert done.is_reconciled is not is_merkle
        return done, line.bytes - before - values - idle, watch


async def served_cpu_ms(pair: Pair) -> float:
    """CPU of a hub in a process of its own for a session with 100 entries that its client lacks."""
    there = await pair.fork("hub.db", scattered(pair.chain, 100, 3))
    command = [sys.executable, "-m", "gossiplog", "serve", str(there), "--listen", "127.0.0.1:0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        url = parse_url(json.loads(process.stdout.readline())["urls"][0])
        spent = 0.0
        for number in range(SERVED + 1):
            here = await pair.fork("ours.db", [])
            async with gossiplog.open(here, durability="off") as log:
                await log.sketch()
                before = process_cpu_s(process.pid)
                done = await exchange(log, url)
                await trio.sleep(0.1)
                assert done.is_reconciled and done.is_equal
                # The first makes the hub read its sketch.
                spent += process_cpu_s(process.pid) - before if number else 0.0
        return spent / SERVED * 1_000
    finally:
        process.terminate()
        process.wait()


async def new_replica(pair: Pair, size: int) -> tuple[float, float]:
    """The entries a second of CPU that a new replica takes in from a hub of the same process, and what the verifier alone does."""
    there = await pair.fork("theirs.db", [])
    async with gossiplog.open(there, durability="off") as hub_log, lined(hub_log) as (_, url):
        values = [entry.value async for entry in hub_log.iterate()]
        with tempfile.TemporaryDirectory(dir=pair.folder) as folder:
            async with gossiplog.open(Path(folder) / "new.db", topic=TOPIC, durability="off") as log:
                with Stopwatch() as watch:
                    done = await exchange(log, parse_url(url))
                assert done.is_equal
                with Stopwatch() as alone:
                    for first in range(0, size, 250):
                        await log.verify_many(values[first : first + 250])
    return size / watch.wall_s, size / alone.wall_s


async def measure(sizes: list[int], differences: list[int], repetitions: int) -> list[Figure]:
    figures = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            pair = Pair(Path(folder))
            await pair.make(size)
            for count in differences:
                for is_merkle in (False, True):
                    runs = [await one(pair, count, is_merkle=is_merkle) for _ in range(repetitions)]
                    kind = "merkle" if is_merkle else "sketch"
                    load = [round(os.getloadavg()[0], 2)]
                    name = f"{kind}-{size}-{count}"
                    what = f"{count:,} missing of {size:,}, by {'merkle sync' if is_merkle else 'reconciliation'}"
                    goal = None if is_merkle or count not in _GOALS else Goal(at_most=_GOALS[count])
                    figures.append(Figure(f"{name}.bytes", f"{what}: overhead", "B", [run[1] for run in runs], goal, load=load))
                    waits = [float(done.pulled.waits if done.pulled else 0) for done, _, _ in runs]
                    goal = None if is_merkle or count not in _WAITS else Goal(at_most=_WAITS[count])
                    note = "of the pull alone" if is_merkle else ""
                    figures.append(Figure(f"{name}.waits", f"{what}: round trips", "", waits, goal, note, load=load))
                    cpu = [run[2].cpu_s * 1_000 for run in runs]
                    figures.append(Figure(f"{name}.cpu", f"{what}: CPU of both sides", "ms", cpu, load=load))
                    print("\n".join(map(str, figures[-3:])), flush=True)
            served = await served_cpu_ms(pair)
            figures.append(
                Figure(f"served-{size}-100", f"a hub's CPU for a client that lacks 100 of {size:,}", "ms", [served], Goal(at_most=10.0))
            )
            took, alone = await new_replica(pair, size)
            figures.append(
                Figure(
                    f"new-{size}",
                    f"a new replica takes {size:,} entries, as a part of what verifying alone does",
                    "",
                    [took / alone],
                    Goal(at_least=0.9),
                    f"{took:,.0f} of {alone:,.0f} entries a second, hub and client in one process",
                    needs_quiet=True,
                    load=[round(os.getloadavg()[0], 2)],
                )
            )
            print("\n".join(map(str, figures[-2:])), flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure reconciliation.")
    parser.add_argument("--sizes", default="10000,100000", help="entries that both logs share")
    parser.add_argument("--differences", default=",".join(map(str, DIFFERENCES)))
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--write", metavar="NAME", help="results/NAME.json and .md")
    options = parser.parse_args()
    sizes, differences = ([int(part) for part in text.split(",")] for text in (options.sizes, options.differences))
    # However busy the machine is, the sketch is waited for.
    sessions.CATCH_UP_S = 60.0
    figures = trio.run(measure, sizes, differences, options.repetitions)
    header = {
        "command": "python -m benchmarks.reconcile " + " ".join(sys.argv[1:]),
        "measured": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "machine": machine(),
        "versions": versions(),
        "settings": "SQLite, durability off, entries of about 330 bytes; WebSocket through a proxy on loopback; one process unless said",
    }
    if options.write:
        write_results(_RESULTS / options.write, "Reconciliation", header, figures)


if __name__ == "__main__":
    main()
