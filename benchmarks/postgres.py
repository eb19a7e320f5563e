"""Measure a log on a PostgreSQL server, over a local socket, with SQLite in the same run for scale.

    python -m benchmarks.postgres --write postgres          all of it; takes minutes, most of them for the large log
    python -m benchmarks.postgres --only append batch       some of it
    python -m benchmarks.postgres --large 20000             small, to see whether it runs

The server is one of our own, as initdb makes it. CPU is that of this process; the server's is named where it is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import asyncpg
import trio

import gossiplog
from gossiplog.codec import pcf
from gossiplog.entry import Verdict, sign_entry
from gossiplog.gossip_log import GossipLog

from .material import BATCH, PAYLOAD_BYTES, TOPIC, Setup, entries, payload, payloads
from .measure import Figure, Goal, Stopwatch, machine, process_cpu_s, versions, write_results
from .postgres_writers import Written, write

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/support"))

from postgres_support import PostgresServer, running_server

_RESULTS = Path(__file__).parent / "results"
_TURN = 20
_LEVELS = {"on": "full", "off": "off"}
"""synchronous_commit, and what a log must be opened with to get it."""
_WRITE_S = 4.0
_WRITERS = 4
_TASKS = 8
_SYNC_S = 15.0


@dataclass(frozen=True, slots=True)
class Bench:
    """A run: its settings and its server."""

    setup: Setup
    server: PostgresServer

    @asynccontextmanager
    async def open(self, store: str, level: str = "on", url: str | None = None) -> AsyncIterator[GossipLog]:
        """Open a new log of a store, or the one at a URL."""
        place = url or (self.server.new_log() if store == "postgres" else str(self.setup.new("bench.db")))
        async with gossiplog.open(place, topic=TOPIC, signer=self.setup.signer, durability=_LEVELS[level]) as log:
            yield log


async def append(bench: Bench) -> list[Figure]:
    """One append after the other, in turns on Postgres and in a SQLite file."""
    figures = []
    rng = random.Random(bench.setup.seed)
    for level in _LEVELS:
        samples: dict[str, list[tuple[float, float]]] = {"postgres": [], "sqlite": []}
        async with bench.open("postgres", level) as ours, bench.open("sqlite", level) as other:
            logs = {"postgres": ours, "sqlite": other}
            for log in logs.values():
                await log.append_many(payloads(bench.setup.entries, seed=bench.setup.seed))
                await _appends(log, rng, 100)
            bare = []
            for _ in range(bench.setup.repetitions):
                turns = []
                for _ in range(10):
                    turns.append({name: await _appends(log, rng, _TURN) for name, log in logs.items()})
                    turns[-1]["bare"] = (0.0, await trio.to_thread.run_sync(_bare_commits, bench, level))
                for name in logs:
                    medians = [statistics.median(turn[name][kind] for turn in turns) for kind in (0, 1)]
                    samples[name].append((medians[0], medians[1]))
                bare.append(statistics.median(turn["bare"][1] for turn in turns))
            trips = await _round_trips(ours, rng)
        over = [wall - least for (_, wall), least in zip(samples["postgres"], bare, strict=True)]
        figures.append(Figure(f"append.bare-{level}.wall", f"INSERT of a row, asyncpg alone, {level}, wall", "ms", bare, needs_quiet=True))
        figures.append(Figure(f"append.over-bare-{level}.wall", f"an append's wall less that, {level}", "ms", over, needs_quiet=True))
        for name, found in samples.items():
            goal = Goal(at_most=2.5) if (name, level) == ("postgres", "on") else None
            where = f"{name}, synchronous_commit {level}" if name == "postgres" else f"sqlite, synchronous {_LEVELS[level]}"
            wall = [wall for _, wall in found]
            figures.append(Figure(f"append.{name}-{level}.wall", f"append, {where}, wall", "ms", wall, goal, needs_quiet=True))
            figures.append(Figure(f"append.{name}-{level}.cpu", f"append, {where}, CPU", "ms", [cpu for cpu, _ in found]))
        figures.append(Figure(f"append.trips-{level}", f"round trips of an append, {level}", "", trips, Goal(at_most=3)))
    return figures


async def batch(bench: Bench) -> list[Figure]:
    """What storing costs in batches of 1,000 that are verified already."""
    verdicts = await _verified(bench, bench.setup.entries)
    figures = []
    for store, level in itertools.product(("postgres", "sqlite"), _LEVELS):
        cpu, wall, server = [], [], []
        for _ in range(bench.setup.repetitions):
            async with bench.open(store, level) as log:
                before = _server_cpu(bench.server)
                with Stopwatch() as watch:
                    for low in range(0, len(verdicts), BATCH):
                        await log.insert_verified(verdicts[low : low + BATCH])
                cpu.append(1e6 * watch.cpu_s / len(verdicts))
                wall.append(1e6 * watch.wall_s / len(verdicts))
                server.append(1e6 * (_server_cpu(bench.server) - before) / len(verdicts))
        at = f"store a verified entry in batches of {BATCH:,}, {store}, {level}"
        goal = Goal(at_most=60) if store == "postgres" else None
        figures.append(Figure(f"batch.{store}-{level}.wall", f"{at}, wall", "µs", wall, goal, needs_quiet=True))
        figures.append(Figure(f"batch.{store}-{level}.cpu", f"{at}, CPU", "µs", cpu, goal))
        if store == "postgres":
            figures.append(Figure(f"batch.{store}-{level}.server-cpu", f"{at}, CPU of the server", "µs", server))
    return figures


async def scattered(bench: Bench) -> list[Figure]:
    """Batches of 100 entries with low clocks, which sort all over a log's first entries, and change as many nodes of the tree."""
    rng = random.Random(bench.setup.seed)
    made = [sign_entry(bench.setup.signer, TOPIC, 1, [], pcf.encode(payload(n, rng))) for n in range(2_000)]
    figures = []
    for store in ("postgres", "sqlite"):
        cpu, wall, trips = [], [], []
        async with bench.open(store, "off") as log:
            verdicts = await log.verify_many([entry.value for entry in made])
            await log.insert_verified(verdicts[:1_000])
            for low in range(1_000, 2_000, 100):
                counted = _Count()
                with counted, Stopwatch() as watch:
                    await log.insert_verified(verdicts[low : low + 100])
                cpu.append(1e6 * watch.cpu_s / 100)
                wall.append(1e6 * watch.wall_s / 100)
                trips.append(counted.trips)
        at = f"store an entry in scattered batches of 100, {store}, off"
        figures.append(Figure(f"scattered.{store}.wall", f"{at}, wall", "µs", wall, needs_quiet=True))
        figures.append(Figure(f"scattered.{store}.cpu", f"{at}, CPU", "µs", cpu))
        if store == "postgres":
            figures.append(Figure("scattered.trips", "round trips of such a batch", "", trips))
    return figures


