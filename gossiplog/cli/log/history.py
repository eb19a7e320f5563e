"""`heads`, `ancestors` and `explain`: an entry's place in the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ...archive.car import add_foreign
from ...errors import DecodeError, NotFound
from ..entries import ENTRY_COLUMNS, ID_CHARACTERS, add_entry, entry_cells, payload_text, with_void
from ..exits import ExitCode
from ..options import id_argument, log_argument, output_options
from ..output import Listing, Output, clean, record_of
from ..session import resolve, with_log

if TYPE_CHECKING:
    from ...gossip_log import GossipLog
    from ...log.requests import Quarantined

_SHOWN = 16
"""How many parents, children and applications are named."""


@click.command()
@log_argument
@output_options(quiet="Print only ids.")
@with_log
async def heads(log: GossipLog, out: Output) -> None:
    """List the heads: entries that are no entry's parents yet.

    They become the parents of the next entry. Several heads mean that the history has forked, as it does while replicas are apart.

    \b
    Examples
      gossiplog heads app.db
      gossiplog heads -q app.db | wc -l
    """
    with Listing(out, ENTRY_COLUMNS, empty="no heads: the log is empty") as listing:
        ids = await log.heads()
        void = await log.find_void(ids) if ids and log.has_members else ()
        for id in ids:
            if out.is_quiet:
                listing.add({}, (id,), id=id)
                continue
            entry = await log.get(id)
            record = {"id": id, "clock": entry.clock, "author": entry.signature.public_key}
            if log.has_members:
                record["void"] = id in void
            listing.add(record, entry_cells(entry, out, is_void=id in void), id=id)


@click.command()
@log_argument
@id_argument
@click.option("--of", "other_id", metavar="ID", help="Only say whether the entry is an ancestor of this one.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most N entries.")
@click.option("--exit-code", is_flag=True, help="With --of: exit with 1 if it is not.")
@output_options(quiet="Print only ids.")
@with_log
async def ancestors(log: GossipLog, entry_id: str, other_id: str | None, limit: int | None, exit_code: bool, out: Output) -> int:
    """List an entry's ancestors.

    The nearest come first. With --of, say instead whether the entry is an ancestor of another one.

    \b
    Examples
      gossiplog ancestors app.db 0g5k --limit 10
      gossiplog ancestors app.db 04ab --of 0g5k
    """
    id = await resolve(log, entry_id)
    if other_id is not None:
        other = await resolve(log, other_id)
        is_ancestor = await log.is_ancestor(id, other)
        text = f"{id[:ID_CHARACTERS]} is {'an' if is_ancestor else 'no'} ancestor of {other[:ID_CHARACTERS]}"
        out.tell({"id": id, "of": other, "isAncestor": is_ancestor}, text)
        return ExitCode.FAILED if exit_code and not is_ancestor else ExitCode.DONE
    is_whole = True
    with Listing(out, ENTRY_COLUMNS, empty="no ancestors: the entry has no parents") as listing:
        async for entry, is_void in with_void(log, log.ancestors(id, limit=limit)):
            is_whole &= add_entry(listing, out, entry, is_void=is_void)
    return ExitCode.DONE if is_whole else ExitCode.INTEGRITY


@click.command()
@log_argument
@id_argument
@output_options()
@with_log
async def explain(log: GossipLog, entry_id: str, out: Output) -> int:
    """Explain an entry's place in the graph, and whether it is valid.

    Shows its parents and whether they are here, its signer, the rule that it breaks if any, its children and its branch; in a log with
    members also whether it counts, or what made it void.

    Entries in quarantine are explained too. The exit code is 3 if the entry is not valid or a parent is missing.

    \b
    Example
      gossiplog explain app.db 0g5k
    """
    try:
        id = await resolve(log, entry_id)
    except NotFound:
        if (held := await _quarantined(log, entry_id)) is None:
            raise
        return _explain_quarantined(held, out)
    return await _explain(log, id, out)


async def _explain(log: GossipLog, id: str, out: Output) -> int:
    from ...entry.validation import judge
    from ...log.requests import ReadSetAside
    from ...plan import ask

    entry = await log.get(id)
    verdict = judge(entry.value, entry.key, topic=log.topic)
    accepted, rule, reason = verdict.accepted, verdict.rule, verdict.reason
    if verdict.entry is None:
        reason = add_foreign(reason or "", entry.value)
    parents = list(dict.fromkeys(entry.message.parents)) if accepted else []
    present = {parent: await log.has(parent) for parent in parents}
    children = await log.children(id)
    position = await log.position(id)
    is_head = id in await log.heads()
    author = entry.signature.public_key if accepted else None
    aside = [found for found in await log.run(ask(ReadSetAside((entry.key, ""), _SHOWN))) if found.key == entry.key]
    record = {
        "id": id,
        "clock": entry.clock,
        "author": author,
        "verdict": {"accepted": accepted, "rule": rule, "reason": reason},
        "parents": [{"id": parent, "present": here} for parent, here in present.items()],
        "children": children,
        "isHead": is_head,
        "branch": position.branch,
        "bytes": len(entry.value),
        "setAside": [record_of(found, "application", "kind", "reason") for found in aside],
    }
    missing = [parent for parent, here in present.items() if not here]
    states = [f"{parent} {'here' if here else out.style('MISSING', 'red', bold=True)}" for parent, here in present.items()]
    verdict_text = out.style("accepted", "green") if accepted else out.style(f"rejected by rule {rule!r}: {clean(reason or '')}", "red")
    shown = [("id", out.style(id, "yellow")), ("verdict", verdict_text)]
    if log.has_members:
        standing = await log.standing(id)
        record["standing"] = standing.to_record()
        shown += [("members", out.style("counts", "green") if standing.counts else out.style(str(standing.reason), "red"))]
    shown += [("signed by", out.style(clean(author), "cyan"))] if author else []
    shown += [("clock", f"{entry.clock:,}, on branch {position.branch}")]
    shown += _list("parents", states, "none: a beginning")
    shown += _list("children", children, "none: a head" if is_head else "none")
    shown += [("payload", payload_text(entry))] if accepted else []
    shown += [("no effect in", clean(f"{found.application}, which set it aside: {found.kind}: {found.reason}")) for found in aside]
    out.fields(record, shown)
    return ExitCode.DONE if accepted and not missing else ExitCode.INTEGRITY


async def _quarantined(log: GossipLog, prefix: str) -> Quarantined | None:
    from ...entry.message_id import encode_id

    async for held in log.quarantine():
        if encode_id(held.key).startswith(prefix):
            return held
    return None


def _explain_quarantined(held: Quarantined, out: Output) -> int:
    from ...entry.message import Entry

    entry = Entry(held.key, held.value)
    record: dict[str, Any] = {"id": entry.id, "verdict": {"accepted": False, "rule": held.rule, "reason": held.reason}}
    verdict = f"in quarantine by rule {held.rule!r}: {clean(held.reason)}"
    shown = [("id", out.style(entry.id, "yellow")), ("verdict", out.style(verdict, "red"))]
    try:
        author, parents, payload = entry.signature.public_key, list(entry.message.parents), payload_text(entry)
    except DecodeError as error:
        shown.append(("payload", f"unreadable: {clean(add_foreign(str(error), held.value))}"))
    else:
        record |= {"clock": entry.clock, "author": author, "parents": [{"id": parent} for parent in parents]}
        shown += [("signed by", out.style(clean(author), "cyan")), ("clock", f"{entry.clock:,}")]
        shown += [*_list("parents", parents, "none"), ("payload", payload)]
    out.fields({**record, "quarantinedSince": held.since}, shown)
    return ExitCode.INTEGRITY


def _list(name: str, items: list[str], empty: str) -> list[tuple[str, str]]:
    """Show each item on its own line, the name beside the first one, and at the end how many are left out."""
    lines = items[:_SHOWN] or [empty]
    if len(items) > _SHOWN:
        lines.append(f"and {len(items) - _SHOWN} more")
    return [(name if index == 0 else "", line) for index, line in enumerate(lines)]
