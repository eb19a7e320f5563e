"""Verifying every entry: executors apply the rules of `validate`, and a join looks for the few parents that a task has not seen itself."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from ...entry.message_id import KEY_BYTES, encode_id
from ...entry.rules import VALUE_BYTES_LIMIT, Rule
from ...entry.schemes import accepted_schemes
from ...entry.validation import Outcome, Verdict, judge
from .staging import materialise, small
from .task_function import TaskWork, row_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INPUT_COLUMNS = ("key", "value", "place", "fault", "source")
"""What `verify` reads; only `value` is required."""
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
        ("present", pa.bool_()),
        ("parents", pa.int32()),
        ("unseen", pa.list_(pa.binary())),
    ]
)
_OF_A_LOG = "seq "
"""The beginning of the places of a log's rows."""
_SEEN_MAX = 200_000
"""Keys that a task remembers, about 20 MB. Nearly every parent is among those just before its child."""


def verify(
    entries: DataFrame,
    *,
    topic: str | None = None,
    value_bytes_max: int = VALUE_BYTES_LIMIT,
    schemes: Collection[str] | None = None,
    known: DataFrame | None = None,
    staging: str | None = None,
) -> DataFrame:
    """Give every row a verdict, as `gossiplog verify` does. No row fails the job, and none is left out.

    The rules that need only the entry itself are applied in this call. The table returned adds the check of parents when it is read.

    Args:
        entries: Rows with `value`, and any others of `INPUT_COLUMNS`: the key that an entry is stored or sent under, its place, and for a
            row without VALUE the fault and the bytes found. The order does not matter, but in the order of keys less is shuffled.
        topic: The topic that every entry must have; None for any.
        schemes: The accepted signature schemes; by default those of this process.
        known: A table with a column `key` of entries that count as present beside these; for a part of a log.
        staging: A folder for the verdicts meanwhile; without one they stay on the executors' disks.

    Returns:
        `VERDICT_COLUMNS`, a row for each row: `accept`, `reject` or `ignore` (parents are missing, which is nobody's fault), the first
        rule that failed, and the reason. Rows that are not accepted have VALUE, or the bytes found, in `source`.
    """
    names = sorted(accepted_schemes() if schemes is None else schemes)
    return settle(JUDGE.on(entries, topic, value_bytes_max, names), known=known, staging=staging)


def settle(judged: DataFrame, *, known: DataFrame | None = None, staging: str | None = None) -> DataFrame:
    """Finish `verify` from the rows that `JUDGE` returned; it may have run in the processes that read the entries."""
    return _settle(materialise(judged, staging, "judged"), known).select(*VERDICT_COLUMNS)


def quarantine(verdicts: DataFrame) -> DataFrame:
    """Return the rows that were not accepted."""
    return verdicts.where(F.col("verdict") != _ACCEPT)


def count_verdicts(verdicts: DataFrame) -> list[dict[str, Any]]:
    """Count verdicts by outcome and rule, the most frequent first."""
    counted = verdicts.groupBy("verdict", "rule").count().orderBy(F.col("count").desc(), "verdict", "rule")
    return [row.asDict() for row in counted.collect()]


def register_extras(schemes: Collection[str]) -> None:
    """Register these schemes in a task's process. If it lacks an extra, its verdicts say so."""
    if "eip712" in schemes:
        with contextlib.suppress(ModuleNotFoundError):
            from ...ethereum import register

            register()


