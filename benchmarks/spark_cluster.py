"""What a log of a billion entries would cost on a cluster, worked out from what one machine needs for an entry."""

import json
from collections.abc import Sequence
from pathlib import Path

from .measure import Figure

__all__ = ["cluster_page"]

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

## Settings

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
        size=size,
        cores=_CORES,
        rows="\n".join(rows),
        storage="" if stored is None else _STORAGE.format(stored=stored, stored_gb=stored * _ENTRIES / 1e9),
        edges_kb=_EDGES_BYTES / 1000,
        edges_mb=parts * _EDGES_BYTES / 1e6,
        parts=parts,
    )
