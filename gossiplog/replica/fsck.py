"""`fsck`: drives the checks of `log.fsck` over a whole log, page by page, verifying signatures on all cores; and repairs."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

from ..access import has_policy
from ..entry.message_id import message_key
from ..entry.rules import VALUE_BYTES_LIMIT
from ..entry.validation import Outcome, Rule, Verdict, kept
from ..errors import CommitError, DamagedLog, DecodeError, LocalProtocolError, RepairRefused
from ..log.applying import expire_tables
from ..log.commit import LogRules, restore
from ..log.fsck import Audit, FindingKind, FsckReport
from ..log.fsck_requests import ClearDerived, ReadCursors, ReadEntryRows, TakeEntries
from ..log.membership import Membership
from ..log.requests import Quarantined, ReadCount, WriteCursor, WriteQuarantine
from ..plan import Plan, ask
from ..store.base import Reader, Store
from ..tasks.ordered import map_ordered

Verify: TypeAlias = Callable[[Sequence[bytes]], Awaitable[list[Verdict]]]
"""Validates VALUEs in a worker thread."""

T = TypeVar("T")

_PAGE = 1_000
_CHUNK = 125
"""Values verified per hop into a worker thread: eight to a page, so that all cores finish at about the same time."""
_LARGE_KEPT_BYTES = 64 * 1024
"""How much of a row larger than any entry is quarantined. SQLite reads all of it for each quarantined neighbour, 17 ms for 50 MB."""
_SEQ_MIN, _SEQ_MAX = -(1 << 63), (1 << 63) - 1
DAMAGE = (DamagedLog, CommitError, DecodeError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""The errors that reading a damaged row may raise, here or in the store: SQLite checks neither the types nor the values of a row."""


async def check(store: Store, verify: Verify, on_progress: Callable[[int], None] | None) -> FsckReport:
    """Check everything on one snapshot and change nothing. 80 µs of CPU per entry, nearly all for its signature.

    Raises:
        StoreError: The store cannot be read at all. Damaged parts are reported instead.
    """
    audit = Audit(store.topic)
    async with store.snapshot() as reader:
        await _try(audit, reader, "the sketch", audit.begin())
        await _check_entries(audit, reader, verify, on_progress)
        await _try(audit, reader, "the sketch", audit.check_sketch())
        await _try(audit, reader, "the file", audit.check_file())
        await _try(audit, reader, "the tables", audit.count_rows())
        await _check_pages(audit, reader, "leaves", audit.leaf_page)
        await _try(audit, reader, "the tree", audit.check_root())
        await _check_pages(audit, reader, "nodes", audit.node_page)
        await _check_pages(audit, reader, "positions", audit.position_page)
        await _check_pages(audit, reader, "links", audit.link_page)
        await _try(audit, reader, "the heads", audit.check_heads())
        await _try(audit, reader, "the cursors", audit.check_cursors())
        await _check_pages(audit, reader, "quarantine", audit.quarantine_page)
    return audit.report()


async def repair(
    store: Store, verify: Verify, on_progress: Callable[[int], None] | None, *, aside_max: int | None = None, is_rehearsal: bool = False
) -> int:
    """Rebuild everything derived from the entries, in one transaction, and return how many entries were set aside.

    Entries keep their `seq`. Entries that are invalid or have lost an ancestor go to the quarantine, so nothing is lost.

    Args:
        aside_max: The most entries to set aside; None for any number.
        is_rehearsal: Roll everything back at the end, and only count.

    Raises:
        RepairRefused: More entries would be set aside; nothing changed.
        DamagedLog: The database cannot read a part of the file; nothing changed.
        StoreError: The store failed; nothing changed.
    """
    set_aside = done = 0
    try:
        async with store.transaction() as transaction:
            await transaction.run(ask(ClearDerived()))
            after = _SEQ_MIN
            rules = LogRules(store.topic, membership=Membership() if has_policy(store.topic) else None)
            while rows := await transaction.run(ask(ReadEntryRows(after, _PAGE))):
                after = rows[-1][0]
                values = [as_bytes(value) for _, value in rows]
                verdicts = await verify_page(verify, values)
                page = [(seq, value, verdict) for (seq, _), value, verdict in zip(rows, values, verdicts, strict=True)]
                set_aside += await transaction.run(_restore_page(page, rules, time.time()))
                done += len(rows)
                if on_progress is not None:
                    on_progress(done)
            await transaction.run(_pull_cursors())
            if set_aside:
                await transaction.run(expire_tables())
            if is_rehearsal or (aside_max is not None and set_aside > aside_max):
                # An error is the way to roll the transaction back.
                raise RepairRefused(set_aside, done)
    except RepairRefused:
        if is_rehearsal:
            return set_aside
        raise
    except DamagedLog as error:
        hint = "it cannot be repaired in place: `gossiplog sync --heal` rebuilds it beside a replica, `gossiplog salvage` without one"
        raise DamagedLog(str(error), hint=hint) from error
    return set_aside


