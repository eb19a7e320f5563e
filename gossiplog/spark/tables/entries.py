"""Entries as a DataFrame, whatever they lie in: a log, files of entries, or the Parquet tables of an export."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ...arrow.columns import DEFAULT_COLUMNS
from ..source.columns import COLUMNS
from ..source.locations import check_readable, exists, is_remote
from ..source.run_plan import is_log, is_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["is_table", "read_entries", "with_columns"]


def read_entries(
    spark: SparkSession, location: str, columns: Sequence[str] = DEFAULT_COLUMNS, options: Mapping[str, str] | None = None
) -> DataFrame:
    """Read the entries of a log, of files of entries, or of an export's Parquet tables.

    Args:
        spark: Any session, a Connect client's too; the location is as the server sees it.
        location: A path, a pattern or a URL.
        columns: Which of `COLUMNS`, in this order. Those that a Parquet table lacks are null.
        options: Further options of the data source; not for Parquet tables.
    """
    if "://" not in location:
        # Tasks have folders of their own to be in.
        location = os.path.abspath(location)  # noqa: PTH100  (it may be a pattern)
    check_readable(location)
    if is_table(location):
        # What `export` and `follow` write has the entries in a folder beside other things.
        below = f"{location.rstrip('/')}/entries"
        is_below = exists(spark, below) if is_remote(location) else Path(below.removeprefix("file://")).is_dir()
        return with_columns(spark.read.parquet(below if is_below else location), columns)
    reader = spark.read.format("gossiplog").option("columns", ",".join(columns)).options(**(options or {}))
    return reader.option("url", location).load() if is_url(location) and is_log(location) else reader.load(location)


def is_table(location: str) -> bool:
    """Say whether a location holds Parquet tables, by its name or by what a local folder has in it."""
    if location.endswith(".parquet"):
        return True
    if "://" in location and not location.startswith("file://"):
        # A folder of a remote file system; what a database's URL names is no folder.
        return not is_url(location)
    folder = Path(location.removeprefix("file://"))
    return folder.is_dir() and next(folder.rglob("*.parquet"), None) is not None


def with_columns(entries: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Select these columns, null where the table has none of the name."""
    there = set(entries.columns)
    return entries.select(*[F.col(name) if name in there else F.lit(None).cast(COLUMNS[name]).alias(name) for name in columns])