def _settle(judged: DataFrame, known: DataFrame | None) -> DataFrame:
    """Change accepted entries with missing parents to ignored.

    As in `gossiplog verify`, a parent is present if it was accepted itself, or if a log has a leaf for it, whatever its verdict.
    """
    edges = judged.where(F.size("unseen") > 0).select(F.col("key").alias("child"), F.explode("unseen").alias("parent"))
    without_orphans = judged.withColumn("source", F.when(F.col("verdict") != _ACCEPT, F.col("source")))
    wanted, wanted_count = small(edges.select("parent").distinct())
    if wanted_count == 0:
        # Each task had read all parents of its entries before them.
        return without_orphans
    keys = judged.where("present").select(F.col("key").alias("parent"))
    if known is not None:
        keys = keys.unionByName(known.select(F.col("key").alias("parent")))
    # If the few parents fit into memory, the many keys are not shuffled.
    there = keys.join(wanted, "parent", "left_semi").distinct()
    missing = edges.join(there, "parent", "left_anti").groupBy(F.col("child").alias("key")).agg(F.count("*").alias("missing"))
    orphans, orphan_count = small(missing)
    if orphan_count == 0:
        return without_orphans
    joined = judged.join(orphans, "key", "left")
    is_orphan = F.col("missing").isNotNull() & (F.col("verdict") == _ACCEPT)
    reason = F.format_string("%d of %d parents are missing", "missing", "parents")
    return (
        joined.withColumn("reason", F.when(is_orphan, reason).otherwise(F.col("reason")))
        .withColumn("rule", F.when(is_orphan, Rule.PARENTS).otherwise(F.col("rule")))
        .withColumn("source", F.when(is_orphan | (F.col("verdict") != _ACCEPT), F.col("source")))
        .withColumn("verdict", F.when(is_orphan, Outcome.IGNORE.value).otherwise(F.col("verdict")))
    )


def _judge(
    topic: str | None, value_bytes_max: int, schemes: Collection[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Judge each row of a task on its own, and list the parents that the task has not seen."""
    register_extras(schemes)
    judge = _Judge(topic, value_bytes_max, frozenset(schemes))
    for batch in batches:
        rows = zip(*[batch.column(name).to_pylist() for name in INPUT_COLUMNS], strict=True)
        yield from row_batches([judge.decide(*row) for row in rows], _JUDGED)


class _Judge:
    """The state of one task: the rules, and the keys seen so far."""

    def __init__(self, topic: str | None, value_bytes_max: int, schemes: frozenset[str]) -> None:
        self._topic = topic
        self._value_bytes_max = value_bytes_max
        self._schemes = schemes
        self._seen: set[bytes] = set()
        self._order: deque[bytes] = deque()

    def decide(self, key: bytes | None, value: bytes | None, place: str | None, fault: str | None, source: bytes | None) -> tuple[Any, ...]:
        """Return a row of `_JUDGED`, given one with the columns that `verify` reads."""
        if value is None:
            verdict = Verdict(Outcome.REJECT, "file", fault or "there is no VALUE")
        else:
            verdict, source = judge(value, key, topic=self._topic, schemes=self._schemes, value_bytes_max=self._value_bytes_max), value
        entry, is_good = verdict.entry, verdict.accepted
        if entry is not None and key is None:
            key = entry.key
        is_kept = is_good or (place or "").startswith(_OF_A_LOG)
        if is_kept:
            self._remember(key)
        parents = entry.parent_keys if entry is not None and is_good else ()
        unseen = [parent for parent in parents if parent not in self._seen] or None
        if is_good and unseen is None:
            # An orphan is quarantined with its VALUE, and this cannot be one.
            source = None
        id = encode_id(key) if key is not None and len(key) == KEY_BYTES else None
        return id, key, verdict.outcome.value, verdict.rule, verdict.reason, place, source, is_kept, len(parents), unseen

    def _remember(self, key: bytes | None) -> None:
        if key is None or key in self._seen:
            return
        self._seen.add(key)
        self._order.append(key)
        if len(self._order) > _SEEN_MAX:
            self._seen.discard(self._order.popleft())


_ACCEPT = Outcome.ACCEPT.value
JUDGE = TaskWork("judge", INPUT_COLUMNS, _JUDGED, _judge)
"""Judges each row on its own, given a topic or None, the largest size of VALUE, and the accepted schemes; `settle` checks parents."""