async def check_and_repair(
    store: Store,
    verify: Verify,
    on_progress: Callable[[int], None] | None,
    *,
    aside_max: int | None = None,
    is_rehearsal: bool = False,
    on_phase: Callable[[str], None] | None = None,
) -> FsckReport:
    """Check; if there is a problem, repair and check again. A rehearsal only reports how many entries a repair would set aside.

    Raises:
        RepairRefused, StoreError: As `repair`.
        DamagedLog: The log's topic is not that of its entries, so a repair would set all of them aside.
        LocalProtocolError: There is a problem, and the log has entries of a signature scheme that is not accepted here.
    """
    before = await check(store, verify, on_progress)
    if before.is_clean:
        return before
    if before.entries_topic is not None:
        message = f"the topic {store.topic!r} of the log is damaged: its entries have {before.entries_topic!r}"
        hint = "`gossiplog sync --heal` rebuilds the log beside a replica, `gossiplog salvage` without one; the entries tell the topic"
        raise DamagedLog(message, hint=hint)
    if before.unsupported:
        # Once the index is rebuilt, a damaged row and an entry of another scheme could no longer be told apart.
        count = f"{before.unsupported} of {before.entries} entries"
        raise LocalProtocolError(f"nothing is repaired while {count} cannot be verified: {before.unsupported_reason}")
    if on_phase is not None:
        on_phase("rehearsing the repair" if is_rehearsal else "repairing")
    if is_rehearsal:
        async with store.rehearsal() as other:
            return replace(before, set_aside=await repair(other, verify, on_progress, is_rehearsal=True))
    set_aside = await repair(store, verify, on_progress, aside_max=aside_max)
    if on_phase is not None:
        on_phase("checking the repair")
    return replace(await check(store, verify, on_progress), repaired=before, set_aside=set_aside)


async def read_around(reader: Reader) -> AsyncGenerator[tuple[list[tuple[int, Any]], str | None], None]:
    """Yield pages of `(seq, VALUE)` in order of seq, each with None; for rows that cannot be read, an empty page with a description."""
    after: int | None = _SEQ_MIN
    while after is not None:
        rows = await _read_rows(reader, after)
        if rows is None:
            last = await _find_readable(reader, after)
            yield [], f"entries after seq {max(after, 0)} {'to the end' if last is None else f'up to seq {last}'}"
            after = last
        elif rows:
            yield rows, None
            after = rows[-1][0]
        else:
            return


async def _check_entries(audit: Audit, reader: Reader, verify: Verify, on_progress: Callable[[int], None] | None) -> None:
    done = 0
    async with aclosing(read_around(reader)) as pages:
        async for rows, gap in pages:
            if gap is not None:
                audit.note(FindingKind.UNREADABLE, gap, "the database cannot read them")
                continue
            verdicts = await verify_page(verify, [as_bytes(value) for _, value in rows])
            page = [(seq, _of_type(value, verdict)) for (seq, value), verdict in zip(rows, verdicts, strict=True)]
            await _try(audit, reader, f"what depends on the entries from seq {rows[0][0]} on", audit.check_entries(page))
            done += len(rows)
            if on_progress is not None:
                on_progress(done)


