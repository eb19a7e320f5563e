"""`heads`, `ancestors` and `explain`: where an entry stands in the graph."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import click

from ...archive.car import add_foreign
from ...errors import DecodeError, NotFound
from ..entries import ENTRY_COLUMNS, ID_CHARACTERS, add_entry, entry_cells, payload_text
from ..exits import ExitCode
from ..options import id_argument, log_argument, output_options
from ..output import Listing, Output, clean
from ..session import opened, resolve, run

if TYPE_CHECKING:
    from ...gossip_log import GossipLog
    from ...log.requests import Quarantined

_CHILDREN_SHOWN = 16
_PARENTS_SHOWN = 16
_APPLICATIONS_SHOWN = 16


@click.command()
@log_argument
@output_options(quiet="Print only ids.")
def heads(log: str, out: Output) -> None:
    """List the heads: entries that are nobody's parents yet.

    The next append names them as its parents. Several heads mean that the history has forked, as it does while replicas are apart.

    \b
    Examples
      gossiplog heads app.db
      gossiplog heads -q app.db | wc -l
    """

    async def task() -> None:
        async with opened(log) as opened_log:
            with Listing(out, ENTRY_COLUMNS, empty="no heads: the log is empty") as listing:
                for id in await opened_log.heads():
                    if out.is_quiet:
                        listing.add({}, (id,), id=id)
                        continue
                    entry = await opened_log.get(id)
                    record = {"id": id, "clock": entry.clock, "author": entry.signature.public_key}
                    listing.add(record, entry_cells(entry, out), id=id)

    run(task)


@click.command()
@log_argument
@id_argument
@click.option("--of", "other_id", metavar="ID", help="Only say whether the first entry is an ancestor of this one.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most N entries.")
@click.option("--exit-code", is_flag=True, help="With --of: exit with 1 if it is not.")
@output_options(quiet="Print only ids.")
def ancestors(log: str, entry_id: str, other_id: str | None, limit: int | None, exit_code: bool, out: Output) -> int:
    """List an entry's ancestors.

    The nearest come first. With --of, say instead whether the entry is an ancestor of that one.

    \b
    Examples
      gossiplog ancestors app.db 0g5k --limit 10
      gossiplog ancestors app.db 04ab --of 0g5k
    """

    async def task() -> int:
        async with opened(log) as opened_log:
            id = await resolve(opened_log, entry_id)
            if other_id is not None:
                other = await resolve(opened_log, other_id)
                is_ancestor = await opened_log.is_ancestor(id, other)
                text = f"{id[:ID_CHARACTERS]} is {'an' if is_ancestor else 'no'} ancestor of {other[:ID_CHARACTERS]}"
                out.tell({"id": id, "of": other, "isAncestor": is_ancestor}, text)
                return ExitCode.FAILED if exit_code and not is_ancestor else ExitCode.DONE
            with Listing(out, ENTRY_COLUMNS, empty="no ancestors: the entry has no parents") as listing:
                is_whole = True
                async for entry in opened_log.ancestors(id, limit=limit):
                    is_whole &= add_entry(listing, out, entry)
            return ExitCode.DONE if is_whole else ExitCode.INTEGRITY

    return run(task)


@click.command()
@log_argument
@id_argument
@output_options()
def explain(log: str, entry_id: str, out: Output) -> int:
    """Explain where an entry stands, and whether it is valid.

    Shows its parents and whether they are here, its signer, the rule that it fails if any, its children and its branch.

    Entries in quarantine are explained too. The exit code is 3 if the entry is not valid or a parent is missing.

    \b
    Example
      gossiplog explain app.db 0g5k
    """

    async def task() -> int:
        async with opened(log) as opened_log:
            try:
                id = await resolve(opened_log, entry_id)
            except NotFound:
                if (held := await _quarantined(opened_log, entry_id)) is None:
                    raise
                return _explain_quarantined(held, out)
            return await _explain(opened_log, id, out)

    return run(task)


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
    }
    missing = [parent for parent, here in present.items() if not here]
    states = [f"{parent} {'here' if here else out.style('MISSING', 'red', bold=True)}" for parent, here in present.items()]
    verdict_text = out.style("accepted", "green") if accepted else out.style(f"rejected by rule {rule!r}: {clean(reason or '')}", "red")
    shown = [("id", out.style(id, "yellow")), ("verdict", verdict_text)]
    shown += [("signed by", out.style(clean(author), "cyan"))] if author else []
    shown += [("clock", f"{entry.clock:,}, on branch {position.branch}")]
    shown += _list("parents", states, _PARENTS_SHOWN, "none: a beginning")
    shown += _list("children", children, _CHILDREN_SHOWN, "none: a head" if is_head else "none")
    shown += [("payload", payload_text(entry))] if accepted else []
    aside = [found for found in await log.run(ask(ReadSetAside((entry.key, ""), _APPLICATIONS_SHOWN))) if found.key == entry.key]
    record["setAside"] = [{"application": found.application, "kind": found.kind, "reason": found.reason} for found in aside]
    shown += [("no effect in", clean(f"{found.application}, which set it aside: {found.kind}: {found.reason}")) for found in aside]
    out.fields(record, shown)
    return ExitCode.DONE if accepted and not missing else ExitCode.INTEGRITY


async def _quarantined(log: GossipLog, prefix: str) -> Quarantined | None:
    from ...entry.message_id import encode_id

    async with contextlib.aclosing(log.quarantine()) as records:
        async for held in records:
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
        shown += [*_list("parents", parents, _PARENTS_SHOWN, "none"), ("payload", payload)]
    out.fields({**record, "quarantinedSince": held.since}, shown)
    return ExitCode.INTEGRITY


def _list(name: str, items: list[str], limit: int, empty: str) -> list[tuple[str, str]]:
    """Show items on a line each, the name beside the first of them, and how many were left out."""
    if not items:
        return [(name, empty)]
    lines = [(name if index == 0 else "", item) for index, item in enumerate(items[:limit])]
    if len(items) > limit:
        lines.append(("", f"and {len(items) - limit} more"))
    return lines
