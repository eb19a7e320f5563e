"""`gossiplog spark verify`, `tree`, `diff` and the other jobs over entries."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import click

from ..log import VALUE_BYTES_LIMIT
from .options import output_options
from .output import Output
from .spark_session import print_report, source_options, spark_options

__all__ = ["diff", "out_option", "tree", "verify"]

Start = Callable[[], AbstractContextManager[Any]]

out_option = click.option(
    "-o", "--output", "where", metavar="OUT", help="A new folder for the tables and the report; none, only the report."
)


@click.command()
@click.argument("location", metavar="WHERE")
@out_option
@click.option("--topic", metavar="T", help="The topic that entries must have; otherwise each one's own.")
@click.option(
    "--max-entry-bytes",
    "value_bytes_max",
    type=click.IntRange(1, VALUE_BYTES_LIMIT),
    default=VALUE_BYTES_LIMIT,
    metavar="N",
    help="What an entry may have; 1 MiB unless given.",
)
@click.option("--known", metavar="WHERE", help="Another place whose entries count as present, for a part of a log.")
@source_options
@spark_options
@output_options()
def verify(
    location: str,
    where: str | None,
    topic: str | None,
    value_bytes_max: int,
    known: str | None,
    options: dict[str, str],
    start: Start,
    out: Output,
) -> int:
    """Verify every entry, parents included.

    A verdict and a reason for each row; what fails lands in the table `quarantine` with what stands in its place. The exit code is
    3 if anything does.

    \b
    Examples
      gossiplog spark verify app.db -o checked
      gossiplog spark verify 'backups/*.jsonl' -o checked --known app.db
    """
    from ..spark import jobs

    with start() as spark:
        job = jobs.Job(spark, where, options, out.note)
        return print_report(jobs.verify_job(job, location, topic=topic, value_bytes_max=value_bytes_max, known=known), where, out)


@click.command()
@click.argument("location", metavar="WHERE")
@out_option
@source_options
@spark_options
@output_options()
def tree(location: str, where: str | None, options: dict[str, str], start: Start, out: Output) -> int:
    """Build the tree anew; its root must be the log's own.

    \b
    Examples
      gossiplog spark tree app.db
      gossiplog spark tree exported -o nodes
    """
    from ..spark import jobs

    with start() as spark:
        return print_report(jobs.tree_job(jobs.Job(spark, where, options, out.note), location), where, out)


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@out_option
@source_options
@spark_options
@output_options()
def diff(a: str, b: str, where: str | None, options: dict[str, str], start: Start, out: Output) -> int:
    """Say what each of two places has that the other lacks.

    \b
    Examples
      gossiplog spark diff app.db other.db
      gossiplog spark diff app.db exported -o differences
    """
    from ..spark import jobs

    with start() as spark:
        return print_report(jobs.diff_job(jobs.Job(spark, where, options, out.note), a, b), where, out)