async def verify_page(verify: Verify, values: Sequence[bytes]) -> list[Verdict]:
    """Verify a page of VALUEs from a log, on all cores."""
    chunks = [values[low : low + _CHUNK] for low in range(0, len(values), _CHUNK)]
    async with map_ordered(verify, chunks, ahead=len(chunks)) as verified:
        return [kept(verdict) async for chunk in verified for verdict in chunk]


async def _read_rows(reader: Reader, after: int) -> list[tuple[int, bytes]] | None:
    """Read at most a page of entries after a seq, or fewer if not all can be read; None if not even one can."""
    for limit in (_PAGE, 100, 10, 1):
        try:
            return await reader.run(ask(ReadEntryRows(after, limit)))
        except DAMAGE:
            continue
    return None


async def _find_readable(reader: Reader, after: int) -> int | None:
    """Find the seq after which entries can be read again, by doubling and halving; None if there is none."""
    low, high = after, after + 1
    while await _is_unreadable(reader, high):
        low, high = high, after + 2 * (high - after)
        if high > _SEQ_MAX:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        if await _is_unreadable(reader, middle):
            low = middle
        else:
            high = middle
    return high


async def _is_unreadable(reader: Reader, after: int) -> bool:
    try:
        await reader.run(ask(ReadEntryRows(after, 1)))
    except DAMAGE:
        return True
    return False


async def _check_pages(audit: Audit, reader: Reader, table: str, page: Callable[[Any], Plan[Any]]) -> None:
    after: Any = None
    while True:
        after = await _try(audit, reader, table if after is None else f"{table} after {after}", page(after))
        if after is None:
            return


async def _try(audit: Audit, reader: Reader, where: str, plan: Plan[T]) -> T | None:
    try:
        return await reader.run(plan)
    except DAMAGE as error:
        audit.note(FindingKind.UNREADABLE, where, str(error) or type(error).__name__)
        return None


def _restore_page(rows: Sequence[tuple[int, bytes, Verdict]], rules: LogRules, now: float) -> Plan[int]:
    """Take a page of entries out, and put back those that are valid and complete; return how many were set aside."""
    yield from ask(TakeEntries([seq for seq, _, _ in rows]))
    valid = [(seq, verdict.entry) for seq, _, verdict in rows if verdict.accepted and verdict.entry is not None]
    restored = iter((yield from restore(valid, rules, now=now)))
    aside: list[Quarantined] = []
    kept = 0
    for _, value, validated in rows:
        verdict = next(restored) if validated.accepted else validated
        if verdict.accepted:
            kept += 1
            continue
        # Bytes that are no entry have no key. Only a snapshot's key has this form, and it is of another VALUE.
        key = message_key(0, value) if validated.entry is None else validated.entry.key
        rule = "parents" if verdict.rule == Rule.PARENTS else "damaged"
        kept_bytes = value if len(value) <= VALUE_BYTES_LIMIT else value[:_LARGE_KEPT_BYTES]
        aside.append(Quarantined(key, kept_bytes, rule, f"{verdict.rule}: {verdict.reason}", now))
    yield from ask(WriteQuarantine(aside, []))
    return len(rows) - kept


def _pull_cursors() -> Plan[None]:
    """Bring cursors that are beyond the end, by damage, back to it. A cursor without a number is removed, so that nothing is missed."""
    _, last = yield from ask(ReadCount(counted=False))
    for name, seq in (yield from ask(ReadCursors())):
        if seq is None or seq > last:
            yield from ask(WriteCursor(name, None))
            if seq is not None:
                yield from ask(WriteCursor(name, last))


def as_bytes(value: Any) -> bytes:
    """Return a row's value as bytes, whatever type damage has made of it."""
    return value if isinstance(value, bytes) else str(value).encode("latin-1")


def _of_type(value: Any, verdict: Verdict) -> Verdict:
    """Refuse a VALUE that is stored as another type, even if its bytes are right. A repair stores it as bytes again."""
    if isinstance(value, bytes):
        return verdict
    return Verdict(Outcome.REJECT, Rule.CANONICAL, f"VALUE is stored as {type(value).__name__}", verdict.entry)
