"""How fast a log takes in entries: its own, one at a time and many at once, and those of others."""

from __future__ import annotations

import gc
import random
import sqlite3
import statistics
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import trio
from nacl.bindings import crypto_sign_open

import gossiplog
from gossiplog.codec.did import decode_did
from gossiplog.entry.envelope import signature_and_signed_bytes

from .material import BATCH, SHAPES, Setup, entries, payload
from .measure import Figure, Goal, Stopwatch

__all__ = ["append", "append_large", "concurrent", "ingest", "sync", "validate"]

_TURN = 20
"""Appends between two turns of what they are compared with."""
_APPENDERS = 64
_VALUE_BYTES = 430
"""About what a payload of 200 bytes makes; what the bare commit writes."""


async def append(setup: Setup) -> list[Figure]:
    """One append after the other, in turns with the barest commit that SQLite can do at the same durability."""
    path = await setup.linear(setup.new("append.db"), setup.entries)
    rng = random.Random(setup.seed)
    cpu, wall, bare_cpu, bare_wall = [], [], [], []
    async with setup.open(path) as log:
        with _bare(setup) as commit:
            await _append_turn(log, rng, 100)
            for _ in range(setup.repetitions):
                turns = [(await _append_turn(log, rng, _TURN), _turn(commit, _TURN)) for _ in range(15)]
                cpu.append(statistics.median(ours[0] for ours, _ in turns))
                wall.append(statistics.median(ours[1] for ours, _ in turns))
                bare_cpu.append(statistics.median(theirs[0] for _, theirs in turns))
                bare_wall.append(statistics.median(theirs[1] for _, theirs in turns))
    difference = [ours - theirs for ours, theirs in zip(wall, bare_wall, strict=True)]
    at = f"at {setup.entries:,} entries"
    note = f"medians of 15 turns of {_TURN}"
    return [
        Figure("append.cpu", f"append one at a time {at}, CPU", "ms", cpu, Goal(at_most=0.6), note, "2.7 ms, 9 fsyncs"),
        Figure("append.wall", f"append one at a time {at}, wall", "ms", wall),
        Figure("append.bare-cpu", "bare one-row SQLite commit, CPU", "ms", bare_cpu),
        Figure("append.bare-wall", "bare one-row SQLite commit, wall", "ms", bare_wall),
        Figure("append.wall-over-bare", "append's wall less the bare commit's", "ms", difference, Goal(at_most=0.7), needs_quiet=True),
    ]


async def append_large(setup: Setup) -> list[Figure]:
    """The same at a large log, in turns with the usual one, so that the ratio is of the same minutes."""
    rng = random.Random(setup.seed)
    small = await setup.linear(setup.new("append-small.db"), setup.entries)
    large = await setup.copied("linear", setup.large)
    small_cpu, cpu, wall = [], [], []
    async with setup.open(small) as few, setup.open(large) as many:
        for log in (few, many):
            await _append_turn(log, rng, 100)
        for _ in range(setup.repetitions):
            turns = [(await _append_turn(few, rng, _TURN), await _append_turn(many, rng, _TURN)) for _ in range(15)]
            small_cpu.append(statistics.median(one[0] for one, _ in turns))
            cpu.append(statistics.median(other[0] for _, other in turns))
            wall.append(statistics.median(other[1] for _, other in turns))
    ratio = [ours / theirs for ours, theirs in zip(cpu, small_cpu, strict=True)]
    return [
        Figure("append-large.cpu", f"append one at a time at {setup.large:,} entries, CPU", "ms", cpu),
        Figure("append-large.wall", f"append one at a time at {setup.large:,} entries, wall", "ms", wall),
        Figure(
            "append-large.ratio",
            f"that CPU over the CPU at {setup.entries:,} entries",
            "×",
            ratio,
            Goal(at_most=1.25),
            "same run, in turns",
            "quadratic; 163/s CPU at 20,000",
        ),
    ]


