"""Following a log into Parquet tables: a stream of micro-batches, each in the table exactly once, also after a kill."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ...arrow.columns import arrow_schema
from ...entry.rules import VALUE_BYTES_LIMIT
from ...entry.schemes import accepted_schemes
from ...entry.validation import validate
from ...errors import LocalProtocolError
from ..source.locations import exists
from ..tables.columns import COLUMNS
from ..tables.verify import register_extras

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FOLLOW_COLUMNS = ("id", "key", "clock", "topic", "author", "parents", "payload", "value", "seq", "place", "fault", "source")


def follow(
    spark: SparkSession,
    log: str,
    out: str,
    *,
    every: str | None = None,
    rows_max: int | None = None,
    start_seq: int = 1,
) -> StreamingQuery:
    """Start to copy a log, and the entries appended to it later, to `OUT/entries`; resume from the checkpoint in `OUT/checkpoint`.

    Every entry is verified, except for its parents, which the log has checked. The table is partitioned by `verdict`: `accept`, and
    `reject` with `rule` and `reason`, which is the quarantine. Read it with Spark, which skips the files of unfinished batches.

    Args:
        log: A path or URL.
        out: A folder or URL.
        every: How often to look for new entries, such as `5 seconds`; None to copy the entries there now, and end.
        rows_max: The most rows of a batch; None for no limit.
        start_seq: The first insertion number; only for a new stream.

    Raises:
        LocalProtocolError: The folder has a table and no checkpoint. A new stream would number its batches from 0, and the table would
            skip batches with numbers that it has, so their entries would be lost.
    """
    if "://" not in log:
        log = str(Path(log).absolute())
    if "://" not in out:
        out = str(Path(out).absolute())
    _check_resumable(spark, out)
    reader = spark.readStream.format("gossiplog").option("columns", ",".join(FOLLOW_COLUMNS)).option("startSeq", start_seq)
    if rows_max is not None:
        reader = reader.option("maxRowsPerBatch", rows_max)
    writer = (
        checked(reader.load(log)).writeStream.format("parquet").partitionBy("verdict").option("checkpointLocation", f"{out}/checkpoint")
    )
    writer = writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=every)
    return writer.start(f"{out}/entries")


def _check_resumable(spark: SparkSession, out: str) -> None:
    if exists(spark, f"{out}/entries/_spark_metadata") and not exists(spark, f"{out}/checkpoint/metadata"):
        raise LocalProtocolError(
            f"{out} has a table and no checkpoint any more, so nobody knows where it ends",
            hint="follow into another folder; or put the checkpoint back from a copy",
        )


def checked(entries: DataFrame, *, topic: str | None = None, value_bytes_max: int = VALUE_BYTES_LIMIT) -> DataFrame:
    """Add `verdict`, `rule` and `reason` to rows with `value`, `fault` and any other columns, each judged alone; works on streams."""
    names = tuple(entries.columns)
    schemes = accepted_schemes()
    ddl = ", ".join(f"{name} {COLUMNS[name].simpleString()}" for name in names) + ", verdict string, rule string, reason string"
    return entries.mapInArrow(partial(_check, names, topic, value_bytes_max, schemes), ddl)


def _check(
    names: tuple[str, ...], topic: str | None, value_bytes_max: int, schemes: frozenset[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    register_extras(schemes)
    schema = pa.schema([*arrow_schema(names), *[(name, pa.string()) for name in ("verdict", "rule", "reason")]])
    for batch in batches:
        verdicts: list[tuple[str, str | None, str | None]] = []
        for value, fault in zip(batch.column("value").to_pylist(), batch.column("fault").to_pylist(), strict=True):
            if value is None:
                verdicts.append(("reject", "file", fault))
                continue
            verdict = validate(value, topic=topic, schemes=schemes, value_bytes_max=value_bytes_max)
            verdicts.append((verdict.outcome.value, verdict.rule, verdict.reason))
        made = [pa.array([verdict[at] for verdict in verdicts], pa.string()) for at in range(3)]
        arrays = [batch.column(name).cast(schema.field(name).type) for name in names] + made
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
