"""What the benchmarks measure with: payloads, entries and whole logs, the same for the same seed, the large ones built once and kept."""

from __future__ import annotations

import hashlib
import random
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gossiplog
from gossiplog.codec import pcf
from gossiplog.entry.message import Entry
from gossiplog.entry.rules import next_clock
from gossiplog.entry.signing import sign_entry
from gossiplog.store.migrate import load_migrations

__all__ = ["BATCH", "PAYLOAD_BYTES", "SHAPES", "TOPIC", "Setup", "chain", "entries", "payload", "payloads", "remove_log"]

TOPIC = "app.example.com"
PAYLOAD_BYTES = 200
BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings of a run.

    Attributes:
        entries: The size of the usual log.
        large: The size of the large one.
        repetitions: How often each thing is measured.
        durability: At which logs are written.
        seed: Of everything that is random.
        place: A folder on the disk that is measured; emptied at the end.
        store: A folder that keeps the large logs.
    """

    entries: int
    large: int
    repetitions: int
    durability: str
    seed: int
    place: Path
    store: Path

    @property
    def signer(self) -> gossiplog.Ed25519Signer:
        """The first of `signers`."""
        return self.signers(1)[0]

    def signers(self, count: int) -> list[gossiplog.Ed25519Signer]:
        """Make keys from the seed."""
        return [gossiplog.Ed25519Signer.from_seed(hashlib.sha256(b"%d %d" % (self.seed, n)).digest()) for n in range(count)]

    def open(self, path: Path | str, *, durability: str | None = None) -> AbstractAsyncContextManager[gossiplog.GossipLog]:
        """Open a log in a file, or make it."""
        return gossiplog.open(path, topic=TOPIC, signer=self.signer, durability=durability or self.durability)

    def new(self, name: str) -> Path:
        """Return a path in `place` at which there is no log."""
        path = self.place / name
        remove_log(path)
        return path

    async def linear(self, path: Path, size: int) -> Path:
        """Make a log of one writer's entries, one upon the other."""
        async with self.open(path, durability="off") as log:
            for first in range(0, size, BATCH):
                await log.append_many(payloads(min(BATCH, size - first), seed=self.seed, first=first))
        return path

    async def kept(self, shape: str, size: int) -> Path:
        """Return the log of a shape in `SHAPES`, or `linear`; made the first time. Do not write to it: see `copied`."""
        schema = hashlib.sha256("".join(statements for _, statements in load_migrations("sqlite")).encode()).hexdigest()[:8]
        path = self.store / f"{shape}-{size}-{self.seed}-{schema}.db"
        if not path.exists():
            print(f"  building {path.name} …", file=sys.stderr, flush=True)
            draft = path.with_name(f"draft-{path.name}")
            remove_log(draft)
            if shape == "linear":
                await self.linear(draft, size)
            else:
                await self._insert(draft, SHAPES[shape](self, size))
            draft.rename(path)
            remove_log(draft)
        return path

    async def copied(self, shape: str, size: int) -> Path:
        """Return a copy of `kept` in `place`, to write to."""
        kept = await self.kept(shape, size)
        return Path(shutil.copyfile(kept, self.new(f"copy-of-{kept.name}")))

    async def _insert(self, path: Path, made: Iterator[Entry]) -> None:
        async with self.open(path, durability="off") as log:
            batch: list[bytes] = []
            for entry in made:
                batch.append(entry.value)
                if len(batch) == 4 * BATCH:
                    await log.insert_many(batch)
                    batch = []
            await log.insert_many(batch)