async def concurrent(setup: Setup) -> list[Figure]:
    """64 tasks that append at once, in turns with one: the disk's mood changes within seconds, and a ratio is of one mood."""
    rng = random.Random(setup.seed)
    alone, together, together_cpu = [], [], []
    async with setup.open(await setup.linear(setup.new("concurrent.db"), setup.entries)) as log:
        await _append_turn(log, rng, 100)
        for _ in range(setup.repetitions):
            turns = [(await _append_turn(log, rng, _TURN), await _concurrent_turn(log, rng)) for _ in range(15)]
            alone.append(1e3 / statistics.median(one[1] for one, _ in turns))
            together.append(1e3 / statistics.median(many[1] for _, many in turns))
            together_cpu.append(statistics.median(many[0] for _, many in turns))
    ratio = [many / one for many, one in zip(together, alone, strict=True)]
    note = f"medians of 15 turns of {_TURN} and of {_APPENDERS} × {_TURN}"
    return [
        Figure("concurrent.sequential", "one appender", "entries/s wall", alone),
        Figure("concurrent.rate", f"{_APPENDERS} concurrent appenders", "entries/s wall", together),
        Figure("concurrent.cpu", f"{_APPENDERS} concurrent appenders, CPU an entry", "ms", together_cpu),
        Figure("concurrent.ratio", "concurrent over sequential rate", "×", ratio, Goal(at_least=10), note, needs_quiet=True),
    ]


async def ingest(setup: Setup) -> list[Figure]:
    """Entries of others in batches of 1,000, in turns with the bare signature verifier on the same entries."""
    made = list(entries(setup, setup.entries))
    values = [entry.value for entry in made]
    signed = _signed(made)
    forked = [entry.value for entry in SHAPES["ten-writers"](setup, setup.entries)]
    rate, wall_rate, bare, cores, whole_rate, whole_cores, forked_rate = [], [], [], [], [], [], []
    for _ in range(setup.repetitions):
        bare.append(len(signed) / _verify_all(signed))
        async with setup.open(setup.new("ingest.db")) as log:
            gc.collect()
            with Stopwatch() as watch:
                for first in range(0, len(values), BATCH):
                    await log.insert_many(values[first : first + BATCH])
            assert await log.count() == len(values)
        rate.append(len(values) / watch.cpu_s)
        wall_rate.append(len(values) / watch.wall_s)
        cores.append(watch.cpu_s / watch.wall_s)
        async with setup.open(setup.new("ingest.db")) as log:
            with Stopwatch() as watch:
                await log.insert_many(values)
        whole_rate.append(len(values) / watch.wall_s)
        whole_cores.append(watch.cpu_s / watch.wall_s)
        async with setup.open(setup.new("ingest.db")) as log:
            with Stopwatch() as watch:
                for first in range(0, len(forked), BATCH):
                    await log.insert_many(forked[first : first + BATCH])
            assert await log.count() == len(forked)
        forked_rate.append(len(forked) / watch.cpu_s)
    share = [100 * ours / theirs for ours, theirs in zip(rate, bare, strict=True)]
    return [
        Figure(
            "ingest.rate",
            f"ingest, {len(values):,} entries in batches of {BATCH:,}",
            "entries/s CPU",
            rate,
            Goal(at_least=7_000),
            reference="291",
        ),
        Figure("ingest.verifier", "the verifier alone (libsodium through PyNaCl)", "entries/s CPU", bare),
        Figure("ingest.share", "ingest's rate in that of the verifier", "%", share, Goal(at_least=60)),
        Figure("ingest.wall-rate", "the same batches, one call after the other", "entries/s wall", wall_rate),
        Figure("ingest.cores", "CPU over wall, batch after batch", "cores", cores),
        Figure("ingest.whole-wall-rate", "all in one call", "entries/s wall", whole_rate),
        Figure("ingest.whole-cores", "CPU over wall, all in one call", "cores", whole_cores),
        Figure("ingest.forked-rate", "ten writers, always ten heads, two parents an entry", "entries/s CPU", forked_rate),
    ]


