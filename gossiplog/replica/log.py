"""Replica: a log with its writer, its followers, and what keeps it whole; it knows no network."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, assert_never

import trio

from ..access import Said, encode_said, has_policy
from ..codec import pcf
from ..entry.message import Entry
from ..entry.message_id import decode_id
from ..entry.schemes import usable_schemes
from ..entry.signing import Signer
from ..entry.validation import Outcome, Verdict, validate_many
from ..errors import DamagedLog, GossipLogError, LocalProtocolError, ReadOnlyLog, StoreError
from ..log.access import AccessRule, Void
from ..log.application import Application
from ..log.commit import AppendPayloads, Committed, InsertEntries
from ..log.fsck import FsckReport
from ..log.membership import Membership
from ..log.page import PAGE_BYTES_MAX
from ..log.requests import Quarantined, ReadCount, ReadCursor, ReadQuarantine, WriteCursor, WriteQuarantine
from ..plan import Plan, ask
from ..pull.local import InsertIntoTarget, RunOnSource, RunOnTarget, ViewBoth, Work, sync_steps
from ..pull.machine import ForgetSketch
from ..store import Store
from ..sync.result import SyncResult
from ..sync.source import Source
from ..tasks.block import block
from ..tasks.nursery import open_service_nursery
from ..tasks.ordered import map_ordered
from ..tasks.pages import Pages, bounded
from ..tasks.spans import span
from . import fsck as integrity
from .applications import Applications, Rebuilt, logger
from .copying import CopyReport, copy_store
from .members import choose_admit, choose_grant, choose_leave, choose_revoke
from .presence import Presence
from .reader import PAGE, LogReader
from .salvaging import REPAIRED_RULES, SalvageReport, salvage_store
from .signatures import verifiers
from .sketching import SketchView
from .subscription import Subscription
from .writer import Then, Writer

_CHUNK = 250
"""Values verified per hop into a worker thread."""
_CHUNKS_PER_COMMIT = 4
_SMALL_BYTES = 4096
BEHIND_MAX = 256
"""Entries that may be missing in a sketch: adding them takes 4 ms. To build one takes longer than comparing trees, for no bytes saved."""
_FLUSH_S = 1.0
"""What was acknowledged has so long to be kept when a subscription's block raises or is cancelled."""


