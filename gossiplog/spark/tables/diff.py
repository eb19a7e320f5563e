"""The entries in which two tables differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from .columns import with_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SIDES = ("a", "b", "both", "unread a", "unread b")


def diff(a: DataFrame, b: DataFrame) -> DataFrame:
    """Compare two tables of entries, logs or exports of logs, by keys and leaf hashes, 36 bytes an entry.

    Args:
        a: Rows as `build_tree` takes them.
        b: The other table, with the same columns.

    Returns:
        A row for each key whose leaves differ: `key`; `side`: `a` or `b` for the only table that has it, `both` where the VALUEs
        differ (one of them was tampered with), `unread a` or `unread b` where a row of that table has no key or no VALUE to compare
        (`verify` says why); `hash_a` and `hash_b`, 16 bytes, null where the table lacks the key.
    """
    left, right = _leaves(a, "a"), _leaves(b, "b")
    unread = F.when(~F.col("read_a"), "unread a").when(~F.col("read_b"), "unread b")
    side = unread.when(F.col("hash_b").isNull(), "a").when(F.col("hash_a").isNull(), "b").otherwise("both")
    joined = left.join(right, "key", "full_outer")
    differing = joined.where(~F.col("hash_a").eqNullSafe(F.col("hash_b")) | ~F.col("read_a") | ~F.col("read_b"))
    return differing.select("key", side.alias("side"), "hash_a", "hash_b")


def count_sides(differing: DataFrame) -> dict[str, int]:
    """Count the differences of each of `SIDES`, zeros included."""
    counted = {row["side"]: row["count"] for row in differing.groupBy("side").count().collect()}
    return {side: counted.get(side, 0) for side in SIDES}


def _leaves(entries: DataFrame, name: str) -> DataFrame:
    leaves = with_columns(entries, ("key", "hash"))
    is_read = F.col("key").isNotNull() & F.col("hash").isNotNull()
    return leaves.select("key", F.col("hash").alias(f"hash_{name}"), is_read.alias(f"read_{name}"))
