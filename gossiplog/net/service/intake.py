"""What the broadcast machine's intake wants done: values are verified, entries inserted, the log followed, and those who wait are told.

What is small and comes alone is verified in the step that brings it, what comes in numbers in worker threads. What was committed is
decided upon in the step that commits it: a task for either would have to be woken up for each entry.

All logs that an event loop serves take turns, whatever server or mesh they are part of (`LogTurns`).
"""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Sequence
from functools import partial

import trio

from ...broadcast.actions import BatchDecided, EntryDecided, InsertBatch, InsertEntry, VerifyBatch
from ...broadcast.allowance import Bringer
from ...broadcast.events import BatchBrought, BatchInserted, BatchVerified, EntriesCommitted, NotStored, PeerKind
from ...broadcast.log_turns import LIGHT, PART, PATIENCE_S, PIECE, LogTurns
from ...entry.message import Entry
from ...entry.validation import Outcome, Rule, Verdict
from ...errors import ClosedError, DecodeError, GossipLogError, StoreError
from ...tasks.spans import span
from ..ground.journal import note
from .driver import LogDriver
from .peers import ServedPeer

CLOSING = "the log is being closed"

_AT_ONCE = 4
"""Small values that are verified in the step that brings them, before others get their turn and what has been verified is committed."""
_RETRY_S = 5.0
_SWITCH_S = 0.0002
"""For how long a thread may hold the interpreter's lock while others want it, when logs contend. Python's own is 5 ms."""
SLOWED_SYNCED = 10
"""Entries of a sync that count as one of a push for a stranger who is slowed: it is us who asked for them."""
_COUNTED = {Outcome.ACCEPT: "entries accepted", Outcome.IGNORE: "entries ignored", Outcome.REJECT: "entries rejected"}