class Replica(LogReader):
    """One replica of a log. Open it with `gossiplog.open`; every method may be called from any number of tasks.

    Ids are strings of 32 characters, keys the same in 20 bytes. Where a method takes an id, an unknown one raises NotFound and a
    malformed one DecodeError. A cancelled read does nothing; a cancelled write is done whole or not at all.
    """

    def __init__(
        self,
        store: Store,
        *,
        signer: Signer | None,
        applications: Sequence[Application],
        rule: AccessRule | None,
        schemes: frozenset[str],
        value_bytes_max: int,
        on_rebuild: Callable[[int], None] | None = None,
    ) -> None:
        void = Void()
        super().__init__(store, void)
        self._signer = signer
        self._membership = Membership() if has_policy(store.topic) else None
        self._has_rules = rule is not None or self._membership is not None
        self._schemes = schemes
        self._on_rebuild = on_rebuild
        self._applications = Applications(applications, self._membership)
        self._writer = Writer(
            store,
            applications=self._applications,
            rule=rule,
            void=void,
            membership=self._membership,
            value_bytes_max=value_bytes_max,
            on_commit=self._on_commit,
        )
        self._verifiers = trio.CapacityLimiter(os.cpu_count() or 1)
        self._cursors: set[str] = set()
        # Replaced and set at each commit, so that whoever waits on the old one wakes up.
        self.next_commit = trio.Event()
        self._is_watching = False
        self._others = trio.Event()
        self._listeners: list[Callable[[Sequence[Entry]], None]] = []
        # The logs among which it was opened, if it was: they have one place on the network; see `gossiplog.net.service.service`.
        self.kept_by: object = None
        # For what lives as long as the log is open, as its network does.
        self.tasks: trio.Nursery
        self._presence = Presence(self, self.topic, self._choose_signer)

    @property
    def writer(self) -> Writer:
        """The task that writes, for whoever watches how it does."""
        return self._writer

    @property
    def schemes(self) -> frozenset[str]:
        """The signature schemes whose entries are accepted and can be verified here."""
        return usable_schemes(self._schemes)

    @property
    def presence(self) -> Presence:
        """What is true only now of those who have the log open: told to them, never stored."""
        return self._presence

    @property
    def has_rules(self) -> bool:
        """Whether an entry that is valid may be refused: there is an access rule, or the log has members."""
        return self._has_rules

    async def append(self, payload: Any, *, signer: Signer | None = None) -> Entry:
        """Sign a payload with today's heads as its parents, and append it.

        Returns when the entry is as durable as the log was opened for. Appends of concurrent tasks share commits.

        Args:
            payload: None, bools, numbers, strings, bytes, links, and lists and dicts of them, 64 deep at most. It is normalised as
                JavaScript would: 1.0 becomes 1.
            signer: Instead of the log's own.

        Raises:
            EncodeError: The payload has no portable form, or is too large; it names the path in the payload.
            LocalProtocolError: There is no signer.
            NotAuthorised: The access rule refuses it.
            Rejected: `apply` refuses it with `Reject`; anything else that it raises is raised as it is.
            StoreError: It could not be stored.
        """
        # Not by way of `append_many`: 64 tasks that append at once notice each step.
        work = AppendPayloads((pcf.encode(payload),), self._choose_signer(signer))
        with span("append", self.topic, 1):
            (verdict,) = await self._submit(work)
        assert verdict.entry is not None
        return verdict.entry

    async def append_many(self, payloads: Iterable[Any], *, signer: Signer | None = None) -> list[Entry]:
        """Append several payloads, each with the one before as its parent, in one transaction: all or none. Raises as `append`."""
        signer = self._choose_signer(signer)
        encoded = [pcf.encode(payload) for payload in payloads]
        if not encoded:
            await trio.lowlevel.checkpoint()
            return []
        with span("append", self.topic, len(encoded)):
            verdicts = await self._submit(AppendPayloads(encoded, signer))
        return [verdict.entry for verdict in verdicts if verdict.entry is not None]

    async def grant(
        self, did: str, role: str = "write", *, under: str | None = None, device: bool = False, signer: Signer | None = None
    ) -> Entry:
        """Make somebody a member: append a grant, whose id names the new node.

        Args:
            did: Of an Ed25519 key.
            role: `read`, `write`, or `admin`, who may grant and revoke below the new node.
            under: The signer's node that grants; None for the one closest to a founder that it holds as admin.
            device: Whether it is another key of the person who holds that node. It changes nobody's rights.
            signer: Instead of the log's own.

        Raises:
            LocalProtocolError: The log has no members, or the signer holds no such node.
            NotAuthorised: The rules refuse it.
            StoreError: It could not be stored.
        """
        chosen = self._choose_signer(signer)
        return await self._say(choose_grant(self._members, did, role, under, device, chosen.did), chosen)

    async def revoke(
        self,
        node: str,
        *,
        under: str | None = None,
        keep: Sequence[str] | None = None,
        adopt: Sequence[str] = (),
        signer: Signer | None = None,
    ) -> Entry:
        """Remove a node and all below it: append a revocation, which is a vote if the signer is a founder that is not above the node.

        Whatever was signed there and is no ancestor of the revocation is void from now on, on every replica that gets the revocation.

        Args:
            node: Its name, or the did of somebody who holds one node.
            under: The signer's node; None for the one above the node that is closest to a founder, or for the founder.
            keep: Ids that stay, with all their ancestors, instead of everything that is here now.
            adopt: Nodes right below that go on with all below them.
            signer: Instead of the log's own.

        Raises:
            LocalProtocolError: The log has no members, no such node, or the signer nothing to remove it by.
            NotAuthorised: The rules refuse it.
            StoreError: It could not be stored.
        """
        chosen = self._choose_signer(signer)
        return await self._say(choose_revoke(self._members, node, under, keep, adopt, chosen.did), chosen)

    async def leave(self, node: str | None = None, *, signer: Signer | None = None) -> Entry:
        """Give up a node of one's own, and all below it. Raises as `revoke`.

        Args:
            node: Its name; None for the only one that the signer holds.
            signer: Instead of the log's own.
        """
        chosen = self._choose_signer(signer)
        return await self._say(choose_leave(self._members, node, chosen.did), chosen)

    async def admit(self, ids: Iterable[str], *, under: str | None = None, signer: Signer | None = None) -> Entry:
        """Have data count that revocations made void which were signed under a node or below it. Raises as `grant`.

        Args:
            ids: Of data entries of the log, at most 1,024.
            under: The signer's node; None for the one closest to a founder that it holds as admin.
            signer: Instead of the log's own.
        """
        chosen = self._choose_signer(signer)
        return await self._say(choose_admit(self._members, sorted(set(ids)), under, chosen.did), chosen)

    async def _say(self, choice: Plan[Said], signer: Signer) -> Entry:
        async with self._members_turn:
            said = await self.run(choice)
        return await self.append(encode_said(said), signer=signer)

    async def insert(self, value: bytes) -> Verdict:
        """Verify one VALUE made elsewhere and insert it; see `insert_many`."""
        return (await self.insert_many([value]))[0]

    async def insert_many(self, values: Iterable[bytes]) -> list[Verdict]:
        """Verify VALUEs made elsewhere, on all cores, and insert those that are valid and whose parents are here or before them.

        Commits every 1,000 entries or 8 MiB; of more than that also what is verified so far, where other processes verify the rest
        meanwhile. A cancelled call leaves some of the first entries inserted, each with all its ancestors.

        Returns:
            A verdict for each value, in order: accepted, and new or not; ignored for missing parents; ignored because it is in the
            quarantine; or rejected by the rule that it breaks.

        Raises:
            StoreError: The store failed; the commits before stay.
        """
        chunks = list(bounded(values, len, count_max=_CHUNK, bytes_max=PAGE_BYTES_MAX // _CHUNKS_PER_COMMIT))
        is_long = len(chunks) > _CHUNKS_PER_COMMIT
        sizes = (sum(map(len, chunk)) for chunk in chunks)
        verdicts: list[Verdict] = []
        async with map_ordered(self.verify_many, chunks, ahead=2 * _CHUNKS_PER_COMMIT) as verified:
            group: list[Verdict] = []
            size = 0
            async for chunk in verified:
                group += chunk
                size += next(sizes)
                is_full = len(group) >= _CHUNK * _CHUNKS_PER_COMMIT or size >= PAGE_BYTES_MAX
                if is_full or (is_long and verifiers.are_running and not verified.has_more_ready):
                    verdicts += await self.insert_verified(group)
                    group, size = [], 0
            verdicts += await self.insert_verified(group)
        return verdicts

    async def verify_many(self, values: Sequence[bytes]) -> list[Verdict]:
        """Verify VALUEs in a worker thread, in one hop; insert nothing. For whoever inserts in an order or in batches of its own.

        One small VALUE is verified in place, which takes 90 µs of CPU where the hop alone takes 170.
        """
        if len(values) == 1 and (verdict := self.verify_now(values[0])) is not None:
            await trio.lowlevel.checkpoint()
            return [verdict]
        return await trio.to_thread.run_sync(self._validate, values, limiter=self._verifiers)

    def verify_now(self, value: bytes) -> Verdict | None:
        """Verify one small VALUE without waiting for anything; None for a large one."""
        return self._validate([value])[0] if len(value) <= _SMALL_BYTES else None

    async def insert_verified(self, verdicts: Sequence[Verdict], *, is_retry: bool = False) -> list[Verdict]:
        """Insert what `verify_many` accepted, as one piece of work; return the verdicts with those of the log in their place.

        Concurrent calls share commits. A cancelled call leaves all of it inserted, or nothing.

        Raises:
            StoreError: The store failed; nothing of this call is inserted.
        """
        entries = [verdict.entry for verdict in verdicts if verdict.accepted and verdict.entry is not None]
        if not entries:
            return list(verdicts)
        inserted = iter(await self._submit(InsertEntries(entries, is_retry)))
        return [next(inserted) if verdict.accepted else verdict for verdict in verdicts]

    def insert_then(self, verdicts: Sequence[Verdict], then: Then) -> bool:
        """Insert as `insert_verified`, but return before it is done, and have what that returns or raises handed to a function.

        See `Writer.submit_then` for the step in which this is called, what it may do, and when the answer is False.

        Raises:
            ReadOnlyLog: The log is open read-only.
            ClosedError: It is closed.
        """
        entries = [verdict.entry for verdict in verdicts if verdict.accepted and verdict.entry is not None]

        def finish(outcome: list[Verdict] | Exception) -> None:
            if not isinstance(outcome, Exception):
                inserted = iter(outcome)
                outcome = [next(inserted) if verdict.accepted else verdict for verdict in verdicts]
            then(outcome)

        self._check_writable()
        return self._writer.submit_then(InsertEntries(entries), finish)

    @contextmanager
    def watch_commits(self, listener: Callable[[Sequence[Entry]], None]) -> Iterator[None]:
        """Have the new entries of each commit handed to a function, in their order, until the end of the block.

        It is called in the step that hears of the commit, before whoever wanted the entries written does; it must neither block nor raise.
        What other processes write to a store that is shared does not pass here.
        """
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    @contextmanager
    def watch_set_aside(self, listener: Callable[[str, Entry, str], None]) -> Iterator[None]:
        """Have each entry that an application sets aside handed to a function, with the application's name and the reason; as above."""
        self._applications.on_missed.append(listener)
        try:
            yield
        finally:
            self._applications.on_missed.remove(listener)

    @block("log.subscribe")
    async def subscribe(self, cursor: str | None = None, *, from_now: bool = False) -> AsyncIterator[Subscription]:
        """Follow the log: every entry in the order in which this replica got it, then wait for more.

        Args:
            cursor: A name under which `ack` keeps the place: at least once, each entry until it is acknowledged. None keeps none. At the
                end of the block, however it ends, what was acknowledged is kept.
            from_now: Begin with the next entry, unless the cursor has a place already. Otherwise begin with the first.

        Raises:
            LocalProtocolError: Another subscription has this cursor.
            ReadOnlyLog: A cursor cannot be kept in a log that is open read-only.
        """
        self._watch()
        seq = None
        if cursor is not None:
            if self.read_only:
                message = f"{self.location} is open read-only, so cursor {cursor!r} cannot be kept there"
                raise ReadOnlyLog(message, hint="subscribe without a cursor")
            if cursor in self._cursors:
                raise LocalProtocolError(f"cursor {cursor!r} is in use")
            self._cursors.add(cursor)
        try:
            if cursor is not None:
                seq = await self.run(ask(ReadCursor(cursor)))
            if seq is None:
                seq = (await self.run(ask(ReadCount(counted=False))))[1] if from_now else 0
            events = Subscription(self, cursor, seq)
            if cursor is None:
                yield events
                return
            # In a task of the log's: a generator that serves a browser may yield within this block, and not within a nursery.
            self.tasks.start_soon(events.keep_acks)
            try:
                yield events
            except BaseException:
                with trio.move_on_after(_FLUSH_S, shield=True), suppress(GossipLogError):
                    await events.flush()
                raise
            else:
                await events.flush()
            finally:
                events.stop_keeping()
        finally:
            if cursor is not None:
                self._cursors.discard(cursor)

    async def rebuild(
        self, application: Application | str | None = None, *, on_progress: Callable[[int], None] | None = None
    ) -> list[Rebuilt]:
        """Build an application's tables anew: `reset`, then every entry in causal order, in one transaction that a crash leaves undone.

        Args:
            application: The name of one that the log was opened with, None for all of these; or another one, in any version.
            on_progress: Called now and then with the number of entries that were applied.

        Returns:
            For each application how many entries were applied, and how many of them set aside: nothing stops it but the store.

        Raises:
            LocalProtocolError: The log was opened without it.
            ReadOnlyLog: The log is open read-only.
            StoreError: The store failed; the tables are as they were.
        """
        self._check_writable()
        runner = Applications([application], self._membership) if isinstance(application, Application) else self._applications
        chosen = runner.find(application if isinstance(application, str) else None)
        if not chosen:
            raise LocalProtocolError("there is no application whose tables could be built", hint="open(…, app=…)")
        return [await runner.rebuild(self._store, each, on_progress) for each in chosen]

    async def retry_set_aside(self, application: str | None = None) -> list[Rebuilt]:
        """Apply again what the applications, or the one of this name, could make nothing of.

        That is a rebuild where something that was applied comes after it, unless the application is free of order.

        Returns:
            For each application how many entries were applied, and how many of them it still sets aside.

        Raises:
            LocalProtocolError: The log was opened without it.
            ReadOnlyLog: The log is open read-only.
            StoreError: The store failed; the tables are as they were.
        """
        self._check_writable()
        return [await self._applications.retry(self._store, each) for each in self._applications.find(application)]

    async def sync(self, other: Replica, *, source: Source | None = None) -> SyncResult:
        """Pull what another open log has and this one lacks, over one snapshot of it. Call it on the other one for the other way.

        Args:
            source: What earlier syncs from the same log taught; pass the same one again.

        Raises:
            LocalProtocolError: The topics differ.
            ReadOnlyLog: This log is open read-only.
            RemoteProtocolError: The other log's tree contradicts itself.
        """
        if other.topic != self.topic:
            raise LocalProtocolError(f"topic {other.topic!r}, expected {self.topic!r}")
        self._check_writable()
        sketches = await self._views(other)
        async with other.snapshot() as snapshot:
            steps, answer = sync_steps(source), None
            while True:
                try:
                    step, answer = steps.send(answer), None
                except StopIteration as stop:
                    result: SyncResult = stop.value
                    return result
                match step:
                    case RunOnTarget(plan):
                        answer = await self.run(plan)
                    case RunOnSource(plan):
                        answer = await snapshot.run(plan)
                    case InsertIntoTarget(entries):
                        answer = await self.insert_many([value for _, value in entries])
                    case ViewBoth():
                        answer = sketches
                    case ForgetSketch():
                        await self.forget_sketch()
                    case Work(call):
                        answer = await trio.to_thread.run_sync(call)
                    case _:
                        assert_never(step)

    async def _views(self, other: Replica) -> tuple[SketchView, SketchView] | None:
        """The sketches of two logs, if neither has far to go and no row that is to be added is damaged: trees do without it."""
        try:
            if max(await self.sketch_behind(), await other.sketch_behind()) > BEHIND_MAX:
                return None
            return await self.sketch(), await other.sketch()
        except DamagedLog:
            return None

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
        self._check_writable()
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
        if not dry_run:
            self._check_writable()
        try:
            report = await integrity.check_and_repair(
                self._store, self.verify_many, on_progress, aside_max=set_aside_max, is_rehearsal=dry_run, on_phase=on_phase
            )
        finally:
            # What was set aside is in it no longer.
            self._sketches.drop()
        if not dry_run:
            await self._applications.bring_up_to_date(self._store, self._on_rebuild)
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
        self._check_writable()
        retry = partial(self.retrying, rules=REPAIRED_RULES)
        verify, insert = self.verify_many, self.insert_verified
        return await salvage_store(source, pages, self._store, verify=verify, insert=insert, retry=retry, on_progress=on_progress)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the writer for the length of a block, and after it whatever was submitted within.

        Before it, applications get what was stored without them.
        """
        if not self.read_only:
            await self._applications.bring_up_to_date(self._store, self._on_rebuild)
        async with open_service_nursery() as nursery:
            if self.read_only:
                self._writer.close()
            else:
                nursery.start_soon(self._writer.run)
            async with open_service_nursery() as self.tasks:
                if self._applications and self.is_shared and not self.read_only:
                    self._watch()
                    self.tasks.start_soon(self._follow)
                yield
                self.tasks.cancel_scope.cancel()
            self._writer.close()

    def _choose_signer(self, signer: Signer | None) -> Signer:
        chosen = signer or self._signer
        if chosen is None:
            raise LocalProtocolError("appending needs a signer", hint="open(…, signer=…) or append(…, signer=…)")
        return chosen

    async def _submit(self, work: AppendPayloads | InsertEntries) -> list[Verdict]:
        self._check_writable()
        return await self._writer.submit(work)

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyLog(f"{self.location} is open read-only")

    async def write_cursor(self, request: WriteCursor) -> None:
        """Keep a cursor, durably, in a commit that others may share."""
        await self._writer.submit(request)

    def _validate(self, values: Sequence[bytes]) -> list[Verdict]:
        return validate_many(values, topic=self.topic, schemes=self._schemes, verify_apart=verifiers.verify)

    def _on_commit(self, committed: Committed) -> None:
        if committed.entries:
            entries = [entry for _, entry in committed.entries]
            for listener in self._listeners:
                listener(entries)
            self._wake_followers()

    def _watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            self._store.watch(self._on_others)

    def _on_others(self) -> None:
        self._others.set()
        self._wake_followers()

    async def _follow(self) -> None:
        """Apply what other processes store without our applications."""
        while True:
            self._others = trio.Event()
            try:
                for application in self._applications.find(None):
                    await self._applications.follow(self._store, application)
            except StoreError as error:
                # The next commit says what is wrong, if it still is.
                logger.warning("applications cannot follow: %s", error)
            with trio.move_on_after(self.poll_s):
                await self._others.wait()

    def _wake_followers(self) -> None:
        changed, self.next_commit = self.next_commit, trio.Event()
        changed.set()
