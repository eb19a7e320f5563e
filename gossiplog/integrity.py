"""`fsck`: drive the checks of `log.fsck` over a whole log, page by page, with the signatures verified on all cores; and repair."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeAlias, TypeVar

from .errors import CommitError, DamagedLog, DecodeError
from .log.commit import restore
from .log.fsck import Audit, FsckReport, Kind
from .log.fsck_reads import ClearDerived, ReadCursors, ReadEntryRows, TakeEntries
from .log.message_id import message_key
from .log.reads import Quarantined, ReadCount, WriteCursor, WriteQuarantine
from .log.validation import Outcome, Rule, Verdict
from .ordered import map_ordered
from .plan import Plan, ask
from .store.base import Reader, Store

__all__ = ["Verify", "check", "check_and_repair", "repair"]

Verify: TypeAlias = Callable[[Sequence[bytes]], Awaitable[list[Verdict]]]
"""Validates VALUEs in a worker thread."""

T = TypeVar("T")

_PAGE = 1_000
_CHUNK = 125
"""Values verified per hop into a worker thread: eight to a page, so that all cores finish at about the same time."""
_SEQ_MIN, _SEQ_MAX = -(1 << 63), (1 << 63) - 1
_DAMAGE = (DamagedLog, CommitError, DecodeError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What reading a damaged row may raise, here or in the store: SQLite checks neither the types of a row nor what it says."""


async def check(store: Store, verify: Verify, on_progress: Callable[[int], None] | None) -> FsckReport:
    """Check everything on one snapshot and change nothing. 80 µs of CPU an entry, nearly all of it for its signature.

    Raises:
        StoreError: The store cannot be read at all; what is damaged in parts is reported instead.
    """
    audit = Audit(store.topic)
    async with store.snapshot() as reader:
        await _check_entries(audit, reader, verify, on_progress)
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


async def repair(store: Store, verify: Verify, on_progress: Callable[[int], None] | None) -> int:
    """Build everything that follows from the entries anew, in one transaction, and return how many entries were set aside.

    Entries keep their `seq`. What is invalid, or has lost an ancestor, goes to the quarantine, so that nothing is lost.

    Raises:
        DamagedLog: The database cannot read a part of the file; nothing changed.
        StoreError: As the store has it; nothing changed.
    """
    set_aside = done = 0
    try:
        async with store.transaction() as transaction:
            await transaction.run(ask(ClearDerived()))
            after = _SEQ_MIN
            while rows := await transaction.run(ask(ReadEntryRows(after, _PAGE))):
                after = rows[-1][0]
                values = [_as_bytes(value) for _, value in rows]
                verdicts = await _verify_page(verify, values)
                page = [(seq, value, verdict) for (seq, _), value, verdict in zip(rows, values, verdicts, strict=True)]
                set_aside += await transaction.run(_restore_page(page, store.topic, time.time()))
                done += len(rows)
                if on_progress is not None:
                    on_progress(done)
            await transaction.run(_pull_cursors())
    except DamagedLog as error:
        hint = "it cannot be repaired in place: make a new log, and sync it from a peer or import what `gossiplog export` can read"
        raise DamagedLog(str(error), hint=hint) from error
    return set_aside


async def check_and_repair(store: Store, verify: Verify, on_progress: Callable[[int], None] | None) -> FsckReport:
    """Check; if something is wrong, repair and check again.

    Raises:
        StoreError: As `repair`.
    """
    before = await check(store, verify, on_progress)
    if before.is_clean:
        return before
    set_aside = await repair(store, verify, on_progress)
    return replace(await check(store, verify, on_progress), repaired=before, set_aside=set_aside)


async def _check_entries(audit: Audit, reader: Reader, verify: Verify, on_progress: Callable[[int], None] | None) -> None:
    after: int | None = _SEQ_MIN
    done = 0
    while after is not None:
        rows = await _read_rows(reader, after)
        if rows is None:
            behind = await _find_readable(reader, after)
            audit.note(Kind.UNREADABLE, f"entries after seq {max(after, 0)}", "to the end" if behind is None else f"up to seq {behind}")
            after = behind
            continue
        if not rows:
            return
        verdicts = await _verify_page(verify, [_as_bytes(value) for _, value in rows])
        page = [(seq, _of_type(value, verdict)) for (seq, value), verdict in zip(rows, verdicts, strict=True)]
        await _try(audit, reader, f"what depends on the entries from seq {rows[0][0]} on", audit.check_entries(page))
        after = rows[-1][0]
        done += len(rows)
        if on_progress is not None:
            on_progress(done)


async def _verify_page(verify: Verify, values: Sequence[bytes]) -> list[Verdict]:
    chunks = [values[low : low + _CHUNK] for low in range(0, len(values), _CHUNK)]
    async with map_ordered(verify, chunks, ahead=len(chunks)) as verified:
        return list(chain.from_iterable([chunk async for chunk in verified]))


async def _read_rows(reader: Reader, after: int) -> list[tuple[int, bytes]] | None:
    """Read entries after a seq, as many as can be read up to a page; None if not even one can."""
    for limit in (_PAGE, 100, 10, 1):
        try:
            return await reader.run(ask(ReadEntryRows(after, limit)))
        except _DAMAGE:
            continue
    return None


async def _find_readable(reader: Reader, after: int) -> int | None:
    """Find the seq behind which entries can be read again, by doubling and halving; None if there is none."""
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
    except _DAMAGE:
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
    except _DAMAGE as error:
        audit.note(Kind.UNREADABLE, where, str(error) or type(error).__name__)
        return None


def _restore_page(rows: Sequence[tuple[int, bytes, Verdict]], topic: str, now: float) -> Plan[int]:
    """Take the entries of a page out and put those back that are valid and complete; return how many were set aside."""
    yield from ask(TakeEntries([seq for seq, _, _ in rows]))
    valid = [(seq, verdict.entry) for seq, _, verdict in rows if verdict.accepted and verdict.entry is not None]
    restored = iter((yield from restore(valid, topic=topic, now=now)))
    aside: list[Quarantined] = []
    kept = 0
    for _, value, validated in rows:
        verdict = next(restored) if validated.accepted else validated
        if verdict.accepted:
            kept += 1
            continue
        # What cannot be read has no key; no entry has one that begins with the clock 0.
        key = message_key(0, value) if validated.entry is None else validated.entry.key
        aside.append(Quarantined(key, value, "damaged", f"{verdict.rule}: {verdict.reason}", now))
    yield from ask(WriteQuarantine(aside, []))
    return len(rows) - kept


def _pull_cursors() -> Plan[None]:
    """Bring cursors back to the end that damage has put beyond it."""
    _, last = yield from ask(ReadCount(counted=False))
    for name, seq in (yield from ask(ReadCursors())):
        if seq > last:
            yield from ask(WriteCursor(name, None))
            yield from ask(WriteCursor(name, last))


def _as_bytes(value: Any) -> bytes:
    """Return a damaged row's value as bytes whatever its type has become."""
    return value if isinstance(value, bytes) else str(value).encode("latin-1")


def _of_type(value: Any, verdict: Verdict) -> Verdict:
    """Refuse what is no longer stored as bytes, though its bytes may be right: a repair stores them as bytes again."""
    if isinstance(value, bytes):
        return verdict
    return Verdict(Outcome.REJECT, Rule.CANONICAL, f"VALUE is stored as {type(value).__name__}", verdict.entry)
