"""What the broadcast machine's intake wants done: values are verified, entries inserted, the log followed, and whoever waits is told.

What is small and comes alone is verified in the step that brings it, what comes in numbers in worker threads. What was committed is
decided upon in the step that commits it: a task for either would have to be woken up for each entry.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import trio

from ...broadcast import (
    BatchBrought,
    BatchDecided,
    BatchInserted,
    BatchVerified,
    Bringer,
    EntriesCommitted,
    EntryDecided,
    Event,
    InsertBatch,
    InsertEntry,
    NotStored,
    PeerKind,
    VerifyBatch,
)
from ...entry.message import Entry
from ...entry.message_id import encode_id
from ...entry.validation import Outcome, Rule, Verdict
from ...errors import ClosedError, DecodeError, GossipLogError, StoreError
from ...limits import TokenBucket
from ...pubsub.types import PeerId
from ...replica.log import Replica
from ...tasks.sleeper import Sleeper
from ...tasks.spans import span
from ..ground.journal import note
from .figures import Figures
from .observer import Observer
from .peers import Peer

__all__ = ["CLOSING", "IntakeWork", "Strangers"]

CLOSING = "the log is being closed"

_AT_ONCE = 4
"""Small values that are verified in the step that brings them, before others get their turn and what has been verified is committed."""
_RETRY_S = 5.0
SLOWED_PER_S = 10.0
"""Entries that are verified in a second from all strangers of a place where others offended."""
SLOWED_SYNCED = 10
"""Entries of a sync that count as one of a push for a stranger who is slowed: it is us who asked for them."""
ORIGINS_MAX = 4_096
_COUNTED = {Outcome.ACCEPT: "entries accepted", Outcome.IGNORE: "entries ignored", Outcome.REJECT: "entries rejected"}


class Strangers:
    """Makes strangers wait their turn: those from where others offended.

    Args:
        is_slowed: Whether a peer is one who has to, at a time.
        clock: Says what time it is, in seconds of the event loop.
    """

    def __init__(self, is_slowed: Callable[[PeerId, float], bool], clock: Callable[[], float]) -> None:
        self._is_slowed = is_slowed
        self._clock = clock
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def has_to_wait(self, peer: Peer) -> bool:
        """Whether a peer's entries are verified slowly."""
        return peer.origin is not None and self._is_slowed(peer.id, self._clock())

    async def wait(self, peer: Peer, count: int) -> None:
        """Wait until so many entries of a peer may be verified: at once, as a rule."""
        while count > 0 and peer.origin is not None and self._is_slowed(peer.id, now := self._clock()):
            bucket = self._buckets.setdefault(peer.origin, TokenBucket(SLOWED_PER_S, SLOWED_PER_S, now))
            if len(self._buckets) > ORIGINS_MAX:
                self._buckets.popitem(last=False)
            count -= bucket.take(count, now)
            if count > 0:
                peer.note_once("slowed", "a stranger is slowed", address=peer.origin, reason="others from there sent what is invalid")
                await trio.sleep_until(bucket.ready_at(now))


class Owner(Protocol):
    """The service that entries come in to.

    Attributes:
        log: Its log.
        strangers: Whom of its peers has to wait.
        figures: What it has done so far.
        observer: Told of what a sync brought; None where nobody wants to know.
    """

    log: Replica
    strangers: Strangers
    figures: Figures
    observer: Observer | None

    @property
    def peers(self) -> Mapping[PeerId, Peer]:
        """Who is connected."""
        ...

    def tell(self, event: Event) -> None:
        """Hand an event to the broadcast machine."""
        ...

    def count(self, what: str, number: int = 1) -> None:
        """Count something that happened."""
        ...


