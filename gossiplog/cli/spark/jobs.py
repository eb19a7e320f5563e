"""`gossiplog spark verify`, `tree`, `diff` and the other jobs over entries."""

from __future__ import annotations

import click

from ...entry import VALUE_BYTES_LIMIT
from ..options import output_options
from .session import RunJob, job_options, out_option, runs_job, source_options, spark_options

__all__ = ["diff", "tree", "verify"]


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
    help="How large an entry may be; the limit of all logs unless given.",
)
@click.option("--known", metavar="WHERE", help="Another place whose entries count as present, for a part of a log.")
@source_options
@spark_options
@output_options()
@runs_job
def verify(location: str, topic: str | None, value_bytes_max: int, known: str | None, run_job: RunJob) -> int:
    """Verify every entry, parents included.

    Gives a verdict and a reason for each row; failing rows land in the table `quarantine` with their raw bytes. The exit code is 3 if any
    row fails.

    \b
    Examples
      gossiplog spark verify app.db -o checked
      gossiplog spark verify 'backups/*.jsonl' -o checked --known app.db
    """
    return run_job(lambda jobs, job: jobs.verify_job(job, location, topic=topic, value_bytes_max=value_bytes_max, known=known))


@click.command()
@click.argument("location", metavar="WHERE")
@job_options
def tree(location: str, run_job: RunJob) -> int:
    """Build the tree anew; its root must be the log's own.

    \b
    Examples
      gossiplog spark tree app.db
      gossiplog spark tree exported -o nodes
    """
    return run_job(lambda jobs, job: jobs.tree_job(job, location))


@click.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@job_options
def diff(a: str, b: str, run_job: RunJob) -> int:
    """List entries that one of two places has and the other lacks.

    \b
    Examples
      gossiplog spark diff app.db other.db
      gossiplog spark diff app.db exported -o differences
    """
    return run_job(lambda jobs, job: jobs.diff_job(job, a, b))
