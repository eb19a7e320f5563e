"""What two tables of entries have that the other lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from .tree import leaves_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["count_sides", "diff"]


def diff(a: DataFrame, b: DataFrame) -> DataFrame:
    """Compare two tables of entries, logs or exports of logs, by keys and leaf hashes, 36 bytes an entry.

    Args:
        a: Rows as `build_tree` takes them.
        b: The same.

    Returns:
        A row for each key whose leaves differ: `key`; `side`, `a` or `b` for the table that alone has it, `both` where the VALUEs
        differ (one of them was tampered with); `hash_a` and `hash_b`, 16 bytes, null where it is not. Rows without a key or a VALUE are on
        neither side: `verify` tells of them.
    """
    left = _leaves(a).withColumnRenamed("hash", "hash_a")
    right = _leaves(b).withColumnRenamed("hash", "hash_b")
    side = F.when(F.col("hash_b").isNull(), "a").when(F.col("hash_a").isNull(), "b").otherwise("both")
    differing = left.join(right, "key", "full_outer").where(~F.col("hash_a").eqNullSafe(F.col("hash_b")))
    return differing.select("key", side.alias("side"), "hash_a", "hash_b")


def count_sides(differing: DataFrame) -> dict[str, int]:
    """Count the differences of each side; every side is named."""
    counted = {row["side"]: row["count"] for row in differing.groupBy("side").count().collect()}
    return {side: counted.get(side, 0) for side in ("a", "b", "both")}


def _leaves(entries: DataFrame) -> DataFrame:
    return leaves_of(entries).where("key is not null and hash is not null").select("key", "hash")
