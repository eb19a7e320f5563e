"""Histories made by hand, and what must hold of any log, found the plain way."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

import gossiplog
from gossiplog.codec import pcf
from gossiplog.entry import Ed25519Signer, Entry, decode_id, next_clock, sign_entry
from gossiplog.entry.envelope import build_value, signed_bytes
from gossiplog.gossip_log import GossipLog
from gossiplog.tree import build

TOPIC = "test.example.com"
SIGNERS = [Ed25519Signer.from_seed(bytes([number]) * 32) for number in range(1, 5)]
FILES = ("", "-wal", "-shm", "-lock", "-journal")


def make(payload: Any, parents: Iterable[Entry] = (), signer: Ed25519Signer = SIGNERS[0], topic: str = TOPIC) -> Entry:
    """An entry with these parents."""
    keys = [parent.key for parent in parents]
    return sign_entry(signer, topic, next_clock(keys), keys, pcf.encode(payload))


def unordered(payload: Any, parents: Iterable[Entry]) -> Entry:
    """An entry with these parents in this order, duplicates included, as no append makes it and logs of before may hold it."""
    keys, encoded, signer = [parent.key for parent in parents], pcf.encode(payload), SIGNERS[0]
    signature = signer.sign(signed_bytes(signer.codec, TOPIC, next_clock(keys), keys, encoded))
    return Entry.decode(build_value(signer.codec, signer.did, signature, TOPIC, next_clock(keys), keys, encoded))


def make_history(random: Random, count: int, *, recent: int = 8, parents_max: int = 3) -> list[Entry]:
    """A random graph, parents first; now and then an entry names an ancestor beside its descendant."""
    entries: list[Entry] = []
    for number in range(count):
        near = entries[-recent:]
        parents = random.sample(near, min(len(near), random.randint(0, parents_max)))
        if entries and random.random() < 0.15:
            parents.append(random.choice(entries))
        entries.append(make(number, parents, random.choice(SIGNERS)))
    return entries


class Graph:
    """The oracle: what follows from a set of entries, by the definition."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.entries = {entry.key: entry for entry in entries}
        self.parents = {key: set(entry.parent_keys) for key, entry in self.entries.items()}
        self.heads = sorted(set(self.entries).difference(*self.parents.values()))

    @cached_property
    def ancestors(self) -> dict[bytes, set[bytes]]:
        """The ancestors of each entry; O(entries²), which few tests need."""
        ancestors: dict[bytes, set[bytes]] = {}
        for key in sorted(self.entries):
            ancestors[key] = self.parents[key].union(*(ancestors[parent] for parent in self.parents[key]))
        return ancestors

    def children(self, key: bytes) -> list[bytes]:
        return sorted(child for child, parents in self.parents.items() if key in parents)


async def assert_log_is(log: GossipLog, entries: Iterable[Entry]) -> None:
    """The log holds exactly these entries, and everything that follows from them."""
    graph = Graph(entries)
    stored = [entry async for entry in log.iterate()]
    assert [entry.key for entry in stored] == sorted(graph.entries)
    assert all(entry.value == graph.entries[entry.key].value for entry in stored)
    await assert_whole(log, stored)


async def assert_whole(log: GossipLog, stored: Sequence[Entry] | None = None) -> None:
    """Heads, clock, tree and everything that `fsck` looks at follow from the entries that are there."""
    if stored is None:
        stored = [entry async for entry in log.iterate()]
    graph = Graph(stored)
    assert [decode_id(id) for id in await log.heads()] == graph.heads
    assert await log.clock() == next_clock(graph.heads)
    assert await log.count() == len(stored)
    root, expected = await log.root(), build([(entry.key, entry.value) for entry in stored])
    assert (root.level, root.hash) == (expected.level, expected.hash)
    report = await log.fsck()
    assert report.is_clean, report.findings
    assert (report.entries, report.valid) == (len(stored), len(stored))


async def all_of(log: GossipLog) -> list[Entry]:
    return [entry async for entry in log.iterate()]


def remove_log(path: Path) -> None:
    for suffix in FILES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def opened(location: str | Path, **options: Any) -> Any:
    """Open a log of the test's topic, signed by the first signer."""
    return gossiplog.open(location, **{"topic": TOPIC, "signer": SIGNERS[0], "durability": "off", **options})
