"""What keeps a log whole: copies, the quarantine, checks and repairs, and what is left of a damaged one."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial

from ..entry.message_id import decode_id
from ..entry.validation import Outcome, Verdict
from ..errors import LocalProtocolError, ReadOnlyLog
from ..log.fsck import FsckReport
from ..log.requests import Quarantined, ReadQuarantine, WriteQuarantine
from ..plan import ask
from ..store import Store
from ..tasks.pages import Pages
from . import fsck as integrity
from .copying import CopyReport, copy_store
from .reader import PAGE, LogReader
from .salvaging import REPAIRED_RULES, SalvageReport, salvage_store

__all__ = ["LogCare"]


class LogCare(LogReader):
    """The part of `GossipLog` that is for the days on which something is wrong, or moves.

    It inserts by way of the methods of the class that is made of it.
    """

    async def insert_many(self, values: Iterable[bytes]) -> list[Verdict]:
        """See `GossipLog.insert_many`."""
        raise NotImplementedError

    async def verify_many(self, values: Sequence[bytes]) -> list[Verdict]:
        """See `GossipLog.verify_many`."""
        raise NotImplementedError

    async def insert_verified(self, verdicts: Sequence[Verdict], *, is_retry: bool = False) -> list[Verdict]:
        """See `GossipLog.insert_verified`."""
        raise NotImplementedError

    async def _bring_up_to_date(self) -> None:
        """Apply what the applications lack, and build the tables anew that need it."""
        raise NotImplementedError

    async def copy_from(self, other: LogReader, *, on_progress: Callable[[int], None] | None = None) -> CopyReport:
        """Copy another log into this one, entries in the order in which it got them, with its quarantine and its followers' cursors.

        Every entry is verified. What is here already is skipped, so a copy that was interrupted is repeated, and goes on quickly.

        Args:
            other: A log with the same topic, wherever it lies.
            on_progress: Called now and then with the number of entries that were looked at.

        Raises:
            LocalProtocolError: The topics differ.
            ReadOnlyLog: This log is open read-only.
            StoreError: One of the two failed; what was copied before is kept.
        """
        if other.topic != self.topic:
            raise LocalProtocolError(f"topic {other.topic!r}, expected {self.topic!r}")
        if self.read_only:
            raise ReadOnlyLog(f"{self.location} is open read-only")
        return await copy_store(other._store, self._store, self.insert_many, on_progress)

    async def retry_quarantine(self, ids: Iterable[str] | None = None) -> list[Verdict]:
        """Try again to insert what was set aside, all of it or these ids; what passes now leaves the quarantine.

        What a repair set aside may be damaged; that is rejected, and stays. The verdicts hold all the entries: where they are many, iterate
        over `retrying`.
        """
        return [verdict async for _, verdict in self.retrying(ids)]

    def retrying(self, ids: Iterable[str] | None = None, *, rules: Container[str] | None = None) -> Pages[tuple[Quarantined, Verdict]]:
        """Try again as `retry_quarantine` does, a page at a time, as far as it is iterated over.

        The order is causal, so that an entry finds its ancestors back in the log.

        Args:
            ids: Only these; what is not in the quarantine is passed over.
            rules: Only what was set aside under these rules.
        """
        keys = None if ids is None else sorted({decode_id(id) for id in ids})
        after: bytes | None = None

        async def read_records() -> list[Quarantined]:
            nonlocal after, keys
            page: list[Quarantined] = []
            while not page and keys != []:
                wanted = None if keys is None else keys[:PAGE]
                page = await self.run(ask(ReadQuarantine(after, PAGE, wanted)))
                if page:
                    after = page[-1].key
                elif keys is None:
                    break
                else:
                    keys = keys[PAGE:]
            return page

        async def retry_page() -> list[tuple[Quarantined, Verdict]]:
            while records := await read_records():
                chosen = [record for record in records if rules is None or record.rule in rules]
                if chosen:
                    verdicts = await integrity.verify_page(self.verify_many, [record.value for record in chosen])
                    return list(zip(chosen, await self.insert_verified(verdicts, is_retry=True), strict=True))
            return []

        return Pages(retry_page)

    async def forget_damaged(self) -> int:
        """Drop from the quarantine what a repair set aside and is no valid entry; return how many valid ones it leaves there.

        For a log that has been healed: the entries that these were have been fetched again, or nobody has them.
        """
        waiting = 0
        async for record in self.quarantine():
            if record.rule == "damaged" and (await self.verify_many([record.value]))[0].outcome is Outcome.REJECT:
                await self._store.write(ask(WriteQuarantine([], [record.key])))
            elif record.rule in REPAIRED_RULES:
                waiting += 1
        return waiting

    async def fsck(
        self,
        *,
        repair: bool = False,
        dry_run: bool = False,
        set_aside_max: int | None = None,
        on_progress: Callable[[int], None] | None = None,
        on_phase: Callable[[str], None] | None = None,
    ) -> FsckReport:
        """Check every entry and all that is derived from them, on one snapshot, on all cores. About 80 µs of CPU an entry.

        Memory is O(heads) and a page of entries, however many there are.

        Args:
            repair: If something is wrong, build what is derived anew in one transaction, and check again. Entries that are damaged, or
                have lost an ancestor, go to the quarantine under the rules `damaged`, `parents` and `ancestor`; sync from a peer and retry
                them. Applications' tables are then built anew, now or when the log is next opened with them.
            dry_run: Rehearse the repair and roll it back, a file's in a copy: the report says how many entries it would set aside. Also
                of a file that is open read-only.
            set_aside_max: Repair only if no more entries than these are set aside; None for any number.
            on_progress: Called now and then with the number of entries that were checked; anew from 0 for each pass.
            on_phase: Called before each pass after the first, with what it does.

        Raises:
            ReadOnlyLog: A repair was asked for in a log that is open read-only.
            RepairRefused: It would set more entries aside.
            DamagedLog: The file cannot be repaired in place.
            StoreError: The store failed.
        """
        if not repair:
            return await integrity.check(self._store, self.verify_many, on_progress)
        if self.read_only and not dry_run:
            raise ReadOnlyLog(f"{self.location} is open read-only")
        try:
            report = await integrity.check_and_repair(
                self._store, self.verify_many, on_progress, aside_max=set_aside_max, is_rehearsal=dry_run, on_phase=on_phase
            )
        finally:
            # What was set aside is in it no longer.
            self._sketches.drop()
        if not dry_run:
            await self._bring_up_to_date()
        return report

    async def salvage_from(
        self, source: Store | None, pages: Iterable[bytes], *, on_progress: Callable[[int], None] | None = None
    ) -> SalvageReport:
        """Bring in everything that can be read of a damaged log and proves itself. May be repeated: what is here is passed over.

        Valid entries whose ancestors are missing go to the quarantine, under the rule `parents`.

        Args:
            source: The damaged log's store, open for reading; None if it does not open at all. Its topic, too, may be damaged: what it has
                of another one than this log's is left out.
            pages: What else may be VALUEs, as `store/sqlite/pages.py` finds them.
            on_progress: Called now and then with the number of rows that were looked at.

        Raises:
            ReadOnlyLog: This log is open read-only.
            StoreError: This log's store failed; what was salvaged before is kept.
        """
        if self.read_only:
            raise ReadOnlyLog(f"{self.location} is open read-only")
        retry = partial(self.retrying, rules=REPAIRED_RULES)
        verify, insert = self.verify_many, self.insert_verified
        return await salvage_store(source, pages, self._store, verify=verify, insert=insert, retry=retry, on_progress=on_progress)
