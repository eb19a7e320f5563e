"""Entries as a DataFrame, from a log, from files of entries, or from the Parquet tables of an export."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...arrow.columns import DEFAULT_COLUMNS
from ...bucket.storage import is_published
from ...errors import DecodeError, LocalProtocolError
from ...store.postgres.url import is_postgres_url
from ..tables.columns import with_columns
from .locations import check_readable, exists, is_export, is_remote, local_path
from .places import place_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ..tables.task_function import TaskWork

_RUN = re.compile(r"run=\d{12,16}")


def read_entries(
    spark: SparkSession, location: str, columns: Sequence[str] = DEFAULT_COLUMNS, options: Mapping[str, str] | None = None
) -> DataFrame:
    """Read the entries of a log, of files of entries, or of an export's Parquet tables.

    Args:
        spark: Any session, also a Connect client's; then the location is one of the server.
        location: A path, a pattern or a URL.
        columns: A selection of `COLUMNS`, in their order. See `with_columns` for those that a Parquet table lacks.
        options: Further options of the data source; not for Parquet tables.
    """
    if "://" not in location:
        # Tasks run in other working directories.
        location = os.path.abspath(location)  # noqa: PTH100  (it may be a pattern)
    check_readable(location)
    if is_table(location):
        return with_columns(read_table(spark, location), columns)
    reader = spark.read.format("gossiplog").option("columns", ",".join(columns)).options(**(options or {}))
    return reader.option("url", location).load() if is_postgres_url(location) else reader.load(location)


def finished_runs(spark: SparkSession, out: str) -> dict[str, Any]:
    """Return the finished runs of an export, and the place in the log where each ends.

    Raises:
        DecodeError: A record of a place is damaged.
    """
    places = f"{out}/places"
    if not exists(spark, places):
        return {}
    found: dict[str, Any] = {}
    if is_remote(out):
        texts = [row["value"] for row in spark.read.text(places).collect()]
    else:
        texts = [file.read_text("utf-8") for file in sorted(local_path(places).glob("run=*/*.txt"))]
    for text in texts:
        try:
            record = json.loads(text)
            if not _RUN.fullmatch(record["run"]):
                raise DecodeError(f"{record['run']!r:.80} is no run")
            found[record["run"]] = place_of(record)
        except (ValueError, LookupError, AttributeError, TypeError, RecursionError, DecodeError) as error:
            raise DecodeError(f"{places} is damaged: {error}") from error
    return found


def read_table(spark: SparkSession, location: str) -> DataFrame:
    """Read Parquet; in a folder that `export` or `follow` wrote, the table of entries.

    Raises:
        LocalProtocolError: It is an export at a URL, and none of its runs is finished.
    """
    location = location.rstrip("/")
    below = f"{location}/entries"
    runs = [f"{below}/{run}" for run in finished_runs(spark, location)] if is_remote(location) else []
    if runs:
        # Runs cannot be renamed into place at a URL, so a killed one may have left some of its files.
        return spark.read.option("basePath", below).parquet(*runs)
    if not exists(spark, below):
        return spark.read.parquet(location)
    if is_remote(location) and exists(spark, f"{below}/run=*"):
        raise LocalProtocolError(f"no run of the export at {location} is finished", hint="run the export again")
    return spark.read.parquet(below)


def is_table(location: str) -> bool:
    """Return whether a location has Parquet tables, by its name or by the files in a local folder."""
    if location.endswith(".parquet"):
        return True
    if is_published(location):
        return is_export(location)
    if "://" in location and not location.startswith("file://"):
        # It is a folder of a remote file system, unless it is a database.
        return not is_postgres_url(location)
    folder = Path(location.removeprefix("file://"))
    return folder.is_dir() and next(folder.rglob("*.parquet"), None) is not None


def read_work(spark: SparkSession, work: TaskWork, location: str, *arguments: Any, options: Mapping[str, str] | None = None) -> DataFrame:
    """Run a work over the entries of a location, in the processes that read them, so that they do not go through the JVM twice.

    Args:
        work: `JUDGE`, `PICK` or `FOLD`.
        location: See `read_entries`.
        *arguments: Of the work's function.
        options: See `read_entries`.
    """
    if is_table(location):
        return work.on(read_entries(spark, location, work.columns), *arguments)
    named = {**(options or {}), "work": work.name, "workWith": json.dumps(arguments)}
    return read_entries(spark, location, work.columns, named)
