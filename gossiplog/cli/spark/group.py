"""`gossiplog spark`: parsing and printing for the data pipeline."""

from __future__ import annotations

import click

from ..exits import ExitCode
from ..options import output_options
from ..output import Column, Listing, Output
from .jobs import diff, export, follow, import_, state, stats, sweep, traces, tree, verify


@click.group()
def spark() -> None:
    """Run jobs over logs that are too large for one process.

    A job reads a log, files of `gossiplog export`, or the tables of `gossiplog spark export`. It runs on this machine's cores, on a cluster
    (--master), or through Spark Connect (--remote), and writes Parquet tables and a report to a new folder. Needs the extra: pip install
    'gossiplog[spark]'.

    \b
    Examples
      gossiplog spark doctor
      gossiplog spark verify app.db -o checked
    """


for command in (verify, export, import_, tree, diff, state, stats, follow, traces, sweep):
    spark.add_command(command)


@spark.command()
@click.option("--env", "as_env", is_flag=True, help="Print what spark-submit needs in its environment, for a shell's eval.")
@click.option("--start", is_flag=True, help="Also start a session and run a job in it, which takes about 10 seconds.")
@output_options()
def doctor(as_env: bool, start: bool, out: Output) -> int:
    """Check whether Spark can run here, and what is missing.

    \b
    Examples
      gossiplog spark doctor --start
      eval "$(gossiplog spark doctor --env)"
      spark-submit --master spark://host:7077 "$GOSSIPLOG_SPARK" verify app.db
    """
    import shlex
    from pathlib import Path

    from ...spark.doctor import environment, examine

    if as_env:
        variables = environment() | {"GOSSIPLOG_SPARK": str(Path(__file__).parent / "submit" / "spark_submit.py")}
        for name, value in variables.items():
            out.line(f"export {name}={shlex.quote(value)}")
        return ExitCode.DONE
    checks = examine()
    columns = (Column("what"), Column("found"))
    with Listing(out, columns) as listing:
        for check in checks:
            record = {"name": check.name, "found": check.found, "ok": check.is_good, "needed": check.is_needed, "hint": check.hint}
            listing.add(record, (check.name, check.found))
    bad = [check for check in checks if not check.is_good]
    for check in bad:
        out.note(f"{check.name}: {check.hint or check.found}")
    if any(check.is_needed for check in bad):
        return ExitCode.FAILED
    if start:
        from .session import SparkOptions, opened_session

        with opened_session(SparkOptions(master="local[1]", remote=None, memory=None, settings=())) as session:
            count = session.range(1000).selectExpr("sum(id)").collect()[0][0]
        assert count == 499_500, count
        out.note("a session starts, and works")
    return ExitCode.DONE