async def ingest(bench: Bench) -> list[Figure]:
    """Verify and insert, in batches of 1,000."""
    values = [entry.value for entry in entries(bench.setup, bench.setup.entries)]
    figures = []
    for store, level in (("postgres", "on"), ("postgres", "off"), ("sqlite", "on")):
        rate, wall = [], []
        for _ in range(bench.setup.repetitions):
            async with bench.open(store, level) as log:
                with Stopwatch() as watch:
                    for low in range(0, len(values), BATCH):
                        await log.insert_many(values[low : low + BATCH])
                rate.append(len(values) / watch.cpu_s)
                wall.append(len(values) / watch.wall_s)
        goal = Goal(at_least=5_000) if store == "postgres" else None
        figures.append(Figure(f"ingest.{store}-{level}.cpu", f"verify and insert, {store}, {level}", "entries/s CPU", rate, goal))
        figures.append(Figure(f"ingest.{store}-{level}.wall", f"verify and insert, {store}, {level}", "entries/s wall", wall))
    return figures


async def writers(bench: Bench) -> list[Figure]:
    """Processes that append to one log, one of them and four in turns: one entry after the other each, and from eight tasks each."""
    figures = []
    for tasks, level in itertools.product((1, _TASKS), _LEVELS):
        alone, together = [], []
        for _ in range(bench.setup.repetitions):
            alone.append(await trio.to_thread.run_sync(_write, bench, 1, tasks, level))
            together.append(await trio.to_thread.run_sync(_write, bench, _WRITERS, tasks, level))
        ratio = [many.rate / one.rate for many, one in zip(together, alone, strict=True)]
        name = f"writers.{{}}-{level}" if tasks == 1 else f"writers.{{}}-{tasks}-tasks-{level}"
        each = f", {tasks} at a time each" if tasks > 1 else ""
        four = f"of {_WRITERS} processes on one log{each}, {level}"
        goal = Goal(at_least=0.9) if tasks == 1 else None
        rate, unit = f"appends {four}, all together", "entries/s wall"
        figures += [
            Figure(name.format("one"), f"appends of one process{each}, {level}", unit, [one.rate for one in alone]),
            Figure(name.format("four"), rate, unit, [many.rate for many in together]),
            Figure(name.format("ratio"), "the latter over the former", "×", ratio, goal, f"{_WRITE_S:.0f} s each, in turns"),
            Figure(name.format("one-p50"), f"append of one process{each}, {level}, p50", "ms", [one.wait(0.5) for one in alone]),
            Figure(name.format("one-p99"), "the same, p99", "ms", [one.wait(0.99) for one in alone]),
            Figure(name.format("four-p50"), f"append {four}, p50", "ms", [many.wait(0.5) for many in together]),
            Figure(name.format("four-p99"), "the same, p99", "ms", [many.wait(0.99) for many in together]),
            Figure(
                name.format("four-least"), "the process that appended least, over an equal share", "×", [many.least for many in together]
            ),
        ]
    return figures


