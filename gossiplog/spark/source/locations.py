"""Where things lie: on this machine's disk, or in a file system of Spark's that only a URL names (`s3a://`, `hdfs://`, `viewfs://`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import LocalProtocolError
from .run_plan import is_url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NEW_FOLDER", "check_export_place", "check_local", "check_new", "check_readable", "exists", "is_remote", "local_path"]

NEW_FOLDER = "give the name of a folder that does not exist yet"
_FILES = (".db", ".sqlite", ".sqlite3", ".jsonl", ".car", ".hex", ".gz")


def is_remote(location: str) -> bool:
    """Say whether a location is a URL of a file system that this process cannot open files in."""
    return "://" in location and not location.startswith("file://") and not is_url(location)


def local_path(location: str) -> Path:
    """Return the absolute path of a location that is not remote.

    Raises:
        LocalProtocolError: It is a URL.
    """
    check_local(location, "this")
    return Path(location.removeprefix("file://")).absolute()


def check_local(location: str, what: str) -> None:
    """Refuse a URL where only a path of a local or mounted disk works: `Path` would make a local folder named like the URL.

    Raises:
        LocalProtocolError: It is a URL.
    """
    if "://" in location and not location.startswith("file://"):
        hint = "give a path on a disk that this machine and the executors mount, and copy the folder when the job is done"
        raise LocalProtocolError(f"{what} cannot be at a URL, but {location} is one", hint=hint)


def check_export_place(out: str) -> None:
    """Look whether a run may be added to a folder: one that does not exist yet, an empty one, or an export.

    Raises:
        LocalProtocolError: It is a URL, or another job's folder, or holds something else.
    """
    check_local(out, "an export")
    folder = local_path(out)
    if folder.exists() and not folder.is_dir():
        raise LocalProtocolError(f"{out} is a file", hint="an export is a folder")
    is_foreign = folder.is_dir() and ((folder / "report.json").exists() or (folder / "checkpoint").exists())
    if is_foreign:
        raise LocalProtocolError(f"{out} holds the results of another job", hint="give a folder of its own, or that of an earlier export")


def check_new(out: str) -> None:
    """Look that nothing is at a place for results, as far as this process can see it.

    Raises:
        LocalProtocolError: There is something.
    """
    if not is_remote(out) and local_path(out).exists():
        raise LocalProtocolError(f"{out} exists", hint=NEW_FOLDER)


def check_readable(location: str) -> None:
    """Refuse a URL of what only a local or mounted disk can hold for reading: logs and files of entries.

    Raises:
        LocalProtocolError: The URL ends as those do.
    """
    if is_remote(location) and location.lower().endswith(_FILES):
        hint = "copy it to a disk that this machine and the executors mount; Parquet tables are read from URLs"
        raise LocalProtocolError(f"a log or a file of entries is read from a path, but {location} is a URL", hint=hint)


def exists(spark: SparkSession, location: str) -> bool:
    """Ask Spark whether there is a file or folder at a path or URL; the only way that works on every file system and over Connect.

    Args:
        spark: The session.
        location: May have wildcards: then whether anything matches.
    """
    from pyspark.errors import AnalysisException

    try:
        # Spark looks whether the path is there, and reads nothing: the schema of a text is known.
        _ = spark.read.text(location).schema
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return False
        raise
    return True
