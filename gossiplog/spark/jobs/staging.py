"""Results on the way: kept between two steps of a job, sent to all tasks where they are few, and published when they are whole."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import socket
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as F

from ...errors import LocalProtocolError
from ..source.locations import check_new, is_remote, local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["materialise", "published", "small"]

_BROADCAST_ROWS = 200_000
"""This many rows of a key and a count are about 20 MB, which every executor can hold."""


def materialise(table: DataFrame, staging: str | None, name: str) -> DataFrame:
    """Compute a table now, so that several steps can read it: in a Parquet folder below `staging`, or else on the executors' disks.

    Below a URL nothing is staged, as this process could not remove it there.

    What lies on the executors is lost with them, and removed when nothing refers to it any more.
    """
    if staging is None or is_remote(staging):
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


@contextlib.contextmanager
def published(out: str) -> Iterator[str]:
    """Give a folder to write to, and publish it as `out` when the body ends: all of it at once, or nothing of it.

    A job that is killed leaves a folder with `.partial-…` in its name, which nobody takes for a result, and which the next job with the
    same `out` on the same machine removes. Where `out` is a URL of another file system, nothing can be renamed: every table is then
    published by Spark's own committer, and the report is written last.

    Raises:
        LocalProtocolError: There is something at `out` already; or the server that wrote the tables has another disk than this process.
    """
    if is_remote(out):
        yield out
        return
    place = local_path(out)
    check_new(out)
    place.parent.mkdir(parents=True, exist_ok=True)
    for leftover in place.parent.glob(f"{glob.escape(place.name)}.partial-*"):
        if _is_orphan(leftover.name):
            shutil.rmtree(leftover, ignore_errors=True)
    draft = place.with_name(f"{place.name}.partial-{uuid.uuid4().hex[:8]}-{os.getpid()}@{socket.gethostname()}")
    try:
        yield str(draft)
        if not draft.is_dir():
            raise LocalProtocolError(
                f"the results are not on this machine's disk at {draft}", hint="give a URL that the Spark server and this machine share"
            )
        for folder in draft.glob("staging-*"):
            shutil.rmtree(folder)
        draft.replace(place)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _is_orphan(name: str) -> bool:
    """Say whether a draft is of a process of this machine that is gone."""
    pid, _, host = name.rpartition(".partial-")[2].partition("-")[2].partition("@")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False
