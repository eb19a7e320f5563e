"""Locations: paths on this machine's disk, and URLs of Spark's file systems (`s3a://`, `hdfs://`, `viewfs://`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...bucket.storage import is_published, open_storage
from ...errors import LocalProtocolError
from ...store.postgres.url import is_postgres_url, without_secrets
from ...tlog.note import is_publisher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEW_FOLDER = "give the name of a folder that does not exist yet"
_OF_OTHERS = ("report.json", "report", "checkpoint")
_FILES = (".db", ".sqlite", ".sqlite3", ".jsonl", ".car", ".hex", ".gz")


def is_remote(location: str) -> bool:
    """Return whether a location is a URL of a file system that this process cannot open files in."""
    return "://" in location and not location.startswith("file://") and not is_postgres_url(location)


def is_export(url: str) -> bool:
    """Return whether a location where a bucket may be has an export: Spark can have file systems at such URLs too."""
    import trio

    storage = open_storage(url)
    if not is_remote(url) or storage.only is not None:
        return False
    folders, _ = trio.run(storage.list, "")
    return "entries" in folders and not any(map(is_publisher, folders))


def check_bucket(location: str, topic: str | None) -> None:
    """Read the checkpoints of a bucket, to find faults before Spark is started.

    Raises:
        GossipLogError: See `look`.
    """
    import trio

    from ...bucket.scan import look

    if is_published(location) and not is_export(location):
        trio.run(look, open_storage(location), topic)


def local_path(location: str) -> Path:
    """Return the absolute path of a location that is not remote.

    Raises:
        LocalProtocolError: It is a URL.
    """
    check_local(location, "this")
    return Path(location.removeprefix("file://")).absolute()


def check_local(location: str, what: str) -> None:
    """Raise LocalProtocolError for a URL where only a path of a local or mounted disk works.

    `Path` would make a local folder named like the URL.
    """
    if "://" in location and not location.startswith("file://"):
        hint = "give a path on a disk that this machine and the executors mount, and copy the folder when the job is done"
        shown = without_secrets(location) if is_postgres_url(location) else location
        raise LocalProtocolError(f"{what} cannot be at a URL, but {shown} is one", hint=hint)


def check_export_place(out: str, spark: SparkSession | None = None) -> None:
    """Check that a run can be added to a folder: one that does not exist yet, an empty one, or an export.

    Args:
        out: A path, or a URL, which only Spark can look at.
        spark: The session; None before there is one.

    Raises:
        LocalProtocolError: It is a file, another job's folder, a database, or a URL that looks like that of a file of entries.
    """
    check_table_url(out)
    if not is_remote(out) and local_path(out).is_file():
        raise LocalProtocolError(f"{out} is a file", hint="an export is a folder")
    if any(exists(spark, f"{out}/{name}") for name in _OF_OTHERS):
        raise LocalProtocolError(f"{out} holds the results of another job", hint="give a folder of its own, or that of an earlier export")


def _check_text(location: str) -> None:
    try:
        location.encode()
    except UnicodeEncodeError:
        raise LocalProtocolError(f"{location} is no UTF-8, which is all that Spark can be told", hint="rename it") from None


def check_table_url(out: str) -> None:
    """Check the location of new tables of entries.

    Raises:
        LocalProtocolError: It is a URL that looks like that of a file of entries, or not UTF-8, as Spark's names are.
    """
    _check_text(out)
    if is_remote(out) and out.lower().endswith(_FILES):
        hint = "give the name of a folder; `gossiplog export` writes files of entries, on a local disk"
        raise LocalProtocolError(f"{out} would be the URL of a folder of Parquet tables, but is named like a file of entries", hint=hint)


def check_new(out: str) -> None:
    """Raise LocalProtocolError if there is something at a local path already."""
    if not is_remote(out) and local_path(out).exists():
        raise LocalProtocolError(f"{out} exists", hint=NEW_FOLDER)


def check_readable(location: str) -> None:
    """Check a location to read from: logs and files of entries are read from local or mounted disks only.

    Raises:
        LocalProtocolError: It is a URL with the suffix of one, or not UTF-8, as Spark's names are.
    """
    _check_text(location)
    if is_remote(location) and location.lower().endswith(_FILES):
        hint = "copy it to a disk that this machine and the executors mount; Parquet tables are read from URLs"
        raise LocalProtocolError(f"a log or a file of entries is read from a path, but {location} is a URL", hint=hint)


def exists(spark: SparkSession | None, location: str) -> bool:
    """Return whether there is a file or folder: on this machine's disk, or at a URL by asking Spark.

    Args:
        spark: The session. Without one the answer for a URL is False.
        location: A URL may have wildcards; then whether anything matches.
    """
    if not is_remote(location):
        return local_path(location).exists()
    if spark is None:
        return False
    from pyspark.errors import AnalysisException

    try:
        # The schema of text files is known, so Spark lists the files and reads none.
        _ = spark.read.option("recursiveFileLookup", "true").text(location).schema
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return False
        raise
    return True
