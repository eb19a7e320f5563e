"""Verify every entry: the rules of `validate` in the executors, and the presence of parents by a join of those few that a task has not
seen."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from ...arrow.columns import ids_of
from ...entry.rules import VALUE_BYTES_LIMIT, Rule
from ...entry.schemes import accepted_schemes
from ...entry.validation import Outcome, judge
from .staging import materialise, small
from .task_function import TaskWork

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
        ("present", pa.bool_()),
        ("parents", pa.int32()),
        ("unseen", pa.list_(pa.binary())),
    ]
)
_OF_A_LOG = "seq "
"""How the places of a log's rows begin."""
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
    """Give every row a verdict, as `gossiplog verify` does; no row fails the job, and none is left out.

    The rules that need one entry alone are decided at once, when this is called; what is returned joins the parents to that.

    Args:
        entries: Rows with a column `value`, and any others of `INPUT_COLUMNS`: the key that an entry is stored or sent under, where it is,
            why there is none, and what there is instead. The order does not matter, but in the order of keys less is shuffled.
        topic: What every entry's topic must be; None for each one's own.
        schemes: The signature schemes that are accepted; by default those that this process accepts.
        known: A table with a column `key` of entries that count as present beside these; for a part of a log.
        staging: A folder to keep the verdicts in meanwhile; without one they stay on the executors' disks.

    Returns:
        `VERDICT_COLUMNS`, a row for each row: `accept`, `reject` or `ignore` (parents are missing, nobody's fault), the first rule that
        failed and how. `source` is the VALUE, or what stands there instead, of rows that are not accepted.
    """
    names = sorted(accepted_schemes() if schemes is None else schemes)
    return settle(JUDGE.on(entries, topic, value_bytes_max, names), known=known, staging=staging)


def settle(judged: DataFrame, *, known: DataFrame | None = None, staging: str | None = None) -> DataFrame:
    """Do the rest of `verify` with rows that `JUDGE` has judged, in the processes that read them for one; nothing else makes such rows.

    Args:
        judged: What `JUDGE` returns.
        known: See `verify`.
        staging: See `verify`.
    """
    return _settle(materialise(judged, staging, "judged"), known).select(*VERDICT_COLUMNS)


def quarantine(verdicts: DataFrame) -> DataFrame:
    """Return the rows that were not accepted."""
    return verdicts.where(F.col("verdict") != _ACCEPT)


def count_verdicts(verdicts: DataFrame) -> list[dict[str, Any]]:
    """Count verdicts by outcome and rule, the most frequent first."""
    counted = verdicts.groupBy("verdict", "rule").count().orderBy(F.col("count").desc(), "verdict", "rule")
    return [row.asDict() for row in counted.collect()]


def register_extras(schemes: Collection[str]) -> None:
    """Make a task's process able to verify these schemes; where it lacks an extra, its verdicts say so."""
    if "eip712" in schemes:
        with contextlib.suppress(ModuleNotFoundError):
            from ...ethereum import register

            register()


def _settle(judged: DataFrame, known: DataFrame | None) -> DataFrame:
    """Turn down what was accepted and whose parents are not there.

    A parent is there if it was accepted itself, or if a log has a leaf for it, whatever became of its row: as `gossiplog verify` has it,
    of a file and of a log.
    """
    edges = judged.where(F.size("unseen") > 0).select(F.col("key").alias("child"), F.explode("unseen").alias("parent"))
    without_orphans = judged.withColumn("source", F.when(F.col("verdict") != _ACCEPT, F.col("source")))
    wanted, wanted_count = small(edges.select("parent").distinct())
    if wanted_count == 0:
        # Every parent was read by the task that read its child, before it.
        return without_orphans
    keys = judged.where("present").select(F.col("key").alias("parent"))
    if known is not None:
        keys = keys.unionByName(known.select(F.col("key").alias("parent")))
    # The many keys stay where they are if the few parents fit into memory.
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
    """Decide about each row of a task on its own, and name the parents that the task has not seen."""
    register_extras(schemes)
    judge = _Judge(topic, value_bytes_max, frozenset(schemes))
    for batch in batches:
        made = judge.decide(*[batch.column(name).to_pylist() for name in ("key", "value", "fault", "source", "place")])
        columns = {**made, "id": ids_of(made["key"]), "place": batch.column("place")}
        arrays = [pa.array(columns[field.name], field.type) for field in _JUDGED]
        yield pa.RecordBatch.from_arrays(arrays, schema=_JUDGED)


class _Judge:
    """The state of one task: the rules, and the keys seen so far."""

    def __init__(self, topic: str | None, value_bytes_max: int, schemes: frozenset[str]) -> None:
        self._topic = topic
        self._value_bytes_max = value_bytes_max
        self._schemes = schemes
        self._seen: set[bytes] = set()
        self._order: deque[bytes] = deque()

    def decide(
        self,
        keys: list[bytes | None],
        values: list[bytes | None],
        faults: list[str | None],
        sources: list[bytes | None],
        places: list[str | None],
    ) -> dict[str, list[Any]]:
        """Return columns of `_JUDGED`, all but id and place; nearly every row is accepted, so these are written as if all were."""
        size = len(keys)
        empty: dict[str, list[Any]] = {name: [None] * size for name in ("rule", "reason", "source", "unseen")}
        made: dict[str, list[Any]] = {
            "key": keys, "verdict": [_ACCEPT] * size, "present": [True] * size, "parents": [0] * size, **empty
        }  # fmt: skip

        def refuse(verdict: str, rule: str | None, reason: str | None, source: bytes | None) -> None:
            made["verdict"][at], made["rule"][at], made["reason"][at], made["source"][at] = verdict, rule, reason, source
            is_kept = made["present"][at] = (places[at] or "").startswith(_OF_A_LOG)
            if is_kept:
                self._remember(keys[at])

        for at, value in enumerate(values):
            key = keys[at]
            if value is None:
                refuse(_REJECT, "file", faults[at] or "there is no VALUE", sources[at])
                continue
            verdict = judge(value, key, topic=self._topic, schemes=self._schemes, value_bytes_max=self._value_bytes_max)
            entry = verdict.entry
            if key is None and entry is not None:
                key = keys[at] = entry.key
            if entry is None or not verdict.accepted:
                refuse(verdict.outcome.value, verdict.rule, verdict.reason, value)
            else:
                self._remember(key)
                made["parents"][at] = len(entry.parent_keys)
                if not self._seen.issuperset(entry.parent_keys):
                    # An orphan is quarantined with its VALUE, and it is not known yet whether this is one.
                    made["unseen"][at] = [parent for parent in entry.parent_keys if parent not in self._seen]
                    made["source"][at] = value
        return made

    def _remember(self, key: bytes | None) -> None:
        if key is None or key in self._seen:
            return
        self._seen.add(key)
        self._order.append(key)
        if len(self._order) > _SEEN_MAX:
            self._seen.discard(self._order.popleft())


_ACCEPT = Outcome.ACCEPT.value
_REJECT = Outcome.REJECT.value
JUDGE = TaskWork("judge", INPUT_COLUMNS, _JUDGED, _judge)
"""Judges each row on its own, given a topic or None, the size that a VALUE may have, and the schemes to accept; `settle` does the rest."""