def payload(number: int, rng: random.Random, size: int = PAYLOAD_BYTES) -> Any:
    """Make a payload of exactly `size` bytes of dag-cbor, 2 at least, of the kind an application writes; below 40 only a text."""
    if size < 40:
        text = _text(rng, size)
        assert len(pcf.encode(text)) == size
        return text
    # Where the text's own header grows by a byte there is no text for some size; with a longer key there is.
    for digits in (7, 8):
        head = {"op": "set", "key": f"{number:0{digits}d}"[:digits]}
        made = {**head, "value": _text(rng, size - len(pcf.encode({**head, "value": ""})) + 1)}
        if len(pcf.encode(made)) == size:
            return made
    raise AssertionError(f"no payload of {size} bytes")


def _text(rng: random.Random, size: int) -> str:
    """Make a text of so many bytes of dag-cbor with its header, or one less where there is none."""
    header = 1 if size <= 24 else 2 if size <= 257 else 3 if size <= 65_538 else 5
    return rng.randbytes((size - header) // 2 + 1).hex()[: size - header]


def payloads(count: int, *, seed: int, first: int = 0, size: int = PAYLOAD_BYTES) -> list[Any]:
    """Make several payloads, numbered from `first`."""
    rng = random.Random(f"{seed} {first}")
    return [payload(number, rng, size) for number in range(first, first + count)]


def entries(setup: Setup, count: int) -> Iterator[Entry]:
    """Make the entries of a log of one writer, one upon the other."""
    return chain(setup.signer, TOPIC, payloads(count, seed=setup.seed))


def chain(signer: gossiplog.Ed25519Signer, topic: str, contents: Iterable[Any]) -> Iterator[Entry]:
    """Sign payloads as entries, one upon the other."""
    parents: list[bytes] = []
    for each in contents:
        entry = sign_entry(signer, topic, next_clock(parents), parents, pcf.encode(each))
        parents = [entry.key]
        yield entry


def _ten_writers(setup: Setup, count: int) -> Iterator[Entry]:
    """Ten heads at any time: each round every writer builds on its own last entry and on that of one other."""
    rng = random.Random(setup.seed)
    yield from _rounds(setup, count, lambda last, n: {last[n], rng.choice(last)})


def _full_mesh(setup: Setup, count: int) -> Iterator[Entry]:
    """Ten heads at any time: each round every writer builds on everybody's last entry."""
    yield from _rounds(setup, count, lambda last, _: set(last))


def _rounds(setup: Setup, count: int, choose: Callable[[list[bytes], int], set[bytes]]) -> Iterator[Entry]:
    signers = setup.signers(10)
    rng = random.Random(setup.seed)
    last: list[bytes] = []
    for number in range(0, count, len(signers)):
        made = []
        for n, signer in enumerate(signers):
            parents = sorted(choose(last, n)) if last else []
            made.append(sign_entry(signer, TOPIC, next_clock(parents), parents, pcf.encode(payload(number + n, rng))))
        # By key, which is the order in which a sync would bring them.
        yield from sorted(made, key=lambda entry: entry.key)
        last = [entry.key for entry in made]


def _fork_join(setup: Setup, count: int) -> Iterator[Entry]:
    """Two writers that part and meet: of every three entries two are concurrent and the third has both as its parents."""
    one, other = setup.signers(2)
    rng = random.Random(setup.seed)
    parents: list[bytes] = []
    for number in range(0, count, 3):
        clock = next_clock(parents)
        fork = [sign_entry(signer, TOPIC, clock, parents, pcf.encode(payload(number, rng))) for signer in (one, other)]
        fork.sort(key=lambda entry: entry.key)
        yield from fork
        join = [entry.key for entry in fork]
        entry = sign_entry(one, TOPIC, clock + 1, join, pcf.encode(payload(number, rng)))
        yield entry
        parents = [entry.key]


SHAPES: dict[str, Callable[[Setup, int], Iterator[Entry]]] = {
    "linear": entries,
    "ten-writers": _ten_writers,
    "full-mesh": _full_mesh,
    "fork-join": _fork_join,
}
"""Logs by the shape of their graph."""


def remove_log(path: Path) -> None:
    """Remove a log and what lies beside it."""
    for suffix in ("", "-wal", "-shm", "-lock"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
