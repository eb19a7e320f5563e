"""Results on the way: kept between two steps of a job, and sent to all tasks where they are few."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

_BROADCAST_ROWS = 200_000
"""This many rows of a key and a count are about 20 MB, which every executor can hold."""


def materialise(table: DataFrame, staging: str | None, name: str) -> DataFrame:
    """Compute a table now, so that several steps can read it: in a Parquet folder below `staging`, or else on the executors' disks.

    Below a URL nothing is staged, as this process could not remove it there.

    What lies on the executors is lost with them, and removed when nothing refers to it any more.
    """
    if staging is None or "://" in staging:
        return table.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)
    path = f"{staging.rstrip('/')}/staging-{name}"
    table.write.parquet(path)
    return table.sparkSession.read.schema(table.schema).parquet(path)


def small(table: DataFrame) -> tuple[DataFrame, int]:
    """Compute a table that is probably small, and have joins send it to all tasks if it is; return how many rows it has, too."""
    # Counting computes it.
    kept = table.localCheckpoint(eager=False, storageLevel=StorageLevel.DISK_ONLY)
    count = kept.count()
    return F.broadcast(kept) if count <= _BROADCAST_ROWS else kept, count


def observed(observation: Observation) -> dict[str, Any] | None:
    """Return what was counted when the observed table was read for the first time; waits for that.

    None where Spark does not tell, which it does not if its optimizer found that nothing was left to do.
    """
    try:
        # Spark 4.3.0 has no row to give then, and Connect gives an empty one.
        return observation.get or None
    except Py4JJavaError:
        return None
