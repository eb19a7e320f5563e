"""Copy a log from one store into another: its entries in the order of their insertion, its quarantine and its cursors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ..entry.message import Entry
from ..entry.message_id import encode_id
from ..entry.validation import Verdict
from ..log.fsck_requests import ReadCursors
from ..log.requests import Quarantined, ReadCount, ReadLeaves, ReadQuarantine, ReadTail, WriteCursor, WriteQuarantine
from ..log.whole import check_all_read
from ..plan import Plan, ask
from ..store.base import Store
from ..tasks.pages import paged
from ..tree.node import ReadRoot

InsertMany: TypeAlias = Callable[[Sequence[bytes]], Awaitable[list[Verdict]]]

_PAGE = 1_000
_REFUSED_MAX = 1_000


@dataclass(slots=True)
class CopyReport:
    """The result of a copy.

    Attributes:
        entries: How many were copied.
        known: How many the target had already.
        failed: How many the target refused.
        refused: Id and reason of the first 1,000 of these.
        quarantined: How many records of the quarantine were copied.
        cursors: How many cursors were copied; None if none could be, because the target has the entries in another order.
        is_equal: Whether both logs now have the same entries, by their roots.
    """

    entries: int = 0
    known: int = 0
    failed: int = 0
    refused: list[tuple[str, str]] = field(default_factory=list)
    quarantined: int = 0
    cursors: int | None = 0
    is_equal: bool = False


async def copy_store(source: Store, target: Store, insert_many: InsertMany, on_progress: Callable[[int], None] | None) -> CopyReport:
    """Copy everything; see `GossipLog.copy_from`.

    Args:
        source: Each page is read from a snapshot of its own, because entries are only ever added.
    """
    report = CopyReport()
    # A follower whose cursor is damaged starts from the beginning in the copy.
    cursors = [(name, seq) for name, seq in await source.read(ask(ReadCursors())) if seq is not None]
    places = dict.fromkeys([name for name, _ in cursors], 0)
    is_ordered, last, after, looked_at = True, 0, 0, 0
    while True:
        rows, count = await source.read(_next_rows(after))
        if not rows:
            break
        looked_at += len(rows)
        entries = [Entry.stored(value) for _, value in rows]
        keys = [entry.key for entry in entries]
        known = await target.read(ask(ReadLeaves(keys)))
        missing = [entry for entry in entries if entry.key not in known]
        report.known += len(known)
        if missing:
            _count(report, missing, await insert_many([entry.value for entry in missing]))
            known = await target.read(ask(ReadLeaves(keys)))
        for (seq, _), key in zip(rows, keys, strict=True):
            if key in known:
                is_ordered, last = is_ordered and known[key].seq > last, known[key].seq
                places.update({name: last for name, cursor in cursors if seq <= cursor})
        after = rows[-1][0]
        if on_progress is not None:
            on_progress(report.known + report.entries + report.failed)
    report.quarantined = await _copy_quarantine(source, target)
    if places and is_ordered:
        await target.write(_write_cursors(places))
    report.cursors = len(places) if is_ordered or not places else None
    report.is_equal = await source.read(ask(ReadRoot())) == await target.read(ask(ReadRoot()))
    check_all_read(looked_at, count)
    return report


def _next_rows(after: int) -> Plan[tuple[list[tuple[int, bytes]], int]]:
    """Read the next rows; after the last one, how many there should have been."""
    rows = yield from ask(ReadTail(after, _PAGE))
    return rows, (0 if rows else (yield from ask(ReadCount()))[0])


def _write_cursors(places: dict[str, int]) -> Plan[None]:
    for name, seq in places.items():
        yield from ask(WriteCursor(name, seq))


def _count(report: CopyReport, entries: Sequence[Entry], verdicts: Sequence[Verdict]) -> None:
    for entry, verdict in zip(entries, verdicts, strict=True):
        if verdict.is_new:
            report.entries += 1
        elif verdict.accepted:
            report.known += 1
        else:
            report.failed += 1
            if len(report.refused) < _REFUSED_MAX:
                report.refused.append((encode_id(entry.key), f"{verdict.rule}: {verdict.reason}"))


async def _copy_quarantine(source: Store, target: Store) -> int:
    count = 0
    pages = paged(lambda last: source.read(ask(ReadQuarantine(last and last.key, _PAGE))))
    while records := await pages.next_page():
        count += await target.write(add_records(records))
    return count


def add_records(records: Sequence[Quarantined]) -> Plan[int]:
    """Quarantine those records whose entries the log lacks, and return their number."""
    leaves = yield from ask(ReadLeaves([record.key for record in records]))
    wanted = [record for record in records if record.key not in leaves]
    yield from ask(WriteQuarantine(wanted, []))
    return len(wanted)
