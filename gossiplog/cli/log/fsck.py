"""`fsck` and `replay`: check a log, and rebuild what is derived from its entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...errors import RepairRefused, StoreError
from ..exits import ExitCode
from ..options import Location, log_argument, output_options
from ..output import Column, Listing, Output, clean, counted, record_of
from ..progress import Progress
from ..session import in_trio, load_application, opened

if TYPE_CHECKING:
    from ...gossip_log import GossipLog
    from ...log.fsck import FsckReport

_FINDING_COLUMNS = (Column("kind", style="red"), Column("where", style="yellow"), Column("what is wrong"))
_ASIDE_MAX = 10
"""How many entries a repair may set aside without --yes."""


@click.command()
@log_argument
@click.option("--repair", is_flag=True, help="Rebuild the tree, the heads and the graph's index from the entries.")
@click.option("--dry-run", is_flag=True, help="With --repair: only say how many entries would go to the quarantine.")
@click.option("--yes", is_flag=True, help=f"With --repair: also set aside more than {_ASIDE_MAX} entries.")
@output_options()
@in_trio
async def fsck(log: Location, repair: bool, dry_run: bool, yes: bool, out: Output) -> int:
    """Check a log's file, and repair what can be.

    Compares the tree with a newly built one, its leaves with the entries, and the heads with the graph, and finds foreign rows.

    --repair rebuilds everything derived from the entries. Damaged entries go to the quarantine with all their descendants; if these are
    more than 10, nothing is done without --yes. With another replica at hand, `gossiplog sync --heal LOG OTHER` repairs the log and fetches
    the damaged entries; without one, `gossiplog salvage LOG TARGET` saves what is left in a file that cannot be repaired. The exit code
    is 3 if anything is still wrong at the end.

    \b
    Examples
      gossiplog fsck app.db
      gossiplog fsck app.db --repair --dry-run
      gossiplog fsck app.db --repair
    """
    if (dry_run or yes) and not repair:
        raise click.UsageError("--dry-run and --yes go with --repair")

    # A dry run uses a copy of a file; in a database its transaction is rolled back.
    is_copied = dry_run and not log.is_url
    try:
        async with opened(log, read_only=not repair or is_copied) as opened_log:
            with Progress("checking", await _count(opened_log), is_shown=not out.is_strict) as progress:
                report = await opened_log.fsck(
                    repair=repair,
                    dry_run=dry_run,
                    set_aside_max=None if yes else _ASIDE_MAX,
                    on_progress=progress.at,
                    on_phase=progress.begin,
                )
    except RepairRefused as error:
        error.hint = (
            f"`gossiplog sync --heal {log} OTHER` fetches the damaged entries from another replica and keeps all; "
            "without one, --yes sets them aside, where they wait for their ancestors"
        )
        raise
    before = report.repaired
    if out.is_json:
        out.record({**_record(report), "setAside": report.set_aside, "repaired": _record(before) if before else None})
    else:
        if before is not None:
            _show(before, out)
            aside = f"; {counted(report.set_aside, 'entry', 'entries')} set aside in quarantine" if report.set_aside else ""
            out.line(f"repaired: rebuilt everything derived from {counted(report.valid, 'valid entry', 'valid entries')}{aside}")
        _show(report, out)
        if report.unsupported:
            said = f"{counted(report.unsupported, 'entry', 'entries')} whole, but with unverified signatures: {report.unsupported_reason}"
            out.line(out.style(said, "yellow"))
        if dry_run and not report.is_clean:
            kept = report.entries - report.set_aside
            out.line(f"a repair would keep {counted(kept, 'entry', 'entries')} and set {report.set_aside:,} aside in quarantine")
        summary = f"{counted(report.entries, 'entry', 'entries')}, {counted(report.problems, 'problem', 'problems')}"
        out.line(out.style(f"ok: {summary}", "green") if report.is_clean else out.style(f"DAMAGED: {summary}", "red", bold=True))
        if not report.is_clean:
            _advise(log, report, out, is_repair=repair)
    return ExitCode.DONE if report.is_clean else ExitCode.INTEGRITY


async def _count(log: GossipLog) -> int | None:
    """Count the entries for the progress; None for a log too damaged for that."""
    try:
        return await log.count()
    except StoreError:
        return None


def _advise(log: str, report: FsckReport, out: Output, *, is_repair: bool) -> None:
    from ...log.fsck import FindingKind

    if report.entries_topic is not None:
        topic = clean(report.entries_topic)
        out.note(
            f"the entries have topic {topic}: `gossiplog salvage {log} TARGET` or `gossiplog sync --heal` rebuilds the log with that topic"
        )
    elif any(each.kind in (FindingKind.FILE, FindingKind.UNREADABLE) for each in report.findings):
        out.note(
            f"`gossiplog sync --heal {log} OTHER` makes it whole from another replica, `gossiplog salvage {log} TARGET` saves what is left"
        )
    elif report.valid + report.unsupported < report.entries:
        out.note(f"`gossiplog sync --heal {log} OTHER` fetches damaged entries from another replica; see also --repair --dry-run")
    elif not is_repair:
        out.note(f"`gossiplog fsck {log} --repair` rebuilds everything derived from the entries")


def _record(report: FsckReport) -> dict[str, Any]:
    counts = record_of(report, "entries", "valid", "unsupported", "unsupported_reason", "entries_topic", "problems", "duplicates")
    return {"clean": report.is_clean, **counts, "findings": [record_of(each, "kind", "where", "detail") for each in report.findings]}


def _show(report: FsckReport, out: Output) -> None:
    if not report.findings:
        return
    with Listing(out, _FINDING_COLUMNS, empty="") as listing:
        for each in report.findings:
            listing.add({}, (each.kind, clean(each.where), clean(each.detail)))
    left = report.problems + report.duplicates - len(report.findings)
    if left > 0:
        out.note(f"and {left:,} more")


@click.command()
@log_argument
@click.option(
    "--apply",
    "apply_name",
    metavar="MODULE:FUNCTION",
    help="The application or its apply function, imported from the current folder or Python's path.",
)
@output_options()
@in_trio
async def replay(log: str, apply_name: str | None, out: Output) -> None:
    """Run the application over every entry again.

    Its apply function gets all entries in causal order, and rebuilds its tables.

    Without --apply the entries are only read and counted. The function is imported and run: name only code that you trust.

    \b
    Example
      gossiplog replay app.db --apply myapp.state:apply
    """
    application = load_application(apply_name) if apply_name else None

    async with opened(log, read_only=application is None) as opened_log:
        with Progress("replaying", await opened_log.count(), is_shown=not out.is_strict) as progress:
            if application is not None:
                (rebuilt,) = await opened_log.rebuild(application, on_progress=progress.at)
                count, set_aside = rebuilt.entries, rebuilt.set_aside
            else:
                async for entry in opened_log.iterate():
                    # Decodes the entry, which fails if it is damaged.
                    assert entry.message is not None
                    progress.step()
                count, set_aside = progress.done, 0
    aside = f", {set_aside:,} of them set aside: `gossiplog quarantine ls {log}` says why" if set_aside else ""
    record = {"count": count, "setAside": set_aside, "apply": apply_name and clean(apply_name)}
    out.tell(record, f"{counted(count, 'entry', 'entries')} replayed{aside}")
