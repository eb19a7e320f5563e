"""What a log of a billion entries would cost on a cluster, worked out from what one machine needs for an entry; and two workers beside one.

    python -m benchmarks.spark_cluster                     writes benchmarks/results/spark-cluster.md anew
    python -m benchmarks.spark_cluster --worker-cpu 0.4    measures the workers before that, and writes spark-workers.json

Two workers on a machine of two cores share them with the driver and the storage, and so tell little of a cluster. With `--worker-cpu` each
executor, its JVM and its Python together, may use so much of a core and no more, while the driver and the S3 server may use the rest: as on
a cluster, whose workers have cores of their own. It needs cgroups, and the right to make some.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import trio

import gossiplog
from gossiplog.entry import VALUE_BYTES_LIMIT, Ed25519Signer

from .bucket import payloads, s3_bucket
from .cpu_groups import cpu_group, why_no_groups
from .measure import Figure, Goal, figure_of, machine, versions, write_json
from .spark_jobs import APART, children

__all__ = ["cluster_page"]

_RESULTS = Path(__file__).parent / "results"
_WORKERS = "spark-workers"

_ENTRIES = 10**9
_A_PART = 50_000
"""Entries that a task reads unless told otherwise."""
_EDGES_BYTES = 9_000
"""What a task of the tree sends to the driver; `tests/spark/test_spark_fold.py` holds it below 16 KB."""
_CORES = 100
_JOBS = (
    ("scan", "read key and VALUE", 1, "nothing"),
    (
        "verify",
        "verify, parents included, of a log",
        1,
        "a hash of 20 B for each parent that its task has not just read; the keys if there are any",
    ),
    ("export-verify", "the same, of an export: each VALUE goes through the JVM first", 1, "the same"),
    ("tree", "tree", 1, "nothing, from a log or an export; 36 B an entry from anything else"),
    ("diff", "diff of two such logs", 2, "36 B an entry of either side"),
    ("state", "state, all keys distinct", 1, "the winners of each task: id, author and payload"),
    ("export", "export to Parquet", 1, "nothing"),
    ("stats", "statistics", 1, "key and clock of each entry and each parent, 60 B or so"),
)


_STORAGE = """\
- **Storage**: {stored:.0f} B an entry of this kind (200 B of payload) in Parquet, {stored_gb:,.0f} GB in all. VALUE, with a signature and
  hashes that nothing compresses, is most of it; `--columns key,value` keeps little else.
"""

_PAGE = """\
# A billion entries

Worked out, not measured: the CPU time that [spark.md](spark.md) has for an entry ({size:,} of them, on one machine), times 10^9. Every job
is linear in the entries but for the sorts of `diff`, `state` and `stats`, which a cluster spreads; what it adds is the network under
what is shuffled. Wall time is that of {cores} cores of the measured kind, all busy.

| job | core hours | wall, {cores} cores | what is shuffled |
|---|---:|---:|---|
{rows}

{storage}\
- **The driver** gets nothing that grows with the entries: of the tree about {edges_kb:.0f} KB a task, {parts:,} tasks, {edges_mb:,.0f} MB;
  of all other jobs counts, and rows of bounded number.
- **Parts of 50,000 entries** take seconds, so one that is lost costs little; a Python worker needs about 150 MB and, to verify, 20 MB for
  the keys that it remembers.

## Where it has to lie

A SQLite file has one disk. Publish it in a bucket (`gossiplog publish app.db s3://bucket/app --every 10`), on the machine where it is,
and run the jobs on that publisher's folder: executors read segments themselves. Or export it (`gossiplog spark export`, incremental
from then on) to storage that all executors share: verification begins with the bytes, so it believes nothing that the export says.
Postgres can be read by all executors at once; mind its connections, one a core.

Of a bucket with 10^9 entries of 14 words, by [what a task needs](bucket-scan.md) and [what publishing does](bucket.md), which say with
how many entries and at which load they were measured:

- **publish**: {publish:.1f} µs an entry, {publish_h:.1f} core hours in one process, once; from then on what is new.
- **clone**, for who wants a log of it all the same: {clone:.1f} µs an entry, {clone_h:.0f} core hours, by one process.
- **size**: segments of {segments:.2f} × the VALUEs; with all hashes {objects:.2f} ×. Entries of 300 B are {segments_gb:.0f} GB of
  segments and {objects_gb:.0f} GB in all.
- **requests**: 244,141 reads of segments for a scan, and 15,259 tiles more to prove them; 7.8 million small objects, of which a scan
  reads none.
- **scan**: key and VALUE {scan:.1f} µs, {scan_h:.1f} core hours; the usual columns {columns:.1f} µs, {columns_h:.1f} core hours.
  **Verify**, the tree's proof included: {verify:.1f} µs, {verify_h:.0f} core hours, where a SQLite file took {sqlite:.1f} µs in the same
  turns. To these comes the JVM's share, which is the same whatever is read.
- **several publishers**: each part of 262,144 entries of another publisher is compared with 54 B for each entry of the largest, which
  at this size is 3.9 million requests a part. So name one publisher's folder.
