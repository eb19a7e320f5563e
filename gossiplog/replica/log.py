"""Replica: a log with its writer, its followers, and the tools that check and repair it. It knows nothing of networks."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any

import trio

from ..access import Members, Said, encode_said
from ..codec import pcf
from ..entry.message import Entry
from ..entry.message_id import decode_id
from ..entry.schemes import usable_schemes
from ..entry.signing import Signer
from ..entry.validation import Outcome, Verdict, validate_many
from ..errors import DamagedLog, GossipLogError, LocalProtocolError, ReadOnlyLog, StoreError
from ..log.access import AccessRule, Void
from ..log.application import Application
from ..log.commit import AppendPayloads, Committed, InsertEntries, LogRules
from ..log.fsck import FsckReport
from ..log.membership import Membership
from ..log.page import PAGE_BYTES_MAX
from ..log.requests import Quarantined, ReadCount, ReadCursor, ReadQuarantine, WriteQuarantine
from ..plan import Plan, ask
from ..store import Store, TalkingStore
from ..sync.result import SyncResult
from ..sync.source import Source
from ..tasks.block import block
from ..tasks.nursery import open_service_nursery
from ..tasks.ordered import map_ordered
from ..tasks.pages import Pages, bounded
from ..tasks.spans import span
from ..tree.node import key_before
from . import fsck as integrity
from .applications import Applications, Rebuilt, logger
from .copying import CopyReport, copy_store
from .members import choose_admit, choose_grant, choose_leave, choose_revoke
from .presence import Presence
from .pulling import pull_locally
from .reader import PAGE, LogReader
from .salvaging import SalvageReport, salvage_store
from .signatures import verifiers
from .sketching import SketchView
from .subscription import Subscription
from .writer import Then, Writer

_CHUNK = 250
"""Values verified per hop into a worker thread."""
_CHUNKS_PER_COMMIT = 4
_SMALL_BYTES = 4096
BEHIND_MAX = 256
"""How many entries a sketch may lack for a sync to use it. Adding these takes 4 ms; building a whole sketch takes longer than comparing
trees."""
_FLUSH_S = 1.0
"""How long a subscription may take to keep its cursor after its block has raised or was cancelled."""
_CURSOR_CHARS_MAX = 500
"""An index of PostgreSQL's takes 2,704 bytes, and a character up to 4."""


