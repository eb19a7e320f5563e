"""Salvage: bring every readable and valid entry of a damaged log into another log, and report the missing ones.

Bytes with the form of an entry and a valid signature are an entry, wherever they are found. So rows are read around the damage, and then
the pages of the file one by one. An entry that has lost an ancestor cannot be in a log. It waits in the target's quarantine until the
ancestor comes from a replica.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import TypeAlias

from ..entry.message import Entry
from ..entry.message_id import KEY_BYTES, encode_id
from ..entry.validation import Rule, Verdict
from ..errors import DecodeError
from ..log.fsck import FsckReport
from ..log.fsck_requests import ReadLeafPage
from ..log.requests import Quarantined, ReadHeads, ReadLeaves, ReadQuarantine, ReadQuarantined
from ..plan import Plan, ask
from ..store.base import Reader, Store
from ..tasks.pages import bounded, paged
from ..tree.node import ReadRoot
from .copying import add_records
from .fsck import DAMAGE, Verify, as_bytes, check, read_around, verify_page

MISSING_MAX = 100_000
"""The most missing entries that a report lists. At this number, there may be more."""
_PAGE = 1_000
_PAGE_BYTES = 8 * 1024 * 1024

InsertVerified: TypeAlias = Callable[[Sequence[Verdict]], Awaitable[list[Verdict]]]
Retry: TypeAlias = Callable[[], AsyncIterable[tuple[Quarantined, Verdict]]]


@dataclass(slots=True)
class SalvageReport:
    """The result of a salvage.

    Attributes:
        waiting: Valid entries in the target's quarantine, whose ancestors are missing.
        invalid: Rows of the damaged log that are no valid entries.
        unsupported: Entries of a signature scheme that is not accepted here. They are left out.
        unsupported_reason: Which scheme, extra or variable the first of these lacks.
        gaps: The parts of the damaged log's tables that could not be read.
        missing: Ids that the damaged log's index or an entry names and that were not found, at most `MISSING_MAX`.
        is_equal: Whether the target has the root that the damaged log has by its own account.
        target: The check of the target at the end.
    """

    added: int = 0
    waiting: int = 0
    invalid: int = 0
    unsupported: int = 0
    unsupported_reason: str | None = None
    gaps: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    is_equal: bool = False
    target: FsckReport | None = None

    @property
    def is_complete(self) -> bool:
        """Whether nothing is known to be missing, and the check of the target found no problem."""
        return not self.missing and not self.waiting and not self.unsupported and self.target is not None and self.target.is_clean


async def salvage_store(
    source: Store | None,
    pages: Iterable[bytes],
    target: Store,
    *,
    verify: Verify,
    insert: InsertVerified,
    retry: Retry,
    on_progress: Callable[[int], None] | None,
) -> SalvageReport:
    """Bring every readable and valid entry into `target`; see `GossipLog.salvage_from`.

    Args:
        source: The damaged log, open for reading; None if it cannot be opened.
        retry: Tries again to insert the target's quarantined entries, in key order.
    """
    work = _Salvage(target, verify, insert, on_progress)
    report = work.report
    async with AsyncExitStack() as stack:
        reader: Reader | None = None
        if source is not None:
            try:
                reader = await stack.enter_async_context(source.snapshot())
            except DAMAGE as error:
                report.gaps.append(str(error))
        if reader is not None:
            await work.take_rows(reader)
            await work.take_quarantine(reader)
        for values in bounded(pages, len, count_max=_PAGE, bytes_max=_PAGE_BYTES):
            await work.take(values)
        # In causal order, so one pass inserts all entries whose ancestors have been found meanwhile.
        async for _, verdict in retry():
            report.added += verdict.is_new
        if reader is not None:
            await work.look_for_index(reader)
            report.is_equal = await work.has_root_of(reader)
    await work.look_for_parents()
    report.missing = sorted(encode_id(key) for key in work.missing)
    report.target = await check(target, verify, None)
    return report


class _Salvage:
    """One salvage under way. Memory is O(a page), plus the missing keys."""

    def __init__(self, target: Store, verify: Verify, insert: InsertVerified, on_progress: Callable[[int], None] | None) -> None:
        self.report = SalvageReport()
        self.missing: set[bytes] = set()
        self._unsupported: set[bytes] = set()
        self._target = target
        self._verify = verify
        self._insert = insert
        self._on_progress = on_progress
        self._looked = 0

    async def take_rows(self, reader: Reader) -> None:
        """Take the rows that the database can read, in the order of insertion."""
        async with aclosing(read_around(reader)) as pages:
            async for rows, gap in pages:
                if gap is not None:
                    self.report.gaps.append(gap)
                self.report.invalid += len(rows) - await self.take([as_bytes(value) for _, value in rows])

    async def take(self, values: Sequence[bytes]) -> int:
        """Insert the new and valid values, and quarantine those that have lost an ancestor; return how many are valid."""
        entries = [entry for value in values if (entry := _decode(value)) is not None]
        unknown = await self._find_unknown([entry.key for entry in entries])
        fresh = {entry.key: entry.value for entry in entries if entry.key in unknown}
        verdicts = await self._insert(await verify_page(self._verify, list(fresh.values()))) if fresh else []
        self.report.added += sum(verdict.is_new for verdict in verdicts)
        self._note_unsupported(verdicts)
        now = time.time()
        orphans = [_orphan(verdict, now) for verdict in verdicts if verdict.rule == Rule.PARENTS]
        if orphans:
            await self._target.write(add_records(orphans))
        self._looked += len(values)
        if self._on_progress is not None:
            self._on_progress(self._looked)
        return len(entries) - sum(verdict.outcome.value == "reject" for verdict in verdicts)

    def _note_unsupported(self, verdicts: Sequence[Verdict]) -> None:
        for verdict in verdicts:
            if verdict.rule == Rule.SCHEME and verdict.entry is not None and verdict.entry.key not in self._unsupported:
                # Counted once: a row that the database could read is found again in its page.
                if len(self._unsupported) < MISSING_MAX:
                    self._unsupported.add(verdict.entry.key)
                self.report.unsupported = len(self._unsupported)
                self.report.unsupported_reason = self.report.unsupported_reason or verdict.reason

    async def take_quarantine(self, reader: Reader) -> None:
        """Take the damaged log's quarantine."""
        pages = paged(lambda last: reader.run(ask(ReadQuarantine(last and last.key, _PAGE))))
        try:
            while records := await pages.next_page():
                await self.take([as_bytes(record.value) for record in records])
        except DAMAGE as error:
            self.report.gaps.append(f"the quarantine: {error}")

    async def look_for_index(self, reader: Reader) -> None:
        """Note the entries that the damaged log's index has and the target lacks, and heads: on PostgreSQL a row is its own index."""
        pages = paged(lambda last: reader.run(ask(ReadLeafPage(last and last.key, _PAGE))))
        try:
            heads = await reader.run(ask(ReadHeads(MISSING_MAX)))
            self._miss(await self._find_unknown(heads))
            while rows := await pages.next_page():
                self._miss(await self._find_unknown([row.key for row in rows if type(row.key) is bytes and len(row.key) == KEY_BYTES]))
        except DAMAGE as error:
            self.report.gaps.append(f"the index by key: {error}")

    async def look_for_parents(self) -> None:
        """Count the waiting entries, and note the parents that they lack."""
        pages = paged(lambda last: self._target.read(ask(ReadQuarantine(last and last.key, _PAGE))))
        while records := await pages.next_page():
            waiting = [record for record in records if record.rule != "damaged"]
            self.report.waiting += len(waiting)
            parents = {key for record in waiting for key in Entry(record.key, record.value).parent_keys}
            self._miss(await self._find_unknown(sorted(parents)))

    async def has_root_of(self, reader: Reader) -> bool:
        """Say whether the target's root equals the damaged log's, if that can be read."""
        try:
            return await reader.run(ask(ReadRoot())) == await self._target.read(ask(ReadRoot()))
        except DAMAGE:
            return False

    async def _find_unknown(self, keys: Sequence[bytes]) -> set[bytes]:
        return await self._target.read(_find_unknown(keys))

    def _miss(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            if len(self.missing) < MISSING_MAX:
                self.missing.add(key)


def _find_unknown(keys: Sequence[bytes]) -> Plan[set[bytes]]:
    there = yield from ask(ReadLeaves(keys))
    aside = yield from ask(ReadQuarantined(keys))
    return {key for key in keys if key not in there and key not in aside}


def _orphan(verdict: Verdict, now: float) -> Quarantined:
    assert verdict.entry is not None
    return Quarantined(verdict.entry.key, verdict.entry.value, "parents", verdict.reason or "", now)


def _decode(value: bytes) -> Entry | None:
    try:
        return Entry.stored(value)
    except DecodeError:
        return None
