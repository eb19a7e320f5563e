"""Entries as Parquet tables that grow: each export adds the entries that arrived since the last one, in a folder of its own.

    OUT/entries/run=000000000001/of_topic=app.example.com/clocks=0/part-….parquet
    OUT/quarantine/run=000000000001/part-….parquet
    OUT/places/run=000000000001/place.txt (at a URL part-….txt)

A run is named by the first insertion number that it may hold. It is finished once its place is written: the place in the log where it
ended. From the places an export knows where the next run begins, and whether the log is still the one that was exported. On a disk a run
is renamed into place as a whole. At a URL, where nothing can be renamed, Spark's own committer writes it, and readers read finished runs
only. The next export begins at the same number as a run that was killed, and overwrites its files.

The columns of the folders, `of_topic` and `clocks`, let readers skip files. Query entries by `topic` and `clock`.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ...arrow.export import EXPORT_COLUMNS
from ...errors import LocalProtocolError
from ...log.place import LogPlace
from ..source.locations import check_export_place, exists, is_remote, local_path
from ..source.reading import finished_runs, read_entries, read_table
from ..tables.columns import infer_fields
from ..tables.staging import observed
from .results import draft_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLOCKS_A_FOLDER = 1_000_000
_COUNTED = {"entries": "count_if(fault is null)", "failed": "count(fault)", "first_seq": "min(seq)", "last_seq": "max(seq)"}


def last_place(spark: SparkSession, out: str) -> Any:
    """Return the place in the log or bucket where an export ends; number 0 if there is none.

    Raises:
        DecodeError: A record of a place is damaged.
    """
    return max(finished_runs(spark, out).values(), key=lambda place: place.seq, default=LogPlace(0))


def all_rows(spark: SparkSession, export: str, columns: Sequence[str]) -> DataFrame:
    """Return the rows of an export and of its quarantine, in the order of keys, in as few parts as Spark chooses."""
    rows = read_entries(spark, export, columns)
    if exists(spark, f"{export}/quarantine"):
        rows = rows.unionByName(read_entries(spark, f"{export}/quarantine", columns))
    return rows.repartitionByRange("topic", "key")


def fields_of(spark: SparkSession, table: str | None, schema: str | None, sample: Callable[[], DataFrame]) -> StructType | None:
    """Return the fields of payloads that an export has; see `with_fields`.

    Args:
        table: The export so far, or the one that it copies, whose fields it keeps; None if there is neither.
        schema: The fields asked for; `infer` for those of a sample.
        sample: Reads the payloads to infer them from.

    Raises:
        LocalProtocolError: The schema is invalid, or the table has other fields.
    """
    wanted = None if schema is None or schema == "infer" else StructType.fromDDL(schema)
    if wanted is not None and not isinstance(wanted, StructType):
        raise LocalProtocolError(f"schema {schema!r} names no fields", hint="write it like 'celsius double, sensor string'")
    if table is None:
        return infer_fields(sample()) if schema == "infer" else wanted
    found = {field.name: field.dataType for field in read_table(spark, table).schema.fields}.get("fields")
    kept = found if isinstance(found, StructType) else None
    if schema is not None and (kept is None or wanted not in (None, kept)):
        shown = "no fields" if kept is None else f"the fields {kept.simpleString()}"
        raise LocalProtocolError(f"{table} has {shown} of payloads", hint="export the log itself to a new folder, with this schema")
    return kept


def add_run(
    entries: DataFrame,
    out: str,
    *,
    columns: Sequence[str] = EXPORT_COLUMNS,
    clocks_a_folder: int = CLOCKS_A_FOLDER,
    since: int = 0,
    place: Any = None,
) -> dict[str, Any]:
    """Write entries as the next run of an export. A row that holds no entry goes to the quarantine.

    Args:
        entries: Rows with `topic`, `clock`, `seq` and `fault`, with `key` if the entries are to lie in its order, and with `columns`.
        out: The folder of the export: a URL, or a path on a disk that all tasks and this process share.
        columns: Those of the table of entries.
        clocks_a_folder: How many clocks a folder spans.
        since: The insertion number where the export ends so far.
        place: Where in a log or a bucket the entries end; None for files, and if unknown.

    Returns:
        `run` (None if there was nothing new), `entries`, `failed`, `first_seq` and `last_seq`.

    Raises:
        LocalProtocolError: The run is there already; files of entries, which have no insertion numbers, can be exported once.
    """
    spark, run = entries.sparkSession, f"run={since + 1:012d}"
    check_export_place(out, spark)
    out = out.rstrip("/") if is_remote(out) else str(local_path(out))
    if run in finished_runs(spark, out):
        raise LocalProtocolError(f"{run} of {out} exists", hint="files of entries can be exported once; give another folder")
    folder = Path(out)
    draft = draft_in(folder, "_draft")
    places = {name: f"{out}/{name}/{run}" if is_remote(out) else str(draft / name) for name in ("quarantine", "entries")}
    try:
        found = _write(entries, places, columns, clocks_a_folder)
        if found["entries"] + found["failed"] == 0:
            return {"run": None, **found}
        if not is_remote(out):
            # The quarantine first: the run is complete once the entries are there.
            for name in places:
                _publish(draft / name, folder / name / run)
        record = json.dumps({"run": run, **(place or LogPlace(since)).to_json()})
        _note(spark, record, f"{out}/places/{run}")
        return {"run": run, **found}
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(draft)


def _write(entries: DataFrame, places: Mapping[str, str], columns: Sequence[str], clocks_a_folder: int) -> dict[str, Any]:
    """Write the two tables of a run, and count their rows."""
    seen, counted = Observation(), [F.expr(figure).alias(name) for name, figure in _COUNTED.items()]
    clocks = F.floor(F.coalesce("clock", F.lit(0)) / clocks_a_folder) * clocks_a_folder
    good = entries.observe(seen, *counted).where("fault is null")
    laid_out = good.withColumns({"of_topic": F.coalesce("topic", F.lit("none")), "clocks": clocks})
    # Files have the order of keys, so that building a tree needs no sort.
    laid_out = laid_out.sortWithinPartitions("of_topic", "clocks", *(["key"] if "key" in entries.columns else []))
    laid_out = laid_out.select(*dict.fromkeys([*columns, "topic", "clock", "seq", "of_topic", "clocks"]))
    laid_out.write.mode("overwrite").partitionBy("of_topic", "clocks").parquet(places["entries"])
    if not is_remote(places["entries"]) and not Path(places["entries"]).is_dir():
        hint = "export to a folder that the Spark server shares, or to a URL"
        raise LocalProtocolError(f"the results are not on this machine's disk at {places['entries']}", hint=hint)
    found = observed(seen) or entries.agg(*counted).collect()[0].asDict()
    if found["failed"]:
        entries.where("fault is not null").coalesce(8).write.mode("overwrite").parquet(places["quarantine"])
    return found


def _note(spark: SparkSession, record: str, place: str) -> None:
    if is_remote(place):
        spark.createDataFrame([(record,)], "value string").coalesce(1).write.mode("overwrite").text(place)
        return
    Path(place).mkdir(parents=True, exist_ok=True)
    draft = Path(place) / "_draft"
    draft.write_text(record, "utf-8")
    draft.replace(Path(place) / "place.txt")


def _publish(draft: Path, place: Path) -> None:
    if place.exists():
        # A run that was not finished.
        shutil.rmtree(place)
    if draft.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        draft.replace(place)


def write_log(entries: DataFrame, log: str, **options: str) -> None:
    """Insert entries into a log, each verified like one from a stranger.

    Args:
        entries: Rows with `value`, and optionally `place` and `fault`.
        log: A path or URL.
        **options: See `LogWriter`.
    """
    if "://" not in log:
        log = str(Path(log).absolute())
    columns = [name for name in ("value", "place", "fault") if name in entries.columns]
    entries.select(*columns).write.format("gossiplog").mode("append").options(**options).option("path", log).save()
