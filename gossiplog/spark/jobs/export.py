"""Entries as Parquet tables that grow: each export adds what has arrived since the last one, in a folder of its own that appears whole.

    OUT/entries/run=000000000001-000001000000/of_topic=app.example.com/clocks=0/part-….parquet
    OUT/quarantine/run=000000000001-000001000000/part-….parquet

A run is named by the insertion numbers of its first and last entry, and holds beside its entries the place in the log that it ended at,
`_place.json`, so what is there says where the next one begins, and whether the log is still the one that was exported. The columns that the
folders repeat, `of_topic` and `clocks`, let readers pass over files; entries of any topic and clock are found by `topic` and `clock`.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from ...errors import DecodeError, LocalProtocolError
from ...log.place import LogPlace
from ..source.columns import schema_of
from ..source.locations import check_local, is_remote, local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["CLOCKS_A_FOLDER", "EXPORT_COLUMNS", "add_run", "last_place", "write_log"]

EXPORT_COLUMNS = (
    "key", "clock", "topic", "author", "parent_keys", "payload", "value", "seq", "branch", "place", "fault", "source",
)  # fmt: skip
"""What an export keeps unless told otherwise; `value` is the entry, the rest is there to query."""
CLOCKS_A_FOLDER = 1_000_000
_PLACE = "_place.json"
_FOLDERS = ("kind", "of_topic", "clocks")


def last_place(out: str) -> LogPlace:
    """Return the place in the log up to which an export on a local disk holds it; number 0 if there is none.

    Raises:
        DecodeError: The file that says so is damaged.
    """
    runs = [folder for folder in (local_path(out) / "entries").glob("run=*-*") if folder.is_dir()]
    ends = {folder: int(end) for folder in runs if (end := folder.name.rpartition("-")[2]).isdigit()}
    last = max(ends, key=ends.__getitem__, default=None)
    if last is None:
        return LogPlace(0)
    if not (last / _PLACE).exists():
        return LogPlace(ends[last])
    try:
        return LogPlace.from_json(json.loads((last / _PLACE).read_bytes()))
    except (ValueError, AttributeError, DecodeError) as error:
        raise DecodeError(f"{last / _PLACE} is damaged: {error}") from error


def add_run(entries: DataFrame, out: str, *, clocks_a_folder: int = CLOCKS_A_FOLDER, place: LogPlace | None = None) -> dict[str, Any]:
    """Write entries as the next run of an export.

    A row that holds no entry goes to the quarantine. The run is written under a name that readers pass over, and gets its own when it is
    whole; one that was killed leaves nothing but such a folder, which the next run removes.

    Args:
        entries: Rows with `topic`, `clock`, `seq` and `fault` at least.
        out: The folder of the export, on a disk that all tasks and this process share.
        clocks_a_folder: How many clocks a folder spans.
        place: Where in a log the entries end; None for files, and where it is not known.

    Returns:
        `run` (None if there was nothing new), `entries`, `failed`, `first_seq` and `last_seq`.

    Raises:
        LocalProtocolError: The run is there already; files of entries, which have no insertion numbers, can be exported once.
    """
    folder = local_path(out)
    for leftover in folder.glob("_draft-*"):
        shutil.rmtree(leftover)
    draft = folder / f"_draft-{uuid.uuid4().hex[:8]}"
    clocks = F.floor(F.coalesce("clock", F.lit(0)) / clocks_a_folder) * clocks_a_folder
    kind = F.when(F.col("fault").isNull(), "entries").otherwise("quarantine")
    laid_out = entries.select("*", kind.alias("kind"), F.coalesce("topic", F.lit("none")).alias("of_topic"), clocks.alias("clocks"))
    try:
        # Within a file the entries are in the order of keys, so that a tree over them needs no sort.
        order = [*_FOLDERS, *(["key"] if "key" in entries.columns else [])]
        laid_out.sortWithinPartitions(*order).write.partitionBy(*_FOLDERS).parquet(str(draft))
        if not draft.is_dir():
            raise LocalProtocolError(
                f"the results are not on this machine's disk at {draft}", hint="export to a folder that the Spark server shares"
            )
        written = entries.sparkSession.read.schema(schema_of(entries.columns).add("kind", "string")).parquet(str(draft))
        found = (
            written.agg(
                F.count_if(F.expr("kind = 'entries'")).alias("entries"),
                F.count_if(F.expr("kind = 'quarantine'")).alias("failed"),
                F.min("seq").alias("first_seq"),
                F.max("seq").alias("last_seq"),
            )
            .collect()[0]
            .asDict()
        )
        if found["entries"] + found["failed"] == 0:
            return {"run": None, **found}
        run = f"run={found['first_seq'] or 0:012d}-{found['last_seq'] or 0:012d}"
        if place is not None and (draft / "kind=entries").is_dir():
            (draft / "kind=entries" / _PLACE).write_text(json.dumps(place.to_json()), "utf-8")
        # The quarantine first: once the entries are there, the run is over.
        for name in ("quarantine", "entries"):
            if (draft / f"kind={name}").is_dir():
                _publish(draft / f"kind={name}", folder / name / run)
        return {"run": run, **found}
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(draft)


def _publish(draft: Path, place: Path) -> None:
    if place.exists():
        raise LocalProtocolError(f"{place} exists", hint="files of entries can be exported once; give another folder")
    place.parent.mkdir(parents=True, exist_ok=True)
    draft.replace(place)


def write_log(entries: DataFrame, log: str, **options: str) -> None:
    """Insert entries into a log, each verified as if a stranger had sent it; see `LogWriter` for the options.

    Args:
        entries: Rows with `value`, and `place` and `fault` if there are any.
        log: A path or URL.
        **options: Of the data source.
    """
    if is_remote(log):
        check_local(log, "a log in a file")
    if "://" not in log:
        log = str(Path(log).absolute())
    columns = [name for name in ("value", "place", "fault") if name in entries.columns]
    entries.select(*columns).write.format("gossiplog").mode("append").options(**options).option("path", log).save()
