"""`gossiplog spark`: the jobs over entries, traces and sweeps."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click

from ...entry import VALUE_BYTES_LIMIT
from ...errors import LocalProtocolError
from ..exits import ExitCode
from ..options import DURABILITIES, PLACE, PathType, output_options, takes
from ..output import Output, counted
from .session import SparkOptions, check_places, job_options, out_option, runs_job, source_options


@click.command()
@click.argument("location", metavar="WHERE", type=PLACE)
@out_option
@click.option("--topic", metavar="T", help="The topic that entries must have; otherwise each one's own.")
@click.option(
    "--max-entry-bytes",
    "value_bytes_max",
    type=click.IntRange(1, VALUE_BYTES_LIMIT),
    default=VALUE_BYTES_LIMIT,
    metavar="N",
    help="The largest entry, in bytes; by default the limit of all logs.",
)
@click.option("--known", metavar="WHERE", type=PLACE, help="Another place whose entries count as present, for a part of a log.")
@source_options
@runs_job
def verify(**given: Any) -> dict[str, Any]:
    """Verify every entry, and that its parents are there.

    Gives a verdict and a reason for each row; failing rows go to the table `quarantine` with their raw bytes. The exit code is 3 if any
    row fails.

    \b
    Examples
      gossiplog spark verify app.db -o checked
      gossiplog spark verify 'backups/*.jsonl' -o checked --known app.db
    """
    return given


@click.command()
@click.argument("location", metavar="WHERE", type=PLACE)
@job_options
def tree(**given: Any) -> dict[str, Any]:
    """Rebuild the tree, and compare its root with the log's.

    \b
    Examples
      gossiplog spark tree app.db
      gossiplog spark tree exported -o nodes
    """
    return given


@click.command()
@click.argument("a", metavar="A", type=PLACE)
@click.argument("b", metavar="B", type=PLACE)
@job_options
def diff(**given: Any) -> dict[str, Any]:
    """List entries that one of two places has and the other lacks.

    \b
    Examples
      gossiplog spark diff app.db other.db
      gossiplog spark diff app.db exported -o differences
    """
    return given


_FIGURES = ("p50_s", "p99_s", "max_s", "last_hop", "rmr", "missed", "control_per_delivery", "payload_bytes", "control_bytes")
_AXIS = f"One axis of the Pareto plot, on which less is better: {', '.join(_FIGURES)}."


@click.command()
@click.argument("location", metavar="WHERE", type=PLACE)
@click.argument("where", metavar="OUT", type=PLACE)
@click.option("--columns", metavar="NAMES", help="Only these columns, separated by commas; `value` alone is enough to import again.")
@click.option(
    "--clocks", "clocks_a_folder", type=click.IntRange(1), metavar="N", help="How many clocks a folder spans; by default 1,000,000."
)
@click.option("--schema", metavar="FIELDS", help="Add a column `fields` of these fields of payloads; `infer` finds them in a sample.")
@source_options
@runs_job
def export(columns: str | None, **given: Any) -> dict[str, Any]:
    """Write entries as Parquet tables; run it again to add new ones.

    OUT is a folder, or the URL of one (s3a://bucket/exported, hdfs://…). OUT/entries has a folder for each run, and below it one
    for each topic and range of clocks; OUT/places says which runs are finished. WHERE may be an export itself: the new one then
    has the same entries in few files, and goes on where the old one ended.

    \b
    Examples
      gossiplog spark export app.db exported
      gossiplog spark export app.db exported --columns key,value,payload
      gossiplog spark export app.db typed --schema 'sensor string, celsius double'
      gossiplog spark export exported compacted
    """
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    with contextlib.suppress(ModuleNotFoundError):
        from ...spark.tables.columns import schema_of

        schema_of(names or ())
    return {**given, "columns": names}


@click.command("import")
@click.argument("location", metavar="WHERE", type=PLACE)
@click.argument("log", metavar="LOG", type=PLACE)
@out_option
@click.option("--topic", metavar="T", help="Create the log if there is none, with this topic.")
@click.option("--durability", type=click.Choice(DURABILITIES), default="normal", show_default=True, help="What an entry survives.")
@source_options
@runs_job
def import_(**given: Any) -> dict[str, Any]:
    """Insert entries into a log, verified and parents first.

    Tasks sort the entries; one process inserts them, because a log has one writer. Entries that cannot be inserted are listed, and the
    exit code is then 3.

    \b
    Examples
      gossiplog spark import exported copy.db --topic app.example.com
      gossiplog spark import 'backups/*.jsonl' app.db -o imported
    """
    return given


@click.command()
@click.argument("location", metavar="WHERE", type=PLACE)
@click.option("--by", "key", metavar="KEY", required=True, help="A path into the payload, $.key; or an SQL expression over the columns.")
@click.option(
    "--head", "heads", metavar="ID", multiple=True, help="As of this entry and its ancestors; repeatable. By default as of all entries."
)
@job_options
def state(key: str, heads: tuple[str, ...], **given: Any) -> dict[str, Any]:
    """Find the last writer of every key of the payloads.

    \b
    Examples
      gossiplog spark state app.db --by $.key -o state
      gossiplog spark state app.db --by "$.list" -o state --head 0g5k
    """
    with contextlib.suppress(ModuleNotFoundError):
        from ...spark.jobs.jobs import check_key

        check_key(key)
    return {**given, "key": key, "heads": list(heads) or None}


@click.command()
@click.argument("location", metavar="WHERE", type=PLACE)
@job_options
def stats(**given: Any) -> dict[str, Any]:
    """Sum up authors' activity and the history's shape.

    Shows activity by author, heads and width over clock, branching, forks, authors who fork their own history, and orphans.

    \b
    Examples
      gossiplog spark stats app.db
      gossiplog spark stats 'backups/*.jsonl' -o shape
    """
    return given


@click.command()
@click.argument("log", metavar="LOG", type=PLACE)
@click.argument("follow_to", metavar="OUT", type=PLACE)
@click.option("--once", is_flag=True, help="Copy the present entries, and exit.")
@click.option("--every", metavar="TIME", default="5 seconds", help="How often to look for new entries.")
@click.option("--rows", "rows_max", type=click.IntRange(1), metavar="N", help="The most entries in a batch.")
@takes(spark=SparkOptions)
@output_options()
def follow(log: str, follow_to: str, once: bool, every: str, rows_max: int | None, spark: SparkOptions, out: Output) -> int:
    """Copy a log to Parquet, and keep copying new entries.

    Started again, it resumes: each entry is in OUT/entries once. A batch that Ctrl-C interrupts is repeated.

    \b
    Examples
      gossiplog spark follow app.db live
      gossiplog spark follow app.db live --once --rows 100000
    """
    from ...spark.jobs.follow import follow as start_following
    from .session import opened_session

    check_places({"log": log, "follow_to": follow_to}, is_remote=spark.remote is not None)
    total = 0
    seen = -1
    with opened_session(spark) as session:
        query = start_following(session, log, follow_to, every=None if once else every, rows_max=rows_max)
        try:
            while True:
                is_over = query.awaitTermination(1)
                progress = [each for each in query.recentProgress if each["batchId"] > seen]
                for each in progress:
                    seen = each["batchId"]
                    # Over Spark Connect a batch without entries has no number.
                    count = each["numInputRows"] or 0
                    total += count
                    if count:
                        out.note(f"batch {seen}: {counted(count, 'entry', 'entries')}, {total:,} in all")
                if is_over:
                    break
        finally:
            query.stop()
        error = query.exception()
        if error is not None:
            raise LocalProtocolError(f"the stream failed: {error}")
    record = {"job": "follow", "log": log, "out": follow_to, "entries": total}
    out.tell(record, f"{counted(total, 'entry', 'entries')} copied to {follow_to}/entries")
    return ExitCode.DONE


@click.command()
@click.argument("location", metavar="TRACES")
@out_option
@runs_job
def traces(**given: Any) -> dict[str, Any]:
    """Sum up traces: latency, redundancy and reach.

    TRACES is what `gossiplog sim run --trace` or `gossiplog serve --facts` wrote: .jsonl or .parquet, a file, a folder, a pattern,
    or a URL of one.

    \b
    Examples
      gossiplog spark traces 'runs/*.parquet' -o summed
    """
    return given


@click.command()
@click.argument("grid", metavar="GRID", type=PathType(exists=True, dir_okay=False))
@out_option
@click.option("--x", type=click.Choice(_FIGURES), metavar="FIGURE", default="p99_s", help=_AXIS)
@click.option("--y", type=click.Choice(_FIGURES), metavar="FIGURE", default="rmr", help="The other axis.")
@click.option("--tasks", type=click.IntRange(1, 10_000), metavar="N", help="How many tasks; by default one for each run.")
@runs_job
def sweep(grid: str, **given: Any) -> dict[str, Any]:
    """Run a grid of simulations, each in its own task.

    GRID is a TOML file as for `gossiplog sim sweep`.

    \b
    Examples
      gossiplog spark sweep grid.toml -o swept
      gossiplog spark sweep grid.toml -o swept --x control_bytes --y p99_s
    """
    from ...sim.routing.sweep import load_sweep

    # Only checked here, before Spark starts.
    load_sweep(Path(grid))
    return {**given, "grid": grid}