class IntakeWork:
    """Does what the intake of one service asks for, and answers with `tell`.

    Args:
        service: Whose intake it is.
    """

    def __init__(self, service: Owner) -> None:
        self._service = service
        self._log = service.log
        self._at_once_left = _AT_ONCE
        self._job: VerifyBatch | None = None
        self._worker = Sleeper()
        self._nursery: trio.Nursery | None = None
        # Who waits for a `BatchDecided`, by its ticket.
        self._waiting: dict[int, _Waiter] = {}
        self._tickets = 0

    # For whoever brings entries

    async def insert_synced(self, peer: Peer, way: str, entries: Sequence[tuple[bytes, bytes]]) -> list[Verdict]:
        """Take in the `(key, VALUE)` that a sync with a peer brought, by which way it was; return their verdicts.

        The caller compares the keys. Cancelled, the entries are taken in all the same.
        """
        service = self._service
        await service.strangers.wait(peer, 1 + len(entries) // SLOWED_SYNCED)
        verdicts = await self.take_in(way, entries, peer.bringer)
        for (key, _), verdict in zip(entries, verdicts, strict=True):
            _note_refusal(peer, key, verdict)
            peer.refusal_box.add(key, verdict)
            service.figures.count("sync", verdict)
        if service.observer is not None:
            service.observer.on_synced(peer.id, way, [key for key, _ in entries], verdicts)
        return verdicts

    async def take_in(self, way: str, entries: Sequence[tuple[bytes, bytes]], bringer: Bringer) -> list[Verdict]:
        """Take in entries that somebody waits for; return their verdicts. Cancelled, the entries are taken in all the same.

        Args:
            way: `sync`, `reconcile` or `post`.
            entries: The key under which each came, for whoever asks, and its VALUE.
            bringer: The rules that they are under.
        """
        self._tickets += 1
        ticket, waiter = self._tickets, _Waiter()
        self._waiting[ticket] = waiter
        try:
            if self._nursery is not None:
                self._service.tell(BatchBrought(ticket, way, entries, bringer))
                await waiter.is_decided.wait()
        finally:
            del self._waiting[ticket]
        if waiter.verdicts is None:
            return [Verdict(Outcome.IGNORE, Rule.STORAGE, CLOSING)] * len(entries)
        return list(waiter.verdicts)

    # What the machine asks for

    def verify(self, action: VerifyBatch) -> None:
        """Verify now what is small and no more than a few, unless others have to have their turn; else in the task."""
        cost = len(action.values) or 1
        if cost <= self._at_once_left and (verdicts := self._verify_now(action.values)) is not None:
            self._at_once_left -= cost
            self._service.tell(BatchVerified(action.token, verdicts))
        elif self._worker.is_asleep:
            self._job = action
            self._worker.wake()
        elif self._nursery is not None:
            self._nursery.start_soon(self._verify, action)

    def _verify_now(self, values: Sequence[bytes]) -> list[Verdict] | None:
        verdicts = []
        for value in values:
            verdict = self._log.verify_now(value)
            if verdict is None:
                return None
            verdicts.append(verdict)
        return verdicts

    async def _verify(self, action: VerifyBatch) -> None:
        if action.values:
            verdicts = await self._log.verify_many(action.values)
        else:
            await trio.lowlevel.checkpoint()
            verdicts = []
        self._at_once_left = _AT_ONCE
        self._service.tell(BatchVerified(action.token, verdicts))

    def insert(self, action: InsertBatch) -> None:
        """Hand a batch to the log; if that has too much to do, wait for it in a task."""
        began_ns = time.time_ns()
        try:
            is_taken = self._log.insert_then(action.verdicts, partial(self._on_inserted, action, began_ns))
        except GossipLogError as error:
            self._on_inserted(action, began_ns, error)
            return
        if not is_taken and self._nursery is not None:
            self._nursery.start_soon(self._insert, action, began_ns)

    async def _insert(self, action: InsertBatch, began_ns: int) -> None:
        try:
            outcome: list[Verdict] | BaseException = await self._log.insert_verified(action.verdicts)
        except Exception as error:
            outcome = error
        self._on_inserted(action, began_ns, outcome)

    def _on_inserted(self, action: InsertBatch, began_ns: int, outcome: list[Verdict] | BaseException) -> None:
        told: list[Verdict] | NotStored
        if isinstance(outcome, BaseException):
            told = _explain(outcome, len(action.verdicts), action.way)
        else:
            told = outcome
            with span("receive", self._log.topic, len(outcome), began_ns) as note_attributes:
                note_attributes(new=sum(verdict.is_new for verdict in outcome))
        self._at_once_left = _AT_ONCE
        self._tell_safely(BatchInserted(action.token, told))

    def on_decided(self, action: EntryDecided) -> None:
        """Count and tell what became of an entry that was pushed or gossiped."""
        service, source, verdict = self._service, action.entry.source, action.verdict
        service.count("entries known" if verdict.accepted and not verdict.is_new else _COUNTED[verdict.outcome])
        peer = service.peers.get(source)
        service.figures.count("gossip" if peer is not None and peer.kind is PeerKind.MESH else "push", verdict)
        if peer is None:
            return
        # Of a peer that went and came back, what it sent before may be decided upon now.
        peer.inserting = max(0, peer.inserting - 1)
        peer.settled.set()
        _note_refusal(peer, action.entry.key, verdict)
        peer.refusal_box.add(action.entry.key, verdict)
        if verdict.accepted and verdict.is_new:
            peer.count("entries new")

    def on_under_way(self, action: InsertEntry) -> None:
        """Count an entry for its peer, which may have so many under way."""
        peer = self._service.peers.get(action.source)
        if peer is not None:
            peer.inserting += 1

    def on_batch_decided(self, action: BatchDecided) -> None:
        """Wake up whoever waits for it."""
        waiter = self._waiting.get(action.ticket)
        if waiter is not None:
            waiter.verdicts = action.verdicts
            waiter.is_decided.set()

    # Life

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Work for ever; it has started when the log is followed. Whoever still waits when it ends is told that nothing was stored."""
        try:
            async with trio.open_nursery() as self._nursery:
                await self._nursery.start(self._follow_shared if self._log.is_shared else self._follow)
                task_status.started()
                while True:
                    has_waited = self._job is None
                    while self._job is None:
                        await self._worker.sleep()
                    action = self._job
                    # Waiting was a turn for others already: what is small need not take another.
                    verdicts = self._verify_now(action.values) if has_waited and len(action.values) <= 1 else None
                    self._at_once_left = _AT_ONCE
                    self._job = None
                    if verdicts is None:
                        await self._verify(action)
                    else:
                        self._service.tell(BatchVerified(action.token, verdicts))
        finally:
            self._nursery = None
            for waiter in self._waiting.values():
                waiter.is_decided.set()

    async def _follow(self, task_status: trio.TaskStatus[None]) -> None:
        """Hear of the log's own commits."""
        with self._log.watch_commits(lambda entries: self._tell_safely(EntriesCommitted(entries))):
            task_status.started()
            await trio.sleep_forever()

    async def _follow_shared(self, task_status: trio.TaskStatus[None]) -> None:
        """Hear of what is committed to a store that other processes write to as well."""
        async with self._log.subscribe(from_now=True) as events:
            task_status.started()
            while True:
                try:
                    entries: Sequence[Entry] = await events.next_page()
                except (StoreError, DecodeError) as error:
                    note("the log cannot be followed", level=logging.ERROR, reason=str(error))
                    await trio.sleep(_RETRY_S)
                    continue
                self._service.tell(EntriesCommitted(entries))

    def _tell_safely(self, event: Event) -> None:
        """Tell the machine within a step of the log's own writer, which must not come to harm."""
        try:
            self._service.tell(event)
        except Exception as error:
            note("fault in the protocol", level=logging.ERROR, error=error)


class _Waiter:
    """Somebody who waits for verdicts; None if there will be none."""

    def __init__(self) -> None:
        self.is_decided = trio.Event()
        self.verdicts: Sequence[Verdict] | None = None


def _explain(error: BaseException, entries: int, way: str) -> NotStored:
    """Say why entries were not stored. A log that is being closed takes no more, which is nobody's fault: peers bring them again.

    Whoever posts is answered, and the answer is logged.
    """
    if isinstance(error, ClosedError):
        note("entries not stored", level=logging.DEBUG, entries=entries, reason=str(error))
        return NotStored(CLOSING)
    told = NotStored.because(error)
    if not told.may_be_of_one or entries == 1:
        note("entries not stored", level=logging.DEBUG if way == "post" else logging.ERROR, entries=entries, reason=told.reason)
    return told


def _note_refusal(peer: Peer, key: bytes, verdict: Verdict) -> None:
    """Log why an entry is not taken, once a peer and rule; of orphans and faults of ours others tell."""
    rule = verdict.rule
    if rule is not None and rule not in (Rule.PARENTS, Rule.STORAGE):
        peer.note_once(rule, "entry not taken", level=logging.WARNING, id=encode_id(key), rule=rule, reason=verdict.reason)