class Replica(LogReader):
    """A log that can be read and written to. Open it with `gossiplog.open`, which adds the network: see `GossipLog`.

    Attributes:
        writer: Commits what is submitted; its figures are for monitoring.
        kept_by: The `OpenLogs` that hold it, if any do: their logs share one place on the network.
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
        self._signer = signer and self._choose_signer(signer)
        self._membership = Membership() if self.has_members else None
        self.has_rules = rule is not None or self.has_members
        self._schemes = schemes
        self._on_rebuild = on_rebuild
        self._applications = Applications(applications, self._membership)
        self.writer = Writer(
            store,
            applications=self._applications,
            rules=LogRules(store.topic, rule, void, self._membership, value_bytes_max),
            on_commit=self._on_commit,
        )
        self._verifiers = trio.CapacityLimiter(os.cpu_count() or 1)
        self._cursors: set[str] = set()
        self._is_watching = False
        self._others = trio.Event()
        self.kept_by: object = None
        self.presence = Presence(self, self._choose_signer, store if isinstance(store, TalkingStore) else None)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic} at {self.location}>"

    def __reduce__(self) -> str:
        raise TypeError("an open log cannot be pickled; open it in the other process")

    @property
    def schemes(self) -> frozenset[str]:
        """The signature schemes that are accepted and can be verified here."""
        return usable_schemes(self._schemes)

    async def append(self, payload: Any, *, signer: Signer | None = None) -> Entry:
        """Sign a payload on top of the present heads, and append it.

        Returns once the entry is as durable as `open` was asked for. Appends of concurrent tasks share commits.

        Args:
            payload: None, bools, numbers, strings, bytes, links, and lists and dicts of these, at most 64 deep. Numbers are stored as
                JavaScript would: 1.0 becomes 1.
            signer: Used instead of the log's own signer, here and in the methods below.

        Raises:
            EncodeError: The payload has no portable form, or is too large. The error names the path in the payload.
            LocalProtocolError: There is no signer.
            NotAuthorised: The access rule refuses the entry.
            Rejected: `apply` refuses it with `Reject`. Any other exception of `apply` is raised as it is.
            StoreError: The entry could not be stored.
        """
        # Not through `append_many`: with 64 tasks that append at once, every step counts.
        work = AppendPayloads((pcf.encode(payload),), self._choose_signer(signer))
        with span("append", self.topic, 1):
            (verdict,) = await self._submit(work)
        assert verdict.entry is not None
        return verdict.entry

    async def append_many(self, payloads: Iterable[Any], *, signer: Signer | None = None) -> list[Entry]:
        """Append several payloads in one transaction, all or none, each on top of the one before. Raises as `append`."""
        signer = self._choose_signer(signer)
        if isinstance(payloads, str | bytes | dict):
            raise LocalProtocolError(f"one payload, a {type(payloads).__name__}, expected several", hint="append(payload) appends one")
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
            did: The member's did, of an Ed25519 key.
            role: `read`, `write`, or `admin`; an admin may grant and revoke below the new node.
            under: The signer's node that grants. By default the one closest to a founder that the signer holds as admin.
            device: Whether the did is another key of the person who holds that node. It changes nobody's rights.

        Raises:
            LocalProtocolError: The log has no members, or the signer holds no such node.
            NotAuthorised: The rules refuse the grant.
            StoreError: It could not be stored.
        """
        return await self._say(partial(choose_grant, did, role, under, device), signer)

    async def revoke(
        self,
        node: str,
        *,
        under: str | None = None,
        keep: Sequence[str] | None = None,
        adopt: Sequence[str] = (),
        signer: Signer | None = None,
    ) -> Entry:
        """Remove a node and all nodes below it, by appending a revocation. From a founder who is not above the node, it is a vote.

        On every replica that gets the revocation, everything signed under these nodes is void, except ancestors of the revocation.

        Args:
            node: The node's name, or the did of somebody who holds one node.
            under: The signer's node. By default the one above `node` that is closest to a founder, or the founder's own for a vote.
            keep: Ids that stay valid, with all their ancestors, instead of everything that is here now.
            adopt: Nodes right below that stay, with all nodes below them.

        Raises:
            LocalProtocolError: The log has no members or no such node, or the signer has no node to remove it from.
            NotAuthorised: The rules refuse the revocation.
            StoreError: It could not be stored.
        """
        return await self._say(partial(choose_revoke, node, under, keep, adopt), signer)

    async def leave(self, node: str | None = None, *, signer: Signer | None = None) -> Entry:
        """Give up a node of the signer's own, and all nodes below it. Raises as `revoke`.

        Args:
            node: Its name. By default the only node that the signer holds.
        """
        return await self._say(partial(choose_leave, node), signer)

    async def admit(self, ids: Iterable[str], *, under: str | None = None, signer: Signer | None = None) -> Entry:
        """Let void data count again, if the revocations that made it void were signed at or below the signer's node. Raises as `grant`.

        Args:
            ids: At most 1,024 data entries of the log.
            under: The signer's node. By default the one closest to a founder that the signer holds as admin.
        """
        return await self._say(partial(choose_admit, sorted(set(ids)), under), signer)

    async def _say(self, choose: Callable[[Members, str], Said], signer: Signer | None) -> Entry:
        chosen = self._choose_signer(signer)
        said = await self._of_members(lambda members: choose(members, chosen.did))
        return await self.append(encode_said(said), signer=chosen)

    async def insert(self, value: bytes) -> Verdict:
        """Verify and insert one VALUE made elsewhere; see `insert_many`."""
        return (await self.insert_many([value]))[0]

    async def insert_many(self, values: Iterable[bytes]) -> list[Verdict]:
        """Verify VALUEs made elsewhere, on all cores, and insert the valid ones whose parents are in the log or earlier in `values`.

        There is a commit every 1,000 entries or 8 MiB, and sooner while other processes verify the rest. A cancelled call has inserted
        some of the first entries, each with all its ancestors.

        Returns:
            A verdict for each value, in order: accepted, new or not; ignored for missing parents; ignored because it is in the
            quarantine; or rejected by the rule that it breaks.

        Raises:
            StoreError: The store failed. Earlier commits stay.
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
        """Verify VALUEs in a worker thread, in one hop, and insert nothing. For callers that choose their own order and batches.

        A single small VALUE is verified in place: that takes 90 µs of CPU, and the hop alone would take 170.
        """
        if len(values) == 1 and (verdict := self.verify_now(values[0])) is not None:
            await trio.lowlevel.checkpoint()
            return [verdict]
        return await trio.to_thread.run_sync(self._validate, values, limiter=self._verifiers)

    def verify_now(self, value: bytes) -> Verdict | None:
        """Verify one small VALUE without waiting; return None for a large one."""
        return self._validate([value])[0] if len(value) <= _SMALL_BYTES else None

    async def insert_verified(self, verdicts: Sequence[Verdict], *, is_retry: bool = False) -> list[Verdict]:
        """Insert the entries that `verify_many` accepted, as one piece of work, and replace their verdicts by the log's.

        Concurrent calls share commits. A cancelled call has inserted everything or nothing.

        Raises:
            StoreError: The store failed; nothing of this call is inserted.
        """
        entries = [verdict.entry for verdict in verdicts if verdict.accepted and verdict.entry is not None]
        if not entries:
            return list(verdicts)
        inserted = iter(await self._submit(InsertEntries(entries, is_retry)))
        return [next(inserted) if verdict.accepted else verdict for verdict in verdicts]

    def insert_then(self, verdicts: Sequence[Verdict], then: Then) -> bool:
        """Insert as `insert_verified`, but return at once; `then` is called with the verdicts or the error.

        See `Writer.submit_then` for when `then` is called, what it may do, and when the answer is False.

        Raises:
            ClosedError: The log is closed.
        """
        entries = [verdict.entry for verdict in verdicts if verdict.accepted and verdict.entry is not None]

        def finish(outcome: list[Verdict] | Exception) -> None:
            if not isinstance(outcome, Exception):
                inserted = iter(outcome)
                outcome = [next(inserted) if verdict.accepted else verdict for verdict in verdicts]
            then(outcome)

        self._check_writable()
        return self.writer.submit_then(InsertEntries(entries), finish)

    @contextmanager
    def watch_set_aside(self, listener: Callable[[str, Entry, str], None]) -> Iterator[None]:
        """Have a function called with the application's name, the entry and the reason whenever an application sets one aside."""
        self._applications.on_missed.append(listener)
        try:
            yield
        finally:
            self._applications.on_missed.remove(listener)

    @block("log.subscribe")
    async def subscribe(self, cursor: str | None = None, *, from_now: bool = False) -> AsyncIterator[Subscription]:
        """Follow the log: iterate over all entries in the order in which they arrived here, then wait for more.

        Args:
            cursor: A name under which `ack` keeps the place, so that each entry is delivered until it is acknowledged, at least once. At
                the end of the block, however it ends, the last acknowledged place is kept. Without a name, no place is kept.
            from_now: Begin with the next entry instead of the first, unless the cursor already has a place.

        Raises:
            LocalProtocolError: Another subscription has this cursor, or its name has over 500 characters or is one no database can store.
            ReadOnlyLog: A cursor cannot be kept in a log that is open read-only.
        """
        self._watch()
        seq = None
        if cursor is not None:
            if self.read_only:
                message = f"{self.location} is open read-only, so cursor {cursor!r} cannot be kept there"
                raise ReadOnlyLog(message, hint="subscribe without a cursor")
            if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in cursor):
                raise LocalProtocolError(f"cursor {cursor!r} contains NUL or half of a surrogate pair, which no database can store")
            if len(cursor) > _CURSOR_CHARS_MAX:
                raise LocalProtocolError(f"the name of a cursor has {len(cursor)} characters, at most {_CURSOR_CHARS_MAX} are allowed")
            if cursor in self._cursors:
                raise LocalProtocolError(f"cursor {cursor!r} is in use")
            self._cursors.add(cursor)
        try:
            if cursor is not None:
                seq = await self.run(ask(ReadCursor(cursor)))
            if seq is None:
                seq = (await self.run(ask(ReadCount(counted=False))))[1] if from_now else 0
            events = Subscription(self, cursor, seq, self.writer.submit)
            if cursor is None:
                yield events
                return
            # In a task of the log: a generator that serves a browser may yield within this block, but not within a nursery.
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
        """Rebuild an application's tables in one transaction: `reset`, then every entry in causal order. A crash changes nothing.

        Args:
            application: The name of an application that the log was opened with, or any other application. By default, all that the log was
                opened with.
            on_progress: Called now and then with the number of entries that were applied.

        Returns:
            For each application, how many entries were applied and how many were set aside. Only the store can stop a rebuild.

        Raises:
            LocalProtocolError: The log was opened without that application.
            StoreError: The store failed; the tables are as they were.
        """
        self._check_writable()
        runner = Applications([application], self._membership) if isinstance(application, Application) else self._applications
        chosen = runner.find(application if isinstance(application, str) else None)
        if not chosen:
            raise LocalProtocolError("there is no application whose tables could be built", hint="open(…, app=…)")
        return [await runner.rebuild(self._store, each, on_progress) for each in chosen]

    async def retry_set_aside(self, application: str | None = None) -> list[Rebuilt]:
        """Apply again the entries that the applications, or the one of this name, have set aside.

        If later entries that build on them have been applied, the tables are rebuilt, unless the application is order-free.

        Returns:
            For each application, how many entries were applied and how many are still set aside.

        Raises:
            LocalProtocolError: The log was opened without that application.
            StoreError: The store failed; the tables are as they were.
        """
        self._check_writable()
        return [await self._applications.retry(self._store, each) for each in self._applications.find(application)]

    async def sync(self, other: Replica, *, source: Source | None = None) -> SyncResult:
        """Pull the entries of another open log of the same topic that this one lacks, from one snapshot of that log.

        Args:
            source: What earlier syncs learned about that log; pass the same object each time.

        Raises:
            LocalProtocolError: The topics differ.
            RemoteProtocolError: The other log's tree contradicts itself.
        """
        if other.topic != self.topic:
            raise LocalProtocolError(f"topic {other.topic!r}, expected {self.topic!r}")
        self._check_writable()
        sketches = await self._views(other)
        async with other.snapshot() as snapshot:

            async def insert(entries: Sequence[tuple[bytes, bytes]]) -> list[Verdict]:
                return await self.insert_many([value for _, value in entries])

            return await pull_locally(self.run, insert, snapshot.run, sketches=sketches, forget_sketch=self.forget_sketch, source=source)

    async def _views(self, other: Replica) -> tuple[SketchView, SketchView] | None:
        """Return the sketches of both logs; None to compare trees, because a sketch is far behind or would need a damaged row."""
        try:
            if max(await self.sketch_behind(), await other.sketch_behind()) > BEHIND_MAX:
                return None
            return await self.sketch(), await other.sketch()
        except DamagedLog:
            return None

    async def copy_from(self, other: LogReader, *, on_progress: Callable[[int], None] | None = None) -> CopyReport:
        """Copy another log into this one: its entries in the order of their insertion, its quarantine and its followers' cursors.

        Every entry is verified. Entries that are already here are skipped, so an interrupted copy can be repeated and resumes quickly.

        Args:
            other: A log with the same topic, wherever it lies.
            on_progress: Called now and then with the number of entries that were looked at.

        Raises:
            LocalProtocolError: The topics differ.
            StoreError: One of the two stores failed. Entries that were already copied are kept.
        """
        if other.topic != self.topic:
            raise LocalProtocolError(f"topic {other.topic!r}, expected {self.topic!r}")
        self._check_writable()
        return await copy_store(other._store, self._store, self.insert_many, on_progress)

    async def retry_quarantine(self, ids: Iterable[str] | None = None) -> list[Verdict]:
        """Try again to insert entries from the quarantine, all of them or these ids. Entries that pass leave the quarantine.

        Damaged entries, which a repair may have put there, are rejected and stay. The verdicts hold all the entries; if there are many,
        iterate over `retrying` instead.
        """
        return [verdict async for _, verdict in self.retrying(ids)]

    def retrying(self, ids: Iterable[str] | None = None) -> Pages[tuple[Quarantined, Verdict]]:
        """Retry as `retry_quarantine` does, a page at a time while it is iterated over, ancestors first.

        Args:
            ids: Only these; ids that are not in the quarantine are skipped.
        """
        keys = sorted({decode_id(id) for id in ids or ()}, reverse=True)
        pages = self.quarantine() if ids is None else Pages(lambda: self.run(_next_quarantined(keys)))

        async def retry_page() -> list[tuple[Quarantined, Verdict]]:
            records = await pages.next_page()
            verdicts = await integrity.verify_page(self.verify_many, [record.value for record in records])
            return list(zip(records, await self.insert_verified(verdicts, is_retry=True), strict=True))

        return Pages(retry_page)

    async def forget_damaged(self) -> int:
        """Drop rows from the quarantine that a repair put there and that are no valid entries. Return how many records remain.

        For a healed log: the originals of the dropped rows have been fetched again, or nobody has them.
        """
        waiting = 0
        async for record in self.quarantine():
            if record.rule == "damaged" and (await self.verify_many([record.value]))[0].outcome is Outcome.REJECT:
                await self._store.write(ask(WriteQuarantine([], [record.key])))
            else:
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
        """Check every entry, and everything derived from the entries, on one snapshot and all cores. About 80 µs of CPU per entry.

        Memory is O(heads) plus a page of entries.

        Args:
            repair: If something is wrong, rebuild what is derived in one transaction, and check again. Entries that are damaged or have
                lost an ancestor go to the quarantine, under the rules `damaged`, `parents` and `ancestor`; sync from a peer, then retry
                them. Applications' tables are rebuilt now, or when the log is next opened with the application.
            dry_run: Rehearse the repair and roll it back; a file is rehearsed on in a copy, and may be open read-only. The report says how
                many entries a repair would set aside.
            set_aside_max: Repair only if at most this many entries are set aside. By default any number.
            on_progress: Called now and then with the number of checked entries. Each pass begins at 0.
            on_phase: Called before each pass except the first, with a description of the pass.

        Raises:
            ReadOnlyLog: A repair was asked for, and the log is open read-only.
            RepairRefused: The repair would set more entries aside.
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
            # Sketches may still contain entries that were set aside.
            self._sketches.drop()
        if not dry_run:
            await self._applications.bring_up_to_date(self._store, self._on_rebuild)
        return report

    async def salvage_from(
        self, source: Store | None, pages: Iterable[bytes], *, on_progress: Callable[[int], None] | None = None
    ) -> SalvageReport:
        """Bring in every valid entry that can be read from a damaged log. It can be repeated; entries that are already here are skipped.

        Valid entries whose ancestors are missing go to the quarantine, under the rule `parents`.

        Args:
            source: The damaged log's store, open for reading; None if it cannot be opened. Its topic may be damaged too: entries of
                another topic than this log's are left out.
            pages: Further bytes that may be VALUEs, as `store/sqlite/pages.py` finds them.
            on_progress: Called now and then with the number of rows that were read.

        Raises:
            StoreError: This log's store failed. Entries that were already salvaged are kept.
        """
        self._check_writable()
        verify, insert = self.verify_many, self.insert_verified
        return await salvage_store(source, pages, self._store, verify=verify, insert=insert, retry=self.retrying, on_progress=on_progress)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the writer for the length of a block. At its end, all submitted work is committed.

        Applications first get the entries that were stored without them.
        """
        if not self.read_only:
            await self._applications.bring_up_to_date(self._store, self._on_rebuild)
        async with open_service_nursery(waits=True) as nursery:
            if self.read_only:
                self.writer.close()
            else:
                nursery.start_soon(self.writer.run)
            async with open_service_nursery() as self.tasks:
                if self._applications and self.is_shared and not self.read_only:
                    self._watch()
                    self.tasks.start_soon(self._follow)
                yield
            self.writer.close()

    def _choose_signer(self, signer: Signer | None) -> Signer:
        chosen = signer or self._signer
        if chosen is None:
            raise LocalProtocolError("appending needs a signer", hint="open(…, signer=…) or append(…, signer=…)")
        if not hasattr(chosen, "sign"):
            raise LocalProtocolError(f"a {type(chosen).__name__} is no signer", hint="Ed25519Signer.load(path) reads the file of a key")
        return chosen

    async def _submit(self, work: AppendPayloads | InsertEntries) -> list[Verdict]:
        self._check_writable()
        return await self.writer.submit(work)

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyLog(f"{self.location} is open read-only")

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
        """Apply the entries that other processes store without our applications."""
        while True:
            self._others = trio.Event()
            try:
                for application in self._applications.find(None):
                    await self._applications.follow(self._store, application)
            except StoreError as error:
                # If it persists, the next commit raises it.
                logger.warning("applications cannot follow: %s", error)
            with trio.move_on_after(self.poll_s):
                await self._others.wait()

    def _wake_followers(self) -> None:
        changed, self.next_commit = self.next_commit, trio.Event()
        changed.set()


def _next_quarantined(keys: list[bytes]) -> Plan[list[Quarantined]]:
    """Read a page of the quarantine's records with these keys, the last key first. Keys that were looked up are removed from the list."""
    found: list[Quarantined] = []
    room = PAGE_BYTES_MAX
    while keys and len(found) < PAGE and room > 0:
        key = keys.pop()
        for record in (yield from ask(ReadQuarantine(key_before(key), 1))):
            if record.key == key:
                found.append(record)
                room -= len(record.value)
    return found
