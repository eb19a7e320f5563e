"""What a task of Spark's needs to read an entry, and to verify it, of a bucket and of a SQLite file: `python -m benchmarks.bucket_scan`.

Both are read in turns, by the functions that tasks run, in this process: what the JVM does with the rows is the same for both. The log is
published by two publishers, of which the second has 100 entries more.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import trio

import gossiplog
from gossiplog.arrow.columns import DEFAULT_COLUMNS, to_batches
from gossiplog.entry.rules import VALUE_BYTES_LIMIT
from gossiplog.entry.schemes import accepted_schemes
from gossiplog.spark.source.places import scan_of
from gossiplog.spark.tables.verify import INPUT_COLUMNS, JUDGE
from gossiplog.tlog.note import publisher_of

from .bucket import RESULTS, SEED, TOPIC, payloads
from .measure import Figure, Goal, Stopwatch, machine, versions, write_results

REPETITIONS = 7
SIGNERS = [gossiplog.Ed25519Signer.from_seed(bytes([SEED + number]) * 32) for number in range(2)]
WAYS = {
    "key,value": (("key", "value"), False),
    "columns": (DEFAULT_COLUMNS, False),
    "verify": (INPUT_COLUMNS, True),
}


async def write(count: int, folder: Path) -> None:
    rng = random.Random(SEED)
    async with gossiplog.open(folder / "a.db", topic=TOPIC, signer=SIGNERS[0], durability="off") as log:
        for start in range(0, count, 1_000):
            await log.append_many(payloads(rng, min(1_000, count - start)))
        await log.publish(folder / "bucket")
    async with gossiplog.open(folder / "b.db", topic=TOPIC, signer=SIGNERS[1], durability="off") as log:
        await log.append_many(payloads(rng, 100))
        await log.sync(folder / "bucket")


def rows_of(place: Path, way: str) -> Iterator[Any]:
    names, verifies = WAYS[way]
    options = {"prove": "true"} if verifies and place.is_dir() else {}
    scan = scan_of(str(place), options)
    batches = (batch for part in scan.parts(None) for batch in to_batches(scan.read(part), names))
    return JUDGE.run(None, VALUE_BYTES_LIMIT, sorted(accepted_schemes()), batches) if verifies else batches


def cpu_us(place: Path, way: str, expected: int) -> float:
    with Stopwatch() as reading:
        count = sum(batch.num_rows for batch in rows_of(place, way))
    assert count == expected, (count, expected)
    return reading.cpu_s / count * 1e6


def measure(count: int, folder: Path) -> list[Figure]:
    trio.run(write, count, folder)
    load = [os.getloadavg()[0]]
    one = folder / "bucket" / publisher_of(SIGNERS[0])
    figures = []
    for way in WAYS:
        samples: dict[str, list[float]] = {"sqlite": [], "bucket": [], "two": []}
        for _ in range(REPETITIONS):
            samples["sqlite"].append(cpu_us(folder / "a.db", way, count))
            samples["bucket"].append(cpu_us(one, way, count))
            samples["two"].append(cpu_us(folder / "bucket", way, count + 100))
        ratios = [bucket / sqlite for bucket, sqlite in zip(samples["bucket"], samples["sqlite"], strict=True)]
        what = {"key,value": "scan of key and VALUE", "columns": "scan of the usual columns", "verify": "verify, all but parents"}[way]
        figures += [
            Figure(f"bucket-scan.{way}.sqlite", f"{what}, of a SQLite file", "µs CPU/entry", samples["sqlite"], load=load),
            Figure(f"bucket-scan.{way}.bucket", f"{what}, of a bucket", "µs CPU/entry", samples["bucket"], load=load),
            Figure(f"bucket-scan.{way}.ratio", "bucket by SQLite file, in turns", "×", ratios, Goal(at_most=1.1), load=load),
            Figure(f"bucket-scan.{way}.two", f"{what}, of two publishers", "µs CPU/entry", samples["two"], load=load),
        ]
    print(*figures, sep="\n", flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bucket_scan", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--dry", action="store_true", help="write no results")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(options.count, Path(folder))
    if not options.dry:
        header = {
            "command": f"python -m benchmarks.bucket_scan --count {options.count}",
            "machine": machine(),
            "versions": versions(),
            "seed": SEED,
            "entries": options.count,
        }
        write_results(RESULTS / "bucket-scan", "Reading a bucket by tasks", header, figures)


if __name__ == "__main__":
    main()
