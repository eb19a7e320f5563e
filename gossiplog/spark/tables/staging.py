"""Intermediate results: kept between two steps of a job, and sent to all tasks if they are few."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

_BROADCAST_ROWS = 200_000
"""So many rows of a key and a count take about 20 MB, which every executor can hold."""


def materialise(table: DataFrame, staging: str | None, name: str) -> DataFrame:
    """Compute a table now, so that several steps can read it: in a Parquet folder below `staging`, or else on the executors' disks.

    At a URL nothing is staged, as this process could not remove it. Tables on the executors' disks are lost with the executors, and removed
    when nothing refers to them.
    """
    if staging is None or "://" in staging:
        return table.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)
    return written(table, f"{staging.rstrip('/')}/staging-{name}")


def written(table: DataFrame, path: str) -> DataFrame:
    """Write a table as Parquet, and return it as read from there, so that using it computes nothing again."""
    table.write.parquet(path)
    return table.sparkSession.read.schema(table.schema).parquet(path)


def small(table: DataFrame) -> tuple[DataFrame, int]:
    """Compute a table that is probably small, marked for joins to broadcast if it is; return its number of rows, too."""
    # Counting computes it.
    kept = table.localCheckpoint(eager=False, storageLevel=StorageLevel.DISK_ONLY)
    count = kept.count()
    return F.broadcast(kept) if count <= _BROADCAST_ROWS else kept, count


def observed(observation: Observation) -> dict[str, Any] | None:
    """Return the counts from the first reading of the observed table; waits for that.

    None if Spark has none, because its optimizer found that there was nothing to do.
    """
    try:
        # Then Spark 4.3.0 raises, and Connect gives an empty row.
        return observation.get or None
    except Py4JJavaError:
        return None
