"""What questions about the graph cost on large logs, and what changing the tree costs."""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import median

from gossiplog import GossipLog
from gossiplog.plan import run_plan
from gossiplog.tree import MemoryTree, Node, leaf_hash, update

from .material import Setup
from .measure import Figure, Stopwatch

__all__ = ["ancestors", "tree_batches"]

_QUERIES = 100
_WALK = 1_000
_GAPS = (1, 3, 10)
"""Near pairs are where the answer may be no: far apart nearly everything is an ancestor."""
_BATCHES = (1, 100, 1_000)


async def ancestors(setup: Setup) -> list[Figure]:
    """`is_ancestor` for random pairs and `ancestors` from a head, on logs of each shape."""
    figures = []
    for shape, size in (
        ("linear", setup.large),
        ("ten-writers", setup.large),
        ("fork-join", setup.large),
        ("full-mesh", setup.large // 10),
    ):
        async with setup.open(await setup.kept(shape, size)) as log:
            figures += await _ask(setup, log, shape, size)
    return figures


async def _ask(setup: Setup, log: GossipLog, shape: str, size: int) -> list[Figure]:
    rng = random.Random(setup.seed)
    low, high = await _ends(log)
    ids = [await _near(log, rng, low, high) for _ in range(100)]
    far = [tuple(rng.sample(ids, 2)) for _ in range(_QUERIES)]
    near = []
    for _ in range(_QUERIES):
        clock, gap = rng.randint(low, high), rng.choice(_GAPS)
        near.append((await _near(log, rng, clock, clock), await _near(log, rng, clock + gap, clock + gap)))
    tip = max(await log.heads())
    figures = []
    at = f"{shape}, {size:,} entries"
    for name, what, pairs in (("", "random pairs", far), ("-near", f"pairs {_GAPS[0]} to {_GAPS[-1]} clocks apart", near)):
        medians, worst, note = await _ask_pairs(setup, log, pairs)
        figures.append(Figure(f"ancestors.{shape}{name}", f"is_ancestor, {what}, {at}, CPU", "ms", medians, None, note))
        figures.append(Figure(f"ancestors.{shape}{name}-worst", f"the slowest of {_QUERIES}", "ms", worst))
    walks = []
    for _ in range(setup.repetitions):
        count = 0
        with Stopwatch() as watch:
            async for _ in log.ancestors(tip, limit=_WALK):
                count += 1
        walks.append(1e6 * watch.cpu_s / count)
    return [*figures, Figure(f"ancestors.{shape}-walk", f"ancestors of a head, the nearest {_WALK:,}, CPU an entry", "µs", walks)]


async def _ask_pairs(setup: Setup, log: GossipLog, pairs: list[tuple[str, ...]]) -> tuple[list[float], list[float], str]:
    """Return the median and the highest milliseconds of each repetition, and how the answers came out."""
    medians, worst = [], []
    yes = 0
    for _ in range(setup.repetitions):
        costs = []
        yes = 0
        for pair in pairs:
            a, b = sorted(pair)
            with Stopwatch() as watch:
                yes += await log.is_ancestor(a, b)
            costs.append(1e3 * watch.cpu_s)
        medians.append(median(costs))
        worst.append(max(costs))
    return medians, worst, f"{yes} of {len(pairs)} are"


async def _ends(log: GossipLog) -> tuple[int, int]:
    first = [entry.clock async for entry in log.iterate(limit=1)]
    last = [entry.clock async for entry in log.iterate(limit=1, reverse=True)]
    return first[0], last[0]


async def _near(log: GossipLog, rng: random.Random, low: int, high: int) -> str:
    """Return an id with about a random clock."""
    from gossiplog.codec.clock import encode_clock
    from gossiplog.entry.message_id import KEY_BYTES, encode_id

    key = encode_clock(rng.randint(low, high))
    after = encode_id((key + rng.randbytes(KEY_BYTES))[:KEY_BYTES])
    found = [entry.id async for entry in log.iterate(after=after, limit=1)] or [
        entry.id async for entry in log.iterate(limit=1, reverse=True)
    ]
    return found[0]


async def tree_batches(setup: Setup) -> list[Figure]:
    """The change of the tree for a batch, at its end and scattered all over: in memory, and read from a file."""
    figures = []
    for size in (setup.large // 10, setup.large):
        async with setup.open(await setup.kept("linear", size)) as log:
            leaves = [Node(0, entry.key, leaf_hash(entry.key, entry.value)) async for entry in log.iterate()]
            tree = MemoryTree.build(leaves)
            for where, make in (("tail", _tail), ("scattered", _scattered)):
                for batch in _BATCHES:
                    figures += await _change(setup, log, tree, leaves, size, where, make, batch)
    return figures


async def _change(
    setup: Setup,
    log: GossipLog,
    tree: MemoryTree,
    leaves: list[Node],
    size: int,
    where: str,
    make: Callable[[random.Random, list[Node], int], list[Node]],
    batch: int,
) -> list[Figure]:
    rng = random.Random(setup.seed)
    rounds = max(3, 300 // batch)
    in_memory, in_file = [], []
    for _ in range(setup.repetitions):
        batches = [make(rng, leaves, batch) for _ in range(rounds)]
        with Stopwatch() as watch:
            changes = [run_plan(update(each), tree.answer) for each in batches]
        in_memory.append(1e3 * watch.cpu_s / rounds)
        with Stopwatch() as watch:
            # Nothing is written, so each change starts from the same tree.
            stored = [await log.run(update(each)) for each in batches]
        in_file.append(1e3 * watch.cpu_s / rounds)
        assert [change.root for change in changes] == [change.root for change in stored]
    name = f"tree.{size // 1000}k-{where}-{batch}"
    return [
        Figure(f"{name}-memory", f"tree of {size:,}, {where} batch of {batch:,}, in memory, CPU", "ms", in_memory),
        Figure(f"{name}-sqlite", "the same, read from SQLite, nothing written", "ms", in_file),
    ]


def _tail(rng: random.Random, leaves: list[Node], count: int) -> list[Node]:
    last = int.from_bytes(leaves[-1].key or b"")
    keys = sorted((last + rng.randrange(1, 2**64)).to_bytes(20) for _ in range(count))
    return [Node(0, key, rng.randbytes(16)) for key in keys]


def _scattered(rng: random.Random, leaves: list[Node], count: int) -> list[Node]:
    keys = sorted({(int.from_bytes(leaf.key or b"") + 1).to_bytes(20) for leaf in rng.sample(leaves, count)})
    return [Node(0, key, rng.randbytes(16)) for key in keys]
