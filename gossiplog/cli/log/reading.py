"""`log` and `show`: list entries, or show one."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from ...archive import entry_to_line
from ...archive.car import add_foreign
from ...errors import DamagedLog, DecodeError
from ...tasks.pages import Pages
from ..entries import ENTRY_COLUMNS, add_entry, payload_text, with_void
from ..options import id_argument, log_argument, output_options
from ..output import Listing, Output, clean, counted
from ..session import in_trio, opened, resolve, with_log

if TYPE_CHECKING:
    from ...entry.message import Entry
    from ...gossip_log import GossipLog


@click.command("log")
@log_argument
@click.option("--after", metavar="ID", help="Start after this entry.")
@click.option("--before", metavar="ID", help="End before this entry.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most N entries.")
@click.option("--reverse", is_flag=True, help="Newest first.")
@click.option("--author", metavar="DID", help="Only entries of this did; its last characters are enough.")
@click.option("--follow", is_flag=True, help="Show entries in the order of arrival, and wait for more, from any process.")
@output_options(quiet="Print only ids.")
@in_trio
async def log(
    log: str, after: str | None, before: str | None, limit: int | None, reverse: bool, author: str | None, follow: bool, out: Output
) -> None:
    """List entries in causal order.

    Ancestors come before their descendants.

    JSON lines have the form {"id", "signature": {codec, publicKey, signature}, "message": {topic, clock, parents, payload}} in
    dag-json; `gossiplog import` reads them back.

    \b
    Examples
      gossiplog log app.db --limit 10 --reverse
      gossiplog log app.db --json | jq .message.payload
      gossiplog log app.db --after 0g5k --author z6Mkp7
      gossiplog log app.db --follow
    """
    if follow and reverse:
        raise click.UsageError("--follow goes forward; it cannot be combined with --reverse")

    async with opened(log) as opened_log, contextlib.AsyncExitStack() as stack:
        damaged = 0
        low = await resolve(opened_log, after) if after else None
        high = await resolve(opened_log, before) if before else None
        if follow:
            arriving = await stack.enter_async_context(opened_log.subscribe())

            async def next_wanted() -> list[Entry]:
                async for entry in arriving:
                    if (low is None or entry.id > low) and (high is None or entry.id < high):
                        return [entry]
                return []

            entries = Pages(next_wanted)
        else:
            entries = opened_log.iterate(after=low, before=high, reverse=reverse, limit=limit if author is None else None)
        with Listing(out, ENTRY_COLUMNS, empty="no entries", is_live=follow) as listing:
            async for entry, is_void in with_void(opened_log, entries):
                if author is not None and not _is_by(entry, author):
                    continue
                damaged += not add_entry(listing, out, entry, is_void=is_void)
                if listing.count == limit:
                    break
        if damaged:
            hint = f"`gossiplog fsck {log}` says what else is affected"
            raise DamagedLog(f"{counted(damaged, 'entry', 'entries')} of {log} left out, being damaged", hint=hint)


def _is_by(entry: Entry, author: str) -> bool:
    """Whether this did signed an entry; True for an entry too damaged to tell, so that it is reported."""
    try:
        return entry.signature.public_key.endswith(author)
    except DecodeError:
        return True


@click.command()
@log_argument
@id_argument
@click.option("--hex", "is_hex", is_flag=True, help="Print the bytes that are stored and hashed, in hexadecimal.")
@output_options()
@with_log
async def show(log: GossipLog, entry_id: str, is_hex: bool, out: Output) -> None:
    """Show one whole entry.

    \b
    Examples
      gossiplog show app.db 0g5k
      gossiplog show app.db 0g5k --hex | gossiplog verify --values -
    """
    entry = await log.get(await resolve(log, entry_id))
    if is_hex:
        out.line(entry.value.hex())
        return
    try:
        if out.is_json:
            out.raw(entry_to_line(entry))
        else:
            standing = await log.standing(entry.id) if log.has_members else None
            out.fields({}, _fields(entry, out) + ([("members", standing.reason or "counts")] if standing else []))
    except DecodeError as error:
        what = add_foreign(f"entry {entry.id} is damaged: {error}", entry.value)
        raise DecodeError(what, hint=f"`gossiplog show {log.location} {entry_id} --hex` prints its bytes") from None


def _fields(entry: Entry, out: Output) -> list[tuple[str, str]]:
    message, signature = entry.message, entry.signature
    return [
        ("id", out.style(entry.id, "yellow")),
        ("topic", clean(message.topic)),
        ("clock", f"{message.clock:,}"),
        ("author", out.style(clean(signature.public_key), "cyan")),
        ("signature", f"{signature.codec}, {signature.signature.hex()}"),
        ("parents", " ".join(message.parents) or "none"),
        ("bytes", f"{len(entry.value):,}"),
        ("payload", payload_text(entry, None)),
    ]