def _write(bench: Bench, processes: int, tasks: int, level: str) -> Written:
    url = bench.server.new_log()
    return write(url, processes=processes, tasks=tasks, durability=_LEVELS[level], seconds=_WRITE_S)


async def size(bench: Bench) -> list[Figure]:
    """Bytes on disk, indexes included."""
    figures = []
    for store in ("postgres", "sqlite"):
        place = bench.server.new_log() if store == "postgres" else str(bench.setup.new("size.db"))
        async with bench.open(store, "off", place) as log:
            await log.append_many(payloads(bench.setup.entries, seed=bench.setup.seed))
        # Open again, because a file's write-ahead log is gone only then.
        async with bench.open(store, "off", place) as log:
            each = await log.size_bytes() / bench.setup.entries
        figures.append(Figure(f"size.{store}", f"size on disk at {bench.setup.entries:,} entries, {store}", "B/entry", [each]))
    return figures


async def large(bench: Bench) -> list[Figure]:
    """A large log: loaded, opened, appended to, synced from."""
    url, count = bench.server.new_log(), bench.setup.large
    async with bench.open("postgres", "off", url) as log:
        with Stopwatch() as watch:
            for first in range(0, count, BATCH):
                await log.append_many(payloads(min(BATCH, count - first), seed=bench.setup.seed, first=first))
        each = await log.size_bytes() / count
    opening, first_append, counting = [], [], []
    for _ in range(bench.setup.repetitions):
        begun = time.perf_counter()
        async with bench.open("postgres", "on", url) as log:
            opening.append(time.perf_counter() - begun)
            first_append.append((await _appends(log, random.Random(1), 1))[1])
            begun = time.perf_counter()
            assert await log.count() >= count
            counting.append(time.perf_counter() - begun)
    async with bench.open("postgres", "on", url) as source, bench.open("sqlite", "off") as target:
        with Stopwatch() as sync_watch, trio.move_on_after(_SYNC_S):
            await target.sync(source)
        synced = await target.count()
    at = f"at {count:,} entries"
    return [
        Figure("large.load", f"sign and append {count:,} entries in batches of {BATCH:,}, off", "entries/s CPU", [count / watch.cpu_s]),
        Figure("large.load-wall", "the same", "entries/s wall", [count / watch.wall_s]),
        Figure("large.size", f"size on disk {at}", "B/entry", [each]),
        Figure("large.open", f"open {at}", "s", opening, Goal(at_most=1)),
        Figure("large.append", f"the first append after that, {at}, on", "ms", first_append),
        Figure("large.count", f"count {at}", "s", counting),
        Figure(
            "large.sync",
            f"sync from it into an empty SQLite log for {_SYNC_S:.0f} s, both sides",
            "entries/s CPU",
            [synced / sync_watch.cpu_s],
        ),
        Figure("large.sync-wall", "the same", "entries/s wall", [synced / sync_watch.wall_s]),
    ]


BENCHMARKS: dict[str, Callable[[Bench], Awaitable[list[Figure]]]] = {
    "append": append,
    "batch": batch,
    "scattered": scattered,
    "ingest": ingest,
    "writers": writers,
    "size": size,
    "large": large,
}


