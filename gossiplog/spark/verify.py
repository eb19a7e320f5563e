"""Verify every entry: the rules of `validate` in the executors, and the presence of parents by a join of those few that a task has not
seen."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from ..errors import DecodeError
from ..log.envelope import VALUE_BYTES_LIMIT, Rule
from ..log.message_id import encode_id
from ..log.validation import Outcome, validate
from .entries import with_columns
from .staging import materialise, small

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["INPUT_COLUMNS", "VERDICT_COLUMNS", "count_verdicts", "quarantine", "verify"]

INPUT_COLUMNS = ("key", "value", "place", "fault", "source")
"""What `verify` reads; only `value` has to be there."""
VERDICT_COLUMNS = ("id", "key", "verdict", "rule", "reason", "place", "source")

_JUDGED = pa.schema(
    [
        ("id", pa.string()),
        ("key", pa.binary()),
        ("verdict", pa.string()),
        ("rule", pa.string()),
        ("reason", pa.string()),
        ("place", pa.string()),
        ("source", pa.binary()),
        ("parents", pa.int32()),
        ("unseen", pa.list_(pa.binary())),
    ]
)
_JUDGED_DDL = (
    "id string, key binary, verdict string, rule string, reason string, place string, source binary, parents int, unseen array<binary>"
)
_SEEN_MAX = 200_000
"""Keys that a task remembers, about 20 MB. Nearly every parent is among those just before its child."""


def verify(
    entries: DataFrame,
    *,
    topic: str | None = None,
    value_bytes_max: int = VALUE_BYTES_LIMIT,
    known: DataFrame | None = None,
    staging: str | None = None,
) -> DataFrame:
    """Give every row a verdict, as `gossiplog verify` does; no row fails the job, and none is left out.

    The rules that need one entry alone are decided at once, when this is called; what is returned joins the parents to that.

    Args:
        entries: Rows with a column `value`, and any others of `INPUT_COLUMNS`: the key that an entry is stored or sent under, where it is,
            why there is none, and what there is instead. The order does not matter, but in the order of keys less is shuffled.
        topic: What every entry's topic must be; None for each one's own.
        value_bytes_max: The size that a VALUE may have.
        known: A table with a column `key` of entries that count as present beside these; for a part of a log.
        staging: A folder to keep the verdicts in meanwhile; without one they stay on the executors' disks.

    Returns:
        `VERDICT_COLUMNS`, a row for each row: `accept`, `reject` or `ignore` (parents are missing, nobody's fault), the first rule that
        failed and how. `source` is the VALUE, or what stands there instead, of rows that are not accepted.
    """
    judged = with_columns(entries, INPUT_COLUMNS).mapInArrow(partial(_judge, topic, value_bytes_max), _JUDGED_DDL)
    judged = materialise(judged, staging, "judged")
    return _settle(judged, known).select(*VERDICT_COLUMNS)


def quarantine(verdicts: DataFrame) -> DataFrame:
    """Return the rows that were not accepted."""
    return verdicts.where(F.col("verdict") != Outcome.ACCEPT.value)


def count_verdicts(verdicts: DataFrame) -> list[dict[str, Any]]:
    """Count verdicts by outcome and rule, the most frequent first."""
    counted = verdicts.groupBy("verdict", "rule").count().orderBy(F.col("count").desc(), "verdict", "rule")
    return [row.asDict() for row in counted.collect()]


def _settle(judged: DataFrame, known: DataFrame | None) -> DataFrame:
    """Turn down what was accepted and whose parents are not there."""
    edges = judged.where(F.size("unseen") > 0).select(F.col("key").alias("child"), F.explode("unseen").alias("parent"))
    wanted = small(edges.select("parent").distinct())
    keys = judged.select(F.col("key").alias("parent"))
    if known is not None:
        keys = keys.unionByName(known.select(F.col("key").alias("parent")))
    # The many keys stay where they are if the few parents fit into memory.
    there = keys.join(wanted, "parent", "left_semi").distinct()
    missing = edges.join(there, "parent", "left_anti").groupBy(F.col("child").alias("key")).agg(F.count("*").alias("missing"))
    joined = judged.join(small(missing), "key", "left")
    is_orphan = F.col("missing").isNotNull() & (F.col("verdict") == Outcome.ACCEPT.value)
    reason = F.format_string("%d of %d parents are missing", "missing", "parents")
    return (
        joined.withColumn("reason", F.when(is_orphan, reason).otherwise(F.col("reason")))
        .withColumn("rule", F.when(is_orphan, Rule.PARENTS).otherwise(F.col("rule")))
        .withColumn("source", F.when(is_orphan | (F.col("verdict") != Outcome.ACCEPT.value), F.col("source")))
        .withColumn("verdict", F.when(is_orphan, Outcome.IGNORE.value).otherwise(F.col("verdict")))
    )


def _judge(topic: str | None, value_bytes_max: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decide about each row of a task on its own, and name the parents that the task has not seen."""
    seen: set[bytes] = set()
    order: deque[bytes] = deque()
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in INPUT_COLUMNS]
        rows = [_judge_row(topic, value_bytes_max, seen, order, *row) for row in zip(*columns, strict=True)]
        made = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), _JUDGED, strict=True)] if rows else []
        if made:
            yield pa.RecordBatch.from_arrays(made, schema=_JUDGED)


def _judge_row(
    topic: str | None,
    value_bytes_max: int,
    seen: set[bytes],
    order: deque[bytes],
    key: bytes | None,
    value: bytes | None,
    place: str | None,
    fault: str | None,
    source: bytes | None,
) -> tuple[Any, ...]:
    """Return a row of `_JUDGED`."""
    if key is not None:
        _remember(seen, order, key)
    if value is None:
        return _id(key), key, Outcome.REJECT.value, "file", fault or "there is no VALUE", place, source, 0, None
    verdict = validate(value, topic=topic, value_bytes_max=value_bytes_max)
    entry = verdict.entry
    own = None if entry is None else entry.key
    if key is None and own is not None:
        key = own
        _remember(seen, order, key)
    if own is not None and own != key:
        reason = f"its bytes were changed: they hash to {encode_id(own)}"
        return _id(key), key, Outcome.REJECT.value, Rule.KEY, reason, place, value, 0, None
    if entry is None or not verdict.accepted:
        return _id(key), key, verdict.outcome.value, verdict.rule, verdict.reason, place, value, 0, None
    parents = entry.parent_keys
    unseen = [parent for parent in parents if parent not in seen]
    # An orphan is quarantined with its VALUE, and it is not known yet whether this is one.
    return _id(key), key, Outcome.ACCEPT.value, None, None, place, value if unseen else None, len(parents), unseen or None


def _remember(seen: set[bytes], order: deque[bytes], key: bytes) -> None:
    if key in seen:
        return
    seen.add(key)
    order.append(key)
    if len(order) > _SEEN_MAX:
        seen.discard(order.popleft())


def _id(key: bytes | None) -> str | None:
    try:
        return None if key is None else encode_id(key)
    except (DecodeError, ValueError):
        return None