class IntakeWork:
    """Does what the intake of one machine asks for, and answers with `tell`."""

    def __init__(self, driver: LogDriver) -> None:
        self._driver = driver
        self._log = driver.log
        self._at_once_left = _AT_ONCE
        self._nursery: trio.Nursery | None = None
        # Who waits for a `BatchDecided`, by its ticket.
        self._waiting: dict[int, _Waiter] = {}
        self._tickets = 0
        # What is to be verified, and waits for the log's turn; and until when it does at most.
        self._held: deque[VerifyBatch] = deque()
        self._is_waiting = False
        # Until it looks whether it is its turn.
        self._patience = trio.CancelScope()
        self._turns = _turns()

    # For those who bring entries

    async def insert_synced(self, peer: ServedPeer, way: str, entries: Sequence[tuple[bytes, bytes]]) -> list[Verdict]:
        """Take in the `(key, VALUE)` that a sync with a peer brought, by which way it was; return their verdicts.

        The caller compares the keys. Cancelled, as `take_in`.
        """
        driver = self._driver
        await driver.wait_turn(peer, 1 + len(entries) // SLOWED_SYNCED)
        verdicts = await self.take_in(way, entries, peer.bringer)
        for (key, _), verdict in zip(entries, verdicts, strict=True):
            peer.on_verdict(key, verdict)
            driver.figures.count("sync", verdict)
        if driver.observer is not None:
            driver.observer.on_synced(peer.id, way, [key for key, _ in entries], verdicts)
        return verdicts

    async def take_in(self, way: str, entries: Sequence[tuple[bytes, bytes]], bringer: Bringer) -> list[Verdict]:
        """Take in entries that somebody waits for; return their verdicts. Cancelled, the piece that is under way is taken in all the same.

        Args:
            way: `sync`, `reconcile` or `post`.
            entries: The claimed key and the VALUE of each.
        """
        # What is more than a turn goes in one piece after the other: each may build upon those before.
        verdicts: list[Verdict] = []
        while len(verdicts) < len(entries):
            piece = self._piece_max() or len(entries)
            verdicts += await self._take_piece(way, entries[len(verdicts) : len(verdicts) + piece], bringer)
        return verdicts

    async def _take_piece(self, way: str, entries: Sequence[tuple[bytes, bytes]], bringer: Bringer) -> list[Verdict]:
        self._tickets += 1
        ticket, waiter = self._tickets, _Waiter()
        self._waiting[ticket] = waiter
        try:
            if self._nursery is not None:
                self._driver.tell(BatchBrought(ticket, way, entries, bringer))
                await waiter.is_decided.wait()
        finally:
            del self._waiting[ticket]
        return [_closing()] * len(entries) if waiter.verdicts is None else list(waiter.verdicts)

    def _piece_max(self) -> int | None:
        return self._turns.logs.piece_of(self, len(self._driver.peers), self._driver.now())

    # What the machine asks for

    def verify(self, action: VerifyBatch) -> None:
        """Verify when it is the log's turn."""
        now, turns = self._driver.now(), self._turns
        has_begun = self._nursery is None or (not self._held and turns.logs.begin(self, len(action.values), len(self._driver.peers), now))
        turns.adapt(now)
        if has_begun or self._nursery is None:
            self._begin(action)
            return
        self._held.append(action)
        if not self._is_waiting:
            self._is_waiting = True
            self._nursery.start_soon(self._be_patient)
        else:
            self._patience.deadline = self._turns.logs.look_at(now)
        # All that is at work may be this.
        self._end_turn()

    async def _be_patient(self) -> None:
        """See that nothing waits for too long. As a rule a log that ends its turn begins that of the next."""
        while self._held:
            with trio.CancelScope(deadline=self._turns.logs.look_at(self._driver.now())) as self._patience:
                await trio.sleep_forever()
            self._turns.give(self._driver.now())
        self._is_waiting = False

    def take_turn(self) -> None:
        """Begin what waits, as much as a turn is."""
        left = PIECE
        while self._held and (left == PIECE or len(self._held[0].values) <= left):
            action = self._held.popleft()
            left -= len(action.values) or 1
            self._begin(action)
        if self._held:
            self._turns.logs.wait(self, self._driver.now())
        else:
            # It may have waited for what had begun meanwhile.
            self._end_turn()

    def _end_turn(self) -> None:
        """End the log's turn if nothing of it is at work, and begin that of the next log."""
        if self._driver.machine.intake.batches_out <= len(self._held):
            now, turns = self._driver.now(), self._turns
            turns.logs.end(self, now)
            turns.ended.unpark_all()
            # Nobody else looks when the rest is over.
            self._patience.deadline = min(self._patience.deadline, turns.logs.look_at(now))
            turns.give(now)

    def _begin(self, action: VerifyBatch) -> None:
        """Verify now what is small and no more than a few, unless others have to have their turn; else in a task."""
        cost = len(action.values) or 1
        if cost <= self._at_once_left and (verdicts := self._verify_now(action.values)) is not None:
            self._at_once_left -= cost
            self._tell_verified(action, verdicts)
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
        # That this task was begun gave others their turn.
        self._at_once_left = _AT_ONCE
        verdicts = self._verify_now(action.values) if len(action.values) <= 1 else None
        if verdicts is None:
            verdicts = await self._verify_many(action.values)
            self._at_once_left = _AT_ONCE
        self._tell_verified(action, verdicts)

    async def _verify_many(self, values: Sequence[bytes]) -> list[Verdict]:
        """Verify in a thread. While logs contend that is done by parts, each when nothing of another log is at work."""
        verdicts: list[Verdict] = []
        while len(verdicts) < len(values):
            most = len(values)
            if most > LIGHT and self._piece_max() is not None:
                most = PART
                await self._turns.wait_alone(self)
            verdicts += await self._log.verify_many(values[len(verdicts) : len(verdicts) + most])
        return verdicts

    def _tell_verified(self, action: VerifyBatch, verdicts: Sequence[Verdict]) -> None:
        next_max = self._piece_max()
        self._driver.tell(BatchVerified(action.token, verdicts, next_max))
        self._end_turn()

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
        self._driver.tell(BatchInserted(action.token, told))
        self._end_turn()

    def on_decided(self, action: EntryDecided) -> None:
        """Count and tell what became of an entry that was pushed or gossiped."""
        driver, source, verdict = self._driver, action.entry.source, action.verdict
        driver.count("entries known" if verdict.accepted and not verdict.is_new else _COUNTED[verdict.outcome])
        peer = driver.peers.get(source)
        driver.figures.count("gossip" if peer is not None and peer.kind is PeerKind.MESH else "push", verdict)
        if peer is None:
            return
        # Of a peer that went and came back, what it sent before may be decided upon now.
        peer.inserting = max(0, peer.inserting - 1)
        peer.settled.set()
        peer.on_verdict(action.entry.key, verdict)
        if verdict.accepted and verdict.is_new:
            peer.count("entries new")

    def on_under_way(self, action: InsertEntry) -> None:
        """Count an entry for its peer, which may have so many under way."""
        peer = self._driver.peers.get(action.source)
        if peer is not None:
            peer.inserting += 1

    def on_batch_decided(self, action: BatchDecided) -> None:
        """Wake up the caller that waits for it."""
        waiter = self._waiting.get(action.ticket)
        if waiter is not None:
            waiter.verdicts = action.verdicts
            waiter.is_decided.set()

    # Life

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Work for ever; it has started when the log is followed. Those who still wait when it ends are told that nothing was stored."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    await nursery.start(self._follow_shared if self._log.is_shared else self._follow)
                    task_status.started()
                    await trio.sleep_forever()
                finally:
                    # Before the nursery is closed: another log could give this one its turn, and no task could be begun.
                    self._nursery = None
                    self._held.clear()
                    self._turns.logs.forget(self)
                    self._turns.adapt(self._driver.now())
        finally:
            for waiter in self._waiting.values():
                waiter.is_decided.set()

    async def _follow(self, task_status: trio.TaskStatus[None]) -> None:
        """Hear of the log's own commits."""
        with self._log.watch_commits(lambda entries: self._driver.tell(EntriesCommitted(entries))):
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
                self._driver.tell(EntriesCommitted(entries))


class _Turns:
    """The turns of all logs that an event loop serves.

    Attributes:
        ended: Who waits until nothing of another log is at work.
    """

    def __init__(self) -> None:
        self.logs = LogTurns()
        self.ended = trio.lowlevel.ParkingLot()
        self._is_giving = False
        # What it was, while threads hold the interpreter's lock for less long.
        self._switch_s: float | None = None

    def adapt(self, now: float) -> None:
        """Have threads give the interpreter's lock away sooner while one log has much to do and others are awake.

        What is done in the event loop may have to wait for the lock several times. A log that is alone would pay 8 % for this.
        """
        if self.logs.is_contended(now) is (self._switch_s is not None):
            return
        if self._switch_s is None:
            self._switch_s = sys.getswitchinterval()
            sys.setswitchinterval(_SWITCH_S)
        else:
            sys.setswitchinterval(self._switch_s)
            self._switch_s = None

    async def wait_alone(self, log: IntakeWork) -> None:
        """Wait until nothing of another log is at work, but not for long."""
        with trio.move_on_after(PATIENCE_S):
            while not self.logs.is_alone(log):
                await self.ended.park()

    def give(self, now: float) -> None:
        """Begin the work of the log whose turn it is. Work that is over at once does not begin the next within it."""
        if self._is_giving:
            return
        self._is_giving = True
        try:
            while (chosen := self.logs.next(now)) is not None:
                assert isinstance(chosen, IntakeWork)
                chosen.take_turn()
        finally:
            self._is_giving = False


_TURNS: trio.lowlevel.RunVar[_Turns] = trio.lowlevel.RunVar("turns of logs")


def _turns() -> _Turns:
    try:
        return _TURNS.get()
    except LookupError:
        _TURNS.set(turns := _Turns())
        return turns


class _Waiter:
    """Somebody who waits for verdicts; None if there will be none."""

    def __init__(self) -> None:
        self.is_decided = trio.Event()
        self.verdicts: Sequence[Verdict] | None = None


def _closing() -> Verdict:
    return Verdict(Outcome.IGNORE, Rule.STORAGE, CLOSING)


def _explain(error: BaseException, entries: int, way: str) -> NotStored:
    """Say why entries were not stored. A log that is being closed takes no more, which is nobody's fault: peers bring them again.

    The client that posts is answered, and the answer is logged.
    """
    if isinstance(error, ClosedError):
        note("entries not stored", level=logging.DEBUG, entries=entries, reason=str(error))
        return NotStored(CLOSING)
    told = NotStored.because(error)
    if not told.may_be_of_one or entries == 1:
        note("entries not stored", level=logging.DEBUG if way == "post" else logging.ERROR, entries=entries, reason=told.reason)
    return told