- **`tree`** sorts its leaves, 36 B an entry, as a publisher's order is not that of keys.

{workers}## Settings

```
--conf spark.driver.memory=4g
--conf spark.driver.maxResultSize=1g            # the tree's edges
--conf spark.executor.memory=2g                 # a core; the JVM only sorts and writes
--conf spark.executor.memoryOverhead=1g         # a core; the Python workers live here
--conf spark.sql.shuffle.partitions=4000        # of diff and stats: some 20 MB each
--conf spark.sql.execution.arrow.maxRecordsPerBatch=4096
--conf spark.sql.files.maxPartitionBytes=32m    # of an export: about 100,000 entries a task
--conf spark.dynamicAllocation.enabled=false    # or give every job -o: what lies between two steps is then in OUT, not on executors
```

## What does not scale

- `state --head` walks all keys and parents in one task, in the order of keys: about 3 µs and 60 B an entry, an hour for 10^9.
- `import` ends in one process, as a log has one writer: what `gossiplog import` needs for an entry, whatever the cluster.
- A CAR file and a compressed file are not cut. Export to Parquet.
"""


_WORKERS_PAGE = """\
## Two workers

Measured: a bucket of {entries:,} entries at an S3 server is verified by one executor and by two, in turns, each of which may use {share:g}
of a core, its JVM and its Python together. The driver and the server have no such bound. Each executor has done the same once before,
unmeasured, as a JVM that has just started compiles more than it works.

| | seconds, median | min … max |
|---|---:|---|
| one executor | {one:.1f} | {one_min:.1f} … {one_max:.1f} |
| two | {two:.1f} | {two_min:.1f} … {two_max:.1f} |
| **speed of two, of one** | **{speed:.2f} ×** | {speed_min:.2f} … {speed_max:.2f} |

The quota held an executor back in {throttled:.0%} of its periods, so it was what bounded the work. Some {serial:.0f} s are there in either
case: the driver's planning, and the small steps after the verdicts, which have too few rows to be spread. The rest halves, so the
more entries there are the nearer two come to 2 ×: with 400,000 they were
1.75 × as fast. Measured {stamp}.

It shows that executors do not wait for each other, for the driver or for one place in the bucket: each reads its own segments, and nothing
of an entry's size passes through the driver. It does not show what a network between machines costs, what a storage gives to hundreds of
readers, or more than two workers. On two cores that workers, driver and server share without a bound, two were
[1.2 × as fast as one](bucket.md).

