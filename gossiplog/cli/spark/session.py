"""A Spark session for one command, with the options that all jobs share."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...errors import GossipLogError, LogNotFound
from ..exits import ExitCode, Failure
from ..options import PLACE, option, output_options, takes
from ..output import Output, counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ...spark.jobs.results import JobReport


PLAIN = {
    "verify": (300_000, "gossiplog verify {}"),
    "tree": (100_000, "gossiplog fsck {}"),
    "export": (300_000, "gossiplog export {} -o FILE.parquet"),
    "state": (300_000, "gossiplog export {} -o FILE.parquet, and DuckDB or Polars"),
    "stats": (300_000, "gossiplog export {} -o FILE.parquet, and DuckDB or Polars"),
}
"""For some jobs: the largest log with which a command without Spark was measured to be faster, and that command, which does all or most.

Source: docs/spark.md, "Which one to use".
"""

out_option = click.option(
    "-o",
    "--output",
    "where",
    metavar="OUT",
    type=PLACE,
    help="A new folder for the tables and the report; without it the report is only printed.",
)


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """The options of the Spark session."""

    master: str | None = option(
        "--master", metavar="URL", help="local[2], spark://host:7077 and so on; by default all cores of this machine."
    )
    remote: str | None = option("--remote", metavar="URL", help="A Spark Connect server, sc://host:15002, instead of a master.")
    memory: str | None = option(
        "--memory", metavar="SIZE", help="The driver's memory; without a cluster the driver does all the work. By default 2g."
    )
    settings: tuple[str, ...] = option("--conf", metavar="KEY=VALUE", multiple=True, help="A setting of Spark; repeatable.")


@contextlib.contextmanager
def opened_session(options: SparkOptions) -> Iterator[SparkSession]:
    """Start a session, or connect to one, and stop it at the end; a session that this process already has is used and kept.

    Raises:
        Failure: PySpark is not installed, or a setting is not of the form KEY=VALUE.
        GossipLogError: Spark did not start, or a job failed; see `translated`.
    """
    config = _pairs(options.settings, "--conf")
    if sys.stderr.isatty():
        config.setdefault("spark.ui.showConsoleProgress", "true")
    if not os.environ.get("GOSSIPLOG_DEBUG"):
        # A failure is reported once, in a line of ours, without the JVM's traces and lines of JSON before it.
        config.setdefault("spark.log.level", "OFF")
    try:
        from ...spark.launch import is_active, session
    except ModuleNotFoundError as error:
        hint = "pip install 'gossiplog[spark]'; `gossiplog spark doctor` says what is missing"
        raise Failure(f"Spark is not installed: {error}", hint=hint, kind="dependency") from error
    from ...spark.faults import silence, translated

    if not os.environ.get("GOSSIPLOG_DEBUG"):
        silence()

    is_ours = not is_active()
    with translated():
        spark = session(options.master, remote=options.remote, memory=options.memory, config=config)
        try:
            yield spark
        finally:
            if is_ours:
                spark.stop()


def check_places(options: Mapping[str, Any], *, is_remote: bool) -> None:
    """Check the places that a command names as far as possible before Spark starts, which takes 10 seconds."""
    from ...bucket import is_published
    from ...spark.source import locations

    name = click.get_current_context().command.name
    read = [place for option in ("location", "a", "b", "known") if (place := options.get(option)) is not None]
    log = options.get("log")
    for place in () if is_remote else read:
        if "://" not in place and not any(sign in place for sign in "*?[") and not Path(place).exists():
            hint = "give a log, a .jsonl, .car or .hex file, a folder of those, a pattern, or the tables of an export"
            raise LogNotFound(f"nothing is at {place}", hint=hint)
    for place in () if name == "traces" else read:
        if name == "import" or not is_published(place):
            locations.check_readable(place)
    if log is not None and (name == "import" or not is_published(log)) and locations.is_remote(log):
        locations.check_local(log, "a log in a file")
    if options.get("follow_to") is not None:
        locations.check_table_url(options["follow_to"])
    for place in () if is_remote else [*read, *([] if log is None else [log])]:
        locations.check_bucket(place, (options.get("options") or {}).get("topic"))


def _check_out(job: str | None, where: str | None) -> None:
    """Check the place for the results before Spark is started."""
    from ...spark.source.locations import check_export_place, check_local, check_new

    if where is None:
        return
    if job == "export":
        check_export_place(where)
        return
    if job == "import":
        check_local(where, "the list of what was not inserted")
    check_new(where)


def _note_plain(job: str | None, location: str | None, out: Output) -> None:
    """Tell the user before Spark is started if another command is faster on one machine, because the log is small."""
    from ...spark.source.run_plan import is_log, last_seq

    if job not in PLAIN or location is None or not Path(location).is_file() or not is_log(location):
        return
    try:
        count = last_seq(location)
    except GossipLogError:
        # The job reports what is wrong with the log.
        return
    entries_max, command = PLAIN[job]
    if count <= entries_max:
        command = command.format(shlex.quote(location))
        out.note(f"{counted(count, 'entry needs', 'entries need')} no Spark: on one machine this is faster: {command}")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of the data source."""

    partitions: int | None = option(
        "--partitions", type=click.IntRange(1, 10_000), metavar="N", help="Parts to read in; by default one per 50,000 entries."
    )
    chosen: tuple[str, ...] = option(
        "--option", metavar="KEY=VALUE", multiple=True, help="An option of the data source, such as minClock=7; repeatable. Not for tables."
    )

    def read(self) -> dict[str, str]:
        """Check the options, and return them by their names in the data source."""
        from ...spark.source.scan import LOAD_OPTIONS, check_options

        options = _pairs(self.chosen, "--option")
        check_options(options, LOAD_OPTIONS, "a load")
        return options if self.partitions is None else {**options, "partitions": str(self.partitions)}


source_options = takes(source=SourceOptions)


def job_options(prepare: Callable[..., dict[str, Any]]) -> Callable[..., int]:
    """Add the options of every job over entries: the place for its tables, its data source, and those of `runs_job`."""
    return out_option(source_options(runs_job(prepare)))


def runs_job(prepare: Callable[..., dict[str, Any]]) -> Callable[..., int]:
    """Make a command, with the options of Spark, of a function that checks a job's own options and returns the job's arguments."""

    @takes(spark=SparkOptions)
    @output_options()
    @functools.wraps(prepare)
    def run(where: str | None, spark: SparkOptions, out: Output, source: SourceOptions | None = None, **given: Any) -> int:
        options = None if source is None else source.read()
        name = str(click.get_current_context().command.name)
        check_places({**given, "options": options}, is_remote=spark.remote is not None)
        wanted = prepare(**given)
        _check_out(name, where)
        _note_plain(name, given.get("location"), out)
        with opened_session(spark) as session:
            from ...spark.jobs import jobs

            work = getattr(jobs, f"{name}_job")
            return print_report(work(jobs.Job(session, where, options, out.note), **wanted), where, out)

    return run


def _pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not of the form KEY=VALUE", param_hint=option)
        found[name] = value
    return found


def print_report(report: JobReport, where: str | None, out: Output) -> int:
    """Print a job's report; the exit code is 3 if rows failed."""
    out.tell(report.as_dict() | {"out": where}, report.as_text().rstrip())
    if not out.is_json and where is not None:
        out.note(f"tables and report are in {where}")
    return ExitCode.INTEGRITY if report.results.get("failed") else ExitCode.DONE
