"""`quarantine`: entries that a repair keeps out of the log, and entries of the log on which the application failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..entries import ID_CHARACTERS
from ..exits import ExitCode, Failure
from ..options import log_argument, output_options
from ..output import Column, Listing, Output, clean, utc
from ..session import in_trio, load_application, opened, with_log

if TYPE_CHECKING:
    from ...gossip_log import GossipLog

_COLUMNS = (Column("id", style="yellow"), Column("rule"), Column("since"), Column("reason"))


@click.group(no_args_is_help=True)
def quarantine() -> None:
    """List and retry entries without effect.

    If the application raises on an entry, the entry is set aside: it stays in the log, without effect. A repair or a salvage keeps entries
    out of the log if they or their ancestors are damaged.

    \b
    Examples
      gossiplog quarantine ls app.db
      gossiplog quarantine retry app.db --apply myapp.state:apply
    """


@quarantine.command("ls")
@log_argument
@output_options(quiet="Print only ids.")
@with_log
async def ls(log: GossipLog, out: Output) -> None:
    """List entries without effect, with the rule and the reason.

    \b
    Example
      gossiplog quarantine ls app.db
    """
    from ...entry.message_id import encode_id

    with Listing(out, _COLUMNS, empty="nothing is in quarantine") as listing:
        async for held in log.quarantine():
            id = encode_id(held.key)
            record = {"id": id, "rule": held.rule, "reason": held.reason, "since": held.since}
            listing.add(record, (id[:ID_CHARACTERS], held.rule, utc(held.since), clean(held.reason)), id=id)
        async for aside in log.set_aside():
            id, rule, reason = encode_id(aside.key), f"apply of {aside.application}", f"{aside.kind}: {aside.reason}"
            record = {"id": id, "rule": "apply", "application": aside.application, "kind": aside.kind, "reason": aside.reason}
            listing.add({**record, "since": aside.since}, (id[:ID_CHARACTERS], rule, utc(aside.since), clean(reason)), id=id)


@quarantine.command("retry")
@log_argument
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--apply", "apply_name", metavar="MODULE:FUNCTION", help="The application, or its apply function, to try again with.")
@output_options()
@in_trio
async def retry(log: str, ids: tuple[str, ...], apply_name: str | None, out: Output) -> int:
    """Try entries again: those named, or all.

    Entries kept out of the log enter it if they are valid and their ancestors are there. With --apply and no ID, the application gets its
    set-aside entries again; if later ones have been applied, its tables are rebuilt. The exit code is 1 if any entry stays without effect.

    \b
    Examples
      gossiplog quarantine retry app.db --apply myapp.state:apply
      gossiplog quarantine retry app.db 0g5k
    """
    from ...entry.message_id import encode_id

    application = load_application(apply_name) if apply_name else None

    refused = 0
    columns = (Column("id", style="yellow"), Column("verdict"), Column("reason"))
    async with opened(log, read_only=False, app=application) as opened_log:
        chosen = [await _resolve(opened_log, prefix) for prefix in ids] if ids else None
        with Listing(out, columns, empty="nothing is in quarantine") as listing:
            async for held, verdict in opened_log.retrying(chosen):
                id = encode_id(held.key)
                refused += not verdict.accepted
                record = {"id": id, "accepted": verdict.accepted, "rule": verdict.rule, "reason": verdict.reason}
                shown = "accepted" if verdict.accepted else "refused"
                listing.add(record, (id[:ID_CHARACTERS], shown, clean(verdict.reason or "")))
            for tried in await opened_log.retry_set_aside() if application is not None and chosen is None else ():
                refused += tried.set_aside
                record = {"application": tried.application, "applied": tried.entries, "setAside": tried.set_aside}
                cells = (tried.application, f"{tried.entries:,} applied", f"{tried.set_aside:,} of them set aside")
                listing.add(record, cells)
    return ExitCode.FAILED if refused else ExitCode.DONE


async def _resolve(log: GossipLog, prefix: str) -> str:
    from ...entry.message_id import encode_id

    found: list[str] = []
    # The quarantine has no index to look up a prefix: it is read whole, a page at a time.
    async for held in log.quarantine():
        if (id := encode_id(held.key)).startswith(prefix):
            found.append(id)
            if len(found) > 1:
                break
    if len(found) != 1:
        raise Failure(
            f"{'several' if found else 'no'} entries in quarantine begin with {prefix!r}",
            hint="`gossiplog quarantine ls` lists them",
            kind="not-found",
        )
    return found[0]