"""


def _workers_page() -> str:
    path = _RESULTS / f"{_WORKERS}.json"
    if not path.exists():
        return ""
    record = json.loads(path.read_text("utf-8"))
    found = {figure["name"].rpartition("-")[2]: figure_of(figure) for figure in record["figures"]}
    shown = {name: found[name].median for name in ("one", "two", "speed", "throttled")}
    bounds = {f"{name}_{end.__name__}": end(found[name].samples) for name in ("one", "two", "speed") for end in (min, max)}
    return _WORKERS_PAGE.format(
        entries=record["entries"],
        share=record["worker_cpu"],
        stamp=record["stamp"],
        serial=2 * shown["two"] - shown["one"],
        **shown,
        **bounds,
    )


def _bucket() -> dict[str, float]:
    """Return what a bucket costs, in µs an entry, hours for all and gigabytes, as the results say that lie beside the page."""
    found: dict[str, float] = {}
    for name in ("bucket", "bucket-scan"):
        record = json.loads((Path(__file__).parent / "results" / f"{name}.json").read_text("utf-8"))
        found |= {figure["name"]: figure["median"] for figure in record["figures"]}
    costs = {
        "publish": found["bucket.publish"],
        "clone": found["bucket.clone"],
        "scan": found["bucket-scan.key,value.bucket"],
        "columns": found["bucket-scan.columns.bucket"],
        "verify": found["bucket-scan.verify.bucket"],
        "sqlite": found["bucket-scan.verify.sqlite"],
    }
    sizes = {"segments": found["bucket.publish.size"], "objects": found["bucket.size"]}
    hours = {f"{name}_h": cost * _ENTRIES / 1e6 / 3600 for name, cost in costs.items()}
    return costs | hours | sizes | {f"{name}_gb": share * 300 * _ENTRIES / 1e9 for name, share in sizes.items()}


def cluster_page(figures: Sequence[Figure], size: int) -> str:
    """Return the page, in Markdown.

    Args:
        figures: Of `benchmarks.spark`.
        size: How many entries they were measured with.
    """
    found = {figure.name: figure.median for figure in figures}
    rows = []
    for name, what, sides, shuffled in _JOBS:
        rate = found.get(f"spark.{name}")
        if rate is not None:
            hours = sides * _ENTRIES / rate / 3600
            rows.append(f"| {what} | {hours:.1f} | {60 * hours / _CORES:.0f} min | {shuffled} |")
    stored = found.get("spark.export-bytes")
    parts = _ENTRIES // _A_PART
    return _PAGE.format(
        **_bucket(),
        workers=_workers_page(),
        size=size,
        cores=_CORES,
        rows="\n".join(rows),
        storage="" if stored is None else _STORAGE.format(stored=stored, stored_gb=stored * _ENTRIES / 1e9),
        edges_kb=_EDGES_BYTES / 1000,
        edges_mb=parts * _EDGES_BYTES / 1e6,
        parts=parts,
    )


def workers(count: int, turns: int, cores: float) -> list[Figure]:
    """Verify a bucket at an S3 server by one executor and by two, in turns, each with this share of a core."""

    async def publish(folder: Path, url: str) -> None:
        async with gossiplog.open(folder / "log.db", topic="bucket.example.com", signer=Ed25519Signer.from_seed(bytes(32))) as log:
            await log.append_many(payloads(random.Random(1), count))
            await log.publish(url)

    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        outside = stack.enter_context(cpu_group("outside"))
        outside.add([os.getpid()])
        url = stack.enter_context(s3_bucket())
        trio.run(publish, Path(folder), url)
        timed = [[_verified_by(number, url, count, cores) for number in (1, 2)] for _ in range(turns)]
    what = f"verify of a bucket of {count:,} entries at an S3 server, each executor with {cores:g} of a core"
    loads = [round(load, 2), round(os.getloadavg()[0], 2)]
    held = [share for turn in timed for _, share in turn]
    return [
        Figure("spark.cluster-one", f"{what}: one", "s", [one for (one, _), _ in timed], load=loads),
        Figure("spark.cluster-two", "the same: two", "s", [two for _, (two, _) in timed], load=loads),
        Figure(
            "spark.cluster-speed", "speed of two, of one", "×", [one / two for (one, _), (two, _) in timed], Goal(at_least=1.8), load=loads
        ),
        Figure("spark.cluster-throttled", "periods in which the quota held an executor back", "of all", held, load=loads),
    ]


def _verified_by(number: int, url: str, count: int, cores: float) -> tuple[float, float]:
    """Verify with so many executors; return the seconds on the clock, and the share of periods in which the quotas held them back."""
    from gossiplog.spark import session
    from gossiplog.spark.source.reading import read_work
    from gossiplog.spark.tables.verify import JUDGE, count_verdicts, settle

    from .spark import stop_gateway

    spark = session(f"local-cluster[{number},1,1024]", memory="512m", config={"spark.sql.shuffle.partitions": "4"})
    parts = {"partitions": "16"}

    def verify() -> None:
        (verdicts,) = count_verdicts(settle(read_work(spark, JUDGE, url, None, VALUE_BYTES_LIMIT, ["ed25519"], options=parts)))
        assert (verdicts["verdict"], verdicts["count"]) == ("accept", count), verdicts

    # Before the quota, and not measured: each executor's JVM compiles what it runs, and its Python imports what it needs.
    verify()
    with ExitStack() as stack:
        found = [pid for pid, name in children(os.getpid()) if name == "java" and _is_executor(pid)]
        assert len(found) == number, found
        groups = [stack.enter_context(cpu_group(str(pid), cores)) for pid in found]
        for group, pid in zip(groups, found, strict=True):
            group.add([pid, *[child for child, _ in children(pid)]])
        begun = time.perf_counter()
        verify()
        wall, held = time.perf_counter() - begun, sum(group.throttled() for group in groups) / number
        spark.stop()
        stop_gateway()
    print(f"{number}: {wall:.1f} s, held back in {held:.0%} of the periods", file=sys.stderr, flush=True)
    return wall, held


def _is_executor(pid: int) -> bool:
    return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()


def main() -> None:
    """Measure what the command line says, and write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark_cluster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--worker-cpu", type=float, metavar="CORES", help="measure the workers, with so much of a core each")
    parser.add_argument("--entries", type=int, default=100_000, metavar="N", help="of the bucket (100000)")
    parser.add_argument("--repetitions", type=int, default=3, metavar="N", help="turns (3)")
    parser.add_argument("--dry", action="store_true", help="write no results")
    options = parser.parse_args()
    if options.worker_cpu is not None:
        if reason := why_no_groups():
            parser.error(f"--worker-cpu: {reason}")
        figures = workers(options.entries, options.repetitions, options.worker_cpu)
        print(*figures, sep="\n")
        load = " to ".join(f"{each:.0f}" for each in figures[0].load)
        header = {
            "command": f"python -m benchmarks.spark_cluster --worker-cpu {options.worker_cpu:g} --entries {options.entries}",
            "stamp": f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, commit {versions()['gossiplog']}, load {load}",
            "entries": options.entries,
            "worker_cpu": options.worker_cpu,
            "machine": machine(),
            "versions": versions(),
        }
        if not options.dry:
            write_json(_RESULTS / f"{_WORKERS}.json", header, figures)
    if not options.dry:
        record = json.loads((_RESULTS / "spark.json").read_text("utf-8"))
        size = int(record["command"].partition("--entries ")[2].split()[0]) + APART
        page = cluster_page([figure_of(figure) for figure in record["figures"]], size)
        (_RESULTS / "spark-cluster.md").write_text(page, "utf-8")


if __name__ == "__main__":
    main()