class _Count:
    """Counts round trips of a log's connections."""

    def __enter__(self) -> _Count:
        self.trips = 0
        self._originals = {name: getattr(asyncpg.Connection, name) for name in ("execute", "fetch")}
        for name, original in self._originals.items():
            setattr(asyncpg.Connection, name, self._counting(original))
        return self

    def __exit__(self, *_: object) -> None:
        for name, original in self._originals.items():
            setattr(asyncpg.Connection, name, original)

    def _counting(self, original: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(connection: Any, statement: str, *args: Any, **kwargs: Any) -> Any:
            # The notification goes out after the commit, and nobody waits for it.
            self.trips += "pg_notify" not in statement
            return await original(connection, statement, *args, **kwargs)

        return call


async def _round_trips(log: GossipLog, rng: random.Random) -> list[float]:
    """Count the round trips of each of some appends; a node of the tree that ends makes it one more now and then."""
    trips = []
    for _ in range(5 * _TURN):
        counted = _Count()
        with counted:
            await _appends(log, rng, 1)
        trips.append(float(counted.trips))
    return trips


async def _appends(log: GossipLog, rng: random.Random, count: int) -> tuple[float, float]:
    """Append one after the other; return CPU and wall of one, in ms."""
    walls = []
    with Stopwatch() as watch:
        for number in range(count):
            begun = time.perf_counter()
            await log.append(payload(number, rng))
            walls.append(time.perf_counter() - begun)
    return 1e3 * watch.cpu_s / count, 1e3 * statistics.median(walls)


def _bare_commits(bench: Bench, level: str) -> float:
    """Return the median wall of the least that an append could be, in ms."""

    async def run() -> float:
        connection = await asyncpg.connect(bench.server.url())
        try:
            table = "CREATE TABLE IF NOT EXISTS bare (n SERIAL PRIMARY KEY, value BYTEA)"
            await connection.execute(f"SET synchronous_commit = {level}; {table}")
            walls = []
            for _ in range(_TURN + 3):
                begun = time.perf_counter()
                await connection.execute("INSERT INTO bare (value) VALUES ($1)", b"x" * 430)
                walls.append(time.perf_counter() - begun)
            return 1e3 * statistics.median(walls[3:])
        finally:
            await connection.close()

    return asyncio.run(run())


async def _verified(bench: Bench, count: int) -> Sequence[Verdict]:
    async with gossiplog.open(":memory:", topic=TOPIC) as log:
        return await log.verify_many([entry.value for entry in entries(bench.setup, count)])


def _server_cpu(server: PostgresServer) -> float:
    """User and system seconds of all processes of the server."""
    pid = server.pid
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return sum(process_cpu_s(process, with_ended=True) for process in (pid, *children))


def main() -> None:
    """Run what the command line names, print each figure as it comes, and write the results."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.postgres", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--entries", type=int, default=10_000, metavar="N", help="in the usual log (10000)")
    parser.add_argument("--large", type=int, default=1_000_000, metavar="N", help="in the large one (1000000)")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="of each measurement (5)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of everything random (1)")
    parser.add_argument("--write", metavar="NAME", help="write NAME.md and NAME.json to benchmarks/results/")
    options = parser.parse_args()
    started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="gossiplog-figures-") as folder, running_server() as server:
        place = Path(folder)
        setup = Setup(options.entries, options.large, options.repetitions, "full", options.seed, place, place)
        for name in options.only or BENCHMARKS:
            load = round(os.getloadavg()[0], 2)
            found = trio.run(BENCHMARKS[name], Bench(setup, server))
            after = round(os.getloadavg()[0], 2)
            found = [replace(figure, load=[load, after]) for figure in found]
            figures += found
            print("\n".join(str(figure) for figure in found), flush=True)
        version = server.sql("SELECT current_setting('server_version')")[0][0]
    loads = [load for figure in figures for load in figure.load]
    header = {
        "command": " ".join(["python -m benchmarks.postgres", *sys.argv[1:]]),
        "measured": started,
        "machine": machine(),
        "versions": {**versions(), "asyncpg": asyncpg.__version__, "postgresql": version},
        "server": "local socket, settings as initdb leaves them",
        "settings": f"payload {PAYLOAD_BYTES} B, {setup.repetitions} repetitions, seed {setup.seed}",
        "load_average": f"{min(loads)} to {max(loads)} while it was measured",
    }
    if options.write:
        write_results(_RESULTS / options.write, "A log on PostgreSQL", header, figures)
    missed = [figure.name for figure in figures if figure.is_met is False]
    untold = [figure.name for figure in figures if figure.goal is not None and figure.is_met is None]
    print(f"missed: {', '.join(missed) or 'none'}; machine too busy to tell: {', '.join(untold) or 'none'}", file=sys.stderr)


if __name__ == "__main__":
    main()
