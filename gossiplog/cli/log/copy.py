"""`copy`: move a log from one place to another."""

from __future__ import annotations

import click

from ...errors import DamagedLog, DecodeError, StoreError
from ..exits import ExitCode, Failure
from ..location import LOG, Location
from ..options import DURABILITIES, log_argument, output_options
from ..output import Output, clean, counted
from ..progress import Progress
from ..session import damage_hint, opened, run

__all__ = ["copy"]

_SHOWN = 20


@click.command()
@log_argument
@click.argument("target", metavar="TARGET", type=LOG)
@click.option("--durability", type=click.Choice(DURABILITIES), default="full", show_default=True, help="What a copied entry survives.")
@output_options()
def copy(log: Location, target: Location, durability: str, out: Output) -> int:
    """Copy a log, byte for byte.

    Copies between files and servers in any direction; TARGET is created if necessary. Entries keep the order in which LOG got them; the
    quarantine and followers' cursors are copied too. Every entry is verified on the way, and in the end the roots are compared. An
    interrupted run can be repeated: it skips what is there. LOG may grow meanwhile.

    \b
    Examples
      gossiplog copy app.db 'postgresql://db.example.com/app?log=app'
      gossiplog copy 'postgresql://db.example.com/app?log=app' backup.db
    """
    if log.is_same(target):
        raise click.UsageError("LOG and TARGET are the same", click.get_current_context())

    async def task() -> ExitCode:
        async with (
            opened(log) as source,
            opened(target, read_only=False, create=True, topic=source.topic, durability=durability) as copied,
        ):
            with Progress("copying", await source.count(), is_shown=not out.is_strict) as progress:
                try:
                    report = await copied.copy_from(source, on_progress=progress.at)
                except (DamagedLog, DecodeError) as error:
                    message = f"after {progress.done:,} entries: {error}"
                    raise Failure(message, hint=damage_hint(log), code=ExitCode.INTEGRITY, kind="damaged-log") from error
                except StoreError as error:
                    hint = f"what was copied is kept; repeat the command to go on{f'; {error.hint}' if error.hint else ''}"
                    message = f"after {counted(progress.done, 'entry', 'entries')}: {error}"
                    raise Failure(message, hint=hint, code=ExitCode.INCOMPLETE, kind="storage") from error
        for id, reason in report.refused[:_SHOWN] if not out.is_json else ():
            out.note(clean(f"{id} was left out: {reason}"))
        record = {
            "added": report.entries,
            "known": report.known,
            "failed": report.failed,
            "quarantined": report.quarantined,
            "cursors": report.cursors,
            "equal": report.is_equal,
            "refused": [{"id": id, "reason": reason} for id, reason in report.refused],
        }
        cursors = "not copied: TARGET has its entries in another order" if report.cursors is None else f"{report.cursors:,}"
        shown = [
            ("entries", f"{counted(report.entries, 'entry', 'entries')} added, {report.known:,} known already, {report.failed:,} failed"),
            ("quarantine", f"{report.quarantined:,}"),
            ("cursors", cursors),
            ("roots", "equal" if report.is_equal else "differ: one of the two has entries that the other does not"),
        ]
        out.fields(record, shown)
        return ExitCode.INTEGRITY if report.failed else ExitCode.DONE

    return run(task)
