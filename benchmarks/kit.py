"""What the kit's parts cost: `python -m benchmarks.kit`.

Each part's tables are built anew from a log of 20,000 of its operations, as a rebuild gives them to it: reading the entries, decoding and
checking payloads, and SQL, all in CPU time of this process. The same with an application that does nothing is what it costs without a part.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

import gossiplog
from gossiplog import kit

from .measure import Figure, Goal, Stopwatch, machine, versions, write_results

COUNT = 20_000
REPETITIONS = 5
SEED = 1
RESULTS = Path(__file__).with_name("results")

TODOS = kit.Map("todos", dict[str, str])
LIKES = kit.Counter("likes")
TAGS = kit.Set("tags")
WORDS = kit.List("words", str)
FOLDER = kit.Files("folder")


def _todo(rng: random.Random, key: str) -> Any:
    return TODOS.remove(key) if rng.random() < 0.1 else TODOS.put(key, {"text": "some bread", "by": key})


def _tag(rng: random.Random, key: str) -> Any:
    return TAGS.remove(key) if rng.random() < 0.3 else TAGS.add(key)


def _chunk(rng: random.Random, key: str) -> Any:
    return {"part": "folder", "op": "chunk", "file": f"{rng.randrange(100):032d}", "index": rng.randrange(10_000), "data": b"x" * 64}


PARTS: dict[str, tuple[Any, Callable[[random.Random, str], Any]]] = {
    "nothing": (None, lambda rng, key: {"part": "none", "op": "add", "key": key, "by": 1}),
    "map": (TODOS, _todo),
    "counter": (LIKES, lambda rng, key: LIKES.add(key, rng.randrange(100))),
    "set": (TAGS, _tag),
    "list": (WORDS, lambda rng, key: WORDS.insert(key)),
    "files": (FOLDER, _chunk),
}


async def measure(name: str, folder: Path) -> Figure:
    """Append the operations, and build the tables anew as often as is repeated."""
    part, operation = PARTS[name]
    rng = random.Random(SEED)
    payloads = [operation(rng, f"key {rng.randrange(2_000)}") for _ in range(COUNT)]
    application = kit.compose(name, 1, *([part] if part else []))
    signer = gossiplog.Ed25519Signer.generate()
    samples = []
    async with gossiplog.open(folder / f"{name}.db", topic="kit.example.com", signer=signer, app=application) as log:
        for start in range(0, COUNT, 1_000):
            await log.append_many(payloads[start : start + 1_000])
        for _ in range(REPETITIONS):
            with Stopwatch() as watch:
                await log.rebuild()
            samples.append(COUNT / watch.cpu_s)
    goal = Goal(at_least=20_000) if part else None
    what = f"operations of {name} on 2,000 keys, by a rebuild" if part else "operations of no part"
    return Figure(f"kit.{name}", what, "operations/s CPU", samples, goal, load=[os.getloadavg()[0]])


async def measure_all() -> None:
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        for name in PARTS:
            figures.append(await measure(name, Path(folder)))
            print(figures[-1])
    header = {"command": "python -m benchmarks.kit", "machine": machine(), "versions": versions(), "seed": SEED, "operations": COUNT}
    write_results(RESULTS / "kit", "The kit's parts", header, figures)


def main() -> None:
    argparse.ArgumentParser(
        prog="python -m benchmarks.kit", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    trio.run(measure_all)


if __name__ == "__main__":
    main()
