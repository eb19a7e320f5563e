"""`is_ancestor` in logs of millions of entries with tens of thousands of branches, by how far apart two entries are.

    python -m benchmarks.ancestry --place /tmp/ancestry

The log is built once, in `--place`, and grows from size to size. Four writers go on through all of it; every 37th entry begins a branch on
one of the last few hundred, which one of the four merges when eight more have begun, and now and then the four merge one another. CPU is
this process's, all threads; "by walk" is the share of the answers that the walk over entries gave before the search over branches did.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

import trio

import gossiplog
from gossiplog import GossipLog
from gossiplog.codec import pcf
from gossiplog.entry import Outcome, Verdict
from gossiplog.entry.message import Entry
from gossiplog.entry.message_id import KEY_BYTES, clock_of, decode_id, encode_id
from gossiplog.entry.rules import next_clock
from gossiplog.entry.signing import sign_entry
from gossiplog.log.ancestry import AncestorQuery
from gossiplog.log.requests import ReadBranchTips, ReadPage
from gossiplog.plan import Plan, ask

from .material import TOPIC
from .measure import Stopwatch

LINES = 4
SHORT = 8
FORK_EVERY = 37
RECENT = 400
BATCH = 4_000
DISTANCES = ((1, 10), (11, 32), (33, 59), (60, 1_000), (1_001, None))
PAIRS = 400


class Grower:
    """Makes the entries of the log, the same for the same seed, as many as are asked for."""

    def __init__(self, seed: int) -> None:
        self._signer = gossiplog.Ed25519Signer.from_seed(seed.to_bytes(32))
        self._rng = random.Random(seed)
        self._number = 0
        # What the long lines and the short ones end with, and what a short one may fork off.
        self._lines: list[bytes] = []
        self._short: list[bytes] = []
        self._recent: list[bytes] = []

    def entries(self, count: int) -> Iterator[Entry]:
        """Make the next entries."""
        for _ in range(count):
            tips, place, parents = self._choose()
            entry = sign_entry(self._signer, TOPIC, next_clock(parents), parents, pcf.encode(["entry", self._number]))
            self._number += 1
            tips[place : place + 1] = [entry.key]
            self._recent = [*self._recent[-RECENT:], entry.key]
            yield entry

    def _choose(self) -> tuple[list[bytes], int, list[bytes]]:
        """Return the tips that the next entry is one of, which it is, and its parents, ascending."""
        rng = self._rng
        if len(self._lines) < LINES:
            return self._lines, len(self._lines), []
        if self._number % FORK_EVERY == 0:
            return self._short, len(self._short), [rng.choice(self._recent)]
        if self._short and rng.random() < 0.3:
            place = rng.randrange(len(self._short))
            return self._short, place, [self._short[place]]
        place = rng.randrange(LINES)
        parents = {self._lines[place]}
        if len(self._short) > SHORT:
            parents.add(self._short.pop(0))
        elif rng.random() < 1 / FORK_EVERY:
            parents.add(rng.choice(self._lines))
        return self._lines, place, sorted(parents)


class _WatchedWalk:
    """Notes whether it was the walk that found the answer."""

    def __init__(self, query: AncestorQuery) -> None:
        self._inner = query._walk
        self.has_answered = False

    @property
    def width(self) -> int:
        return self._inner.width

    def step(self) -> Plan[bool | None]:
        answer = yield from self._inner.step()
        self.has_answered = answer is not None
        return answer


async def grow(log: GossipLog, grower: Grower, count: int) -> None:
    """Add entries, which are known to be valid, batch by batch."""
    made = grower.entries(count)
    while batch := [Verdict(Outcome.ACCEPT, entry=entry) for _, entry in zip(range(BATCH), made, strict=False)]:
        await log.insert_verified(batch)


async def near(log: GossipLog, rng: random.Random, clock: int) -> bytes:
    """The key of an entry with about this clock."""
    from gossiplog.codec.clock import encode_clock

    after = (encode_clock(clock) + rng.randbytes(KEY_BYTES))[:KEY_BYTES]
    page = await log.run(ask(ReadPage(after, None, False, 1))) or await log.run(ask(ReadPage(None, None, True, 1)))
    return page[0][0]


async def report(log: GossipLog, count: int, seed: int) -> None:
    """Print a row of the table for each distance."""
    rng = random.Random(seed)
    (last,) = [clock_of(decode_id(entry.id)) async for entry in log.iterate(limit=1, reverse=True)]
    branches = (await log.run(ask(ReadBranchTips([]))))[-1] + 1
    load = os.getloadavg()[0]
    for low, high in DISTANCES:
        costs: dict[bool, list[float]] = {True: [], False: []}
        walked = {True: 0, False: 0}
        for _ in range(PAIRS):
            distance = rng.randint(low, high or last - 1)
            clock = rng.randint(1, max(1, last - distance))
            a, b = await near(log, rng, clock), await near(log, rng, clock + distance)
            query = AncestorQuery(a, b)
            watched = query._walk = _WatchedWalk(query)  # type: ignore[assignment]
            answer = await log.run(query.run())
            assert answer is not None
            with Stopwatch() as watch:
                assert await log.is_ancestor(encode_id(a), encode_id(b)) == answer
            costs[answer].append(1e3 * watch.cpu_s)
            walked[answer] += watched.has_answered
        cells = []
        for answer in (True, False):
            taken = costs[answer]
            if len(taken) < 10:
                cells += [str(len(taken)), "", "", ""]
                continue
            share = 100 * walked[answer] / len(taken)
            cells += [str(len(taken)), f"{median(taken):.2f}", f"{quantiles(taken, n=100)[98]:.2f}", f"{share:.0f} %"]
        span = f"{low:,} to {high or last:,}"
        print("|", " | ".join([f"{count:,}", f"{branches:,}", span, *cells, f"{load:.1f}"]), "|", flush=True)


async def measure(place: Path, sizes: list[int], seed: int) -> None:
    """Build, measure, and print."""
    place.mkdir(parents=True, exist_ok=True)
    grower = Grower(seed)
    path = place / "log.db"
    print("| entries | branches | clocks apart | yes | median ms | p99 ms | by walk | no | median ms | p99 ms | by walk | load |")
    print("|---:|---:|---|" + "---:|" * 9, flush=True)
    there = 0
    for size in sizes:
        async with gossiplog.open(path, topic=TOPIC, durability="off") as log:
            await grow(log, grower, size - there)
            there = size
            assert await log.count() == size
        async with gossiplog.open(path, read_only=True) as log:
            await report(log, size, seed)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ancestry", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--place", type=Path, required=True, help="a folder for the log; remove it afterwards")
    parser.add_argument("--sizes", default="1000000,3000000", help="ascending")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    trio.run(measure, arguments.place, [int(size) for size in arguments.sizes.split(",")], arguments.seed)


if __name__ == "__main__":
    main()