async def sync(setup: Setup) -> list[Figure]:
    """A whole log into an empty one, both in this process."""
    cpu, wall = [], []
    async with setup.open(await setup.linear(setup.new("sync-source.db"), setup.entries)) as source:
        for _ in range(setup.repetitions):
            async with setup.open(setup.new("sync-target.db")) as target:
                gc.collect()
                with Stopwatch() as watch:
                    await target.sync(source)
                assert await target.root() == await source.root()
            cpu.append(watch.cpu_s)
            wall.append(watch.wall_s)
    goal = Goal(at_most=2.0 * setup.entries / 10_000)
    return [
        Figure("sync.cpu", f"sync of {setup.entries:,} entries into an empty log, both sides, CPU", "s", cpu, goal, reference="about 32 s"),
        Figure("sync.wall", "the same, wall", "s", wall),
    ]


async def validate(setup: Setup) -> list[Figure]:
    """`gossiplog.validate` on its own, in turns with the bare verifier."""
    made = list(entries(setup, min(2_000, setup.entries)))
    values, signed = [entry.value for entry in made], _signed(made)
    ours, bare = [], []
    for _ in range(setup.repetitions):
        bare.append(1e6 * _verify_all(signed) / len(signed))
        with Stopwatch() as watch:
            accepted = [gossiplog.validate(value).accepted for value in values]
        assert all(accepted)
        ours.append(1e6 * watch.cpu_s / len(values))
    over = [mine - theirs for mine, theirs in zip(ours, bare, strict=True)]
    return [
        Figure("validate.cpu", "validate one entry", "µs", ours),
        Figure("validate.verifier", "of it the signature (libsodium)", "µs", bare),
        Figure("validate.rest", "and the rest", "µs", over),
    ]


async def _append_turn(log: gossiplog.GossipLog, rng: random.Random, count: int) -> tuple[float, float]:
    """Append `count` entries and return the milliseconds of one, CPU and wall."""
    made = [payload(n, rng) for n in range(count)]
    with Stopwatch() as watch:
        for each in made:
            await log.append(each)
    return 1e3 * watch.cpu_s / count, 1e3 * watch.wall_s / count


async def _concurrent_turn(log: gossiplog.GossipLog, rng: random.Random) -> tuple[float, float]:
    """As `_append_turn`, by 64 tasks of `_TURN` entries each."""
    shares = [[payload(n, rng) for n in range(_TURN)] for _ in range(_APPENDERS)]

    async def appender(mine: list[Any]) -> None:
        for one in mine:
            await log.append(one)

    with Stopwatch() as watch:
        async with trio.open_nursery() as nursery:
            for share in shares:
                nursery.start_soon(appender, share)
    count = _APPENDERS * _TURN
    return 1e3 * watch.cpu_s / count, 1e3 * watch.wall_s / count


def _turn(commit: Callable[[], None], count: int) -> tuple[float, float]:
    with Stopwatch() as watch:
        for _ in range(count):
            commit()
    return 1e3 * watch.cpu_s / count, 1e3 * watch.wall_s / count


@contextmanager
def _bare(setup: Setup) -> Iterator[Callable[[], None]]:
    """Give a function that commits one row of a VALUE's size, on this thread, with nothing around it."""
    value = random.Random(setup.seed).randbytes(_VALUE_BYTES)
    with closing(sqlite3.connect(setup.new("bare.db"), isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {setup.durability}")
        db.execute("CREATE TABLE entries (seq INTEGER PRIMARY KEY, value BLOB NOT NULL)")

        def commit() -> None:
            # Outside of a transaction each statement is one.
            db.execute("INSERT INTO entries (value) VALUES (?)", (value,))

        yield commit


def _signed(made: list[gossiplog.Entry]) -> list[tuple[bytes, bytes]]:
    return [(signature_and_signed_bytes(entry.value, entry.envelope), decode_did(entry.envelope.did)[1]) for entry in made]


def _verify_all(signed: list[tuple[bytes, bytes]]) -> float:
    """Verify with nothing around it; return the CPU seconds."""
    with Stopwatch() as watch:
        for message, public_key in signed:
            crypto_sign_open(message, public_key)
    return watch.cpu_s
