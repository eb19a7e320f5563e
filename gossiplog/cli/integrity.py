"""`fsck` and `replay`: check what is stored against what it should be, and build again what follows from it."""

from __future__ import annotations

import click

from .exits import ExitCode
from .options import log_argument, output_options
from .output import Output, clean
from .progress import Progress
from .session import load_apply, opened, run

__all__ = ["fsck", "replay"]


@click.command()
@log_argument
@click.option("--repair", is_flag=True, help="Build the tree, the heads and the graph's index again from the entries.")
@output_options()
def fsck(log: str, repair: bool, out: Output) -> int:
    """Check a log's file, and repair what can be.

    Compares the tree with one built anew, its leaves with the entries, the heads with the graph, and finds foreign rows.

    With --repair, everything that follows from the entries is built again; an entry whose own bytes are damaged can only be fetched
    from another replica, with `gossiplog sync`. The exit code is 3 if anything is wrong in the end.

    \b
    Examples
      gossiplog fsck app.db
      gossiplog fsck app.db --repair
    """

    async def task() -> int:
        async with opened(log, read_only=not repair) as opened_log:
            with Progress("checking", await opened_log.count(), is_shown=not out.is_strict) as progress:
                report = await opened_log.fsck(repair=repair, progress=progress.at)
        return 0

    return run(task)


@click.command()
@log_argument
@click.option(
    "--apply",
    "apply_name",
    metavar="MODULE:FUNCTION",
    help="The application's apply function, imported from the current folder or the path.",
)
@output_options()
def replay(log: str, apply_name: str | None, out: Output) -> None:
    """Run the application over every entry again.

    Its apply function gets all entries in causal order, to build its tables anew.

    Without --apply the entries are read and counted, no more. The function is imported and run: name only code that you trust.

    \b
    Example
      gossiplog replay app.db --apply myapp.state:apply
    """
    apply = load_apply(apply_name) if apply_name else None

    async def task() -> int:
        async with opened(log, read_only=apply is None, apply=apply) as opened_log:
            if apply is not None:
                return await opened_log.replay()
            count = 0
            async for _ in opened_log.iterate():
                count += 1
            return count

    count = run(task)
    if out.is_json:
        out.record({"count": count, "apply": apply_name and clean(apply_name)})
    else:
        out.line(f"{count:,} entries replayed")
