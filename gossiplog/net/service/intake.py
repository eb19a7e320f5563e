"""Carries out the intake's actions: verifies values, inserts entries, follows the log, and wakes the callers that wait for verdicts.

A small value that comes alone is verified in the step that brings it; many are verified in worker threads. The machine decides on entries
in the step that commits them. A task for either would have to be woken up for each entry.

All logs of an event loop take turns, whatever server or mesh they are part of (`LogTurns`).
"""

from __future__ import annotations

import gc
import logging
import sys
import time
from collections import deque
from collections.abc import Sequence
from functools import partial
from math import inf

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
"""Small values that are verified in place in a row. Then other tasks get their turn, and the verified ones are committed."""
_RETRY_S = 5.0
_SWITCH_S = 0.0002
"""How long a thread may hold the interpreter's lock while others want it, when logs contend. Python's default is 5 ms."""
_COLLECTIONS = 20
"""So many times fewer full collections of garbage are made meanwhile. One takes 20 ms, and a flood caused one in 1.5 s."""
SLOWED_SYNCED = 10
"""For a peer that is slowed, so many entries of a sync count as one pushed entry, because we asked for them."""
_COUNTED = {Outcome.ACCEPT: "entries accepted", Outcome.IGNORE: "entries ignored", Outcome.REJECT: "entries rejected"}


class IntakeWork:
    """Carries out what the intake of one machine asks for, and answers with `tell`."""

    def __init__(self, driver: LogDriver) -> None:
        self._driver = driver
        self._log = driver.log
        self._at_once_left = _AT_ONCE
        self._nursery: trio.Nursery | None = None
        # By ticket: set when the batch is decided, and the verdicts then.
        self._waiting: dict[int, trio.Event] = {}
        self._decided: dict[int, Sequence[Verdict]] = {}
        self._tickets = 0
        # Batches that wait for the log's turn; while there are any, the deadline is when the log looks whether it is its turn.
        self._held: deque[VerifyBatch] = deque()
        self._patience = trio.CancelScope()
        self._turns = _turns()

    async def insert_synced(self, peer: ServedPeer, way: str, entries: Sequence[tuple[bytes, bytes]]) -> list[Verdict]:
        """Take in the `(key, VALUE)` of a sync with a peer; return their verdicts.

        The caller compares the keys. If cancelled, see `take_in`.

        Args:
            way: `sync` or `reconcile`.
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
        """Take in entries and return their verdicts. If cancelled, the piece that is under way is still taken in.

        Args:
            way: `sync`, `reconcile` or `post`.
            entries: The claimed key and the VALUE of each.
        """
        # More than a turn's worth goes in pieces, one after the other, because each may build on those before it.
        verdicts: list[Verdict] = []
        while len(verdicts) < len(entries):
            piece = self._piece_max() or len(entries)
            verdicts += await self._take_piece(way, entries[len(verdicts) : len(verdicts) + piece], bringer)
        return verdicts

    async def _take_piece(self, way: str, entries: Sequence[tuple[bytes, bytes]], bringer: Bringer) -> list[Verdict]:
        self._tickets += 1
        ticket = self._tickets
        is_decided = self._waiting[ticket] = trio.Event()
        try:
            if self._nursery is not None:
                self._driver.tell(BatchBrought(ticket, way, entries, bringer))
                await is_decided.wait()
        finally:
            del self._waiting[ticket]
            verdicts = self._decided.pop(ticket, None)
        return [Verdict(Outcome.IGNORE, Rule.STORAGE, CLOSING)] * len(entries) if verdicts is None else list(verdicts)

    def _piece_max(self) -> int | None:
        return self._turns.logs.piece_of(self, len(self._driver.peers), self._driver.now())

    # What the machine asks for

    def verify(self, action: VerifyBatch) -> None:
        """Verify a batch as soon as it is the log's turn."""
        now, turns = self._driver.now(), self._turns
        has_begun = self._nursery is None or (not self._held and turns.logs.begin(self, len(action.values), len(self._driver.peers), now))
        turns.adapt(now)
        if has_begun or self._nursery is None:
            self._begin(action)
            return
        self._held.append(action)
        self._patience.deadline = turns.logs.look_at(now)
        # This batch may have been all that the log had at work.
        self._end_turn()

    async def _be_patient(self) -> None:
        """See that no batch waits too long. Usually a log that ends its turn starts the next log's."""
        turns, now = self._turns, self._driver.now
        while True:
            with trio.CancelScope(deadline=turns.logs.look_at(now()) if self._held else inf) as self._patience:
                await trio.sleep_forever()
            turns.give(now())

    def take_turn(self) -> None:
        """Begin the batches that wait, up to a turn's worth."""
        left = PIECE
        while self._held and (left == PIECE or len(self._held[0].values) <= left):
            action = self._held.popleft()
            left -= len(action.values) or 1
            self._begin(action)
        if self._held:
            self._turns.logs.wait(self, self._driver.now())
        else:
            # All of them may have been verified in place.
            self._end_turn()

    def _end_turn(self) -> None:
        """If nothing of the log is at work, end its turn and start the next log's."""
        if self._driver.machine.intake.batches_out <= len(self._held):
            now, turns = self._driver.now(), self._turns
            turns.logs.end(self, now)
            turns.ended.unpark_all()
            if self._held:
                # Nobody else looks when this log's rest is over.
                self._patience.deadline = min(self._patience.deadline, turns.logs.look_at(now))
            turns.give(now)

    def _begin(self, action: VerifyBatch) -> None:
        """Verify a few small values in place, unless it is time for other tasks; otherwise start a task."""
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
        # Other tasks had their turn before this one started.
        self._at_once_left = _AT_ONCE
        verdicts = self._verify_now(action.values) if len(action.values) <= 1 else None
        if verdicts is None:
            verdicts = await self._verify_many(action.values)
            self._at_once_left = _AT_ONCE
        self._tell_verified(action, verdicts)

    async def _verify_many(self, values: Sequence[bytes]) -> list[Verdict]:
        """Verify in a thread. While logs contend, verify in parts, each when no other log is at work."""
        verdicts: list[Verdict] = []
        while len(verdicts) < len(values):
            most = len(values)
            if most > LIGHT and self._piece_max() is not None:
                most = PART
                await self._turns.wait_alone(self)
            verdicts += await self._log.verify_many(values[len(verdicts) : len(verdicts) + most])
        return verdicts

    def _tell_verified(self, action: VerifyBatch, verdicts: Sequence[Verdict]) -> None:
        self._driver.tell(BatchVerified(action.token, verdicts, self._piece_max()))
        self._end_turn()

    def insert(self, action: InsertBatch) -> None:
        """Hand a batch to the log. If the log is too busy to take it, wait in a task."""
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
        """Count the verdict on an entry that was pushed or gossiped, and tell the peer."""
        driver, source, verdict = self._driver, action.entry.source, action.verdict
        driver.count("entries known" if verdict.accepted and not verdict.is_new else _COUNTED[verdict.outcome])
        peer = driver.peers.get(source)
        driver.figures.count("gossip" if peer is not None and peer.kind is PeerKind.MESH else "push", verdict)
        if peer is None:
            return
        # The peer may have left and come back since it sent this entry.
        peer.inserting = max(0, peer.inserting - 1)
        if peer.settled:
            peer.settled.unpark_all()
        peer.on_verdict(action.entry.key, verdict)
        if verdict.accepted and verdict.is_new:
            peer.count("entries new")

    def on_under_way(self, action: InsertEntry) -> None:
        """Count an entry towards those that its peer has under way."""
        peer = self._driver.peers.get(action.source)
        if peer is not None:
            peer.inserting += 1

    def on_batch_decided(self, action: BatchDecided) -> None:
        """Wake the caller that waits for this batch."""
        if action.ticket in self._waiting:
            self._decided[action.ticket] = action.verdicts
            self._waiting[action.ticket].set()

    # Life

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Work for ever; started once the log is followed. At the end, callers that still wait are told that nothing was stored."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                try:
                    nursery.start_soon(self._be_patient)
                    await nursery.start(self._follow_shared if self._log.is_shared else self._follow)
                    task_status.started()
                    await trio.sleep_forever()
                finally:
                    # Before the nursery closes: otherwise another log could give this one a turn, and no task could be started.
                    self._nursery = None
                    self._held.clear()
                    self._turns.logs.forget(self)
                    self._turns.adapt(self._driver.now())
        finally:
            for is_decided in self._waiting.values():
                is_decided.set()

    async def _follow(self, task_status: trio.TaskStatus[None]) -> None:
        with self._log.watch_commits(lambda entries: self._driver.tell(EntriesCommitted(entries))):
            task_status.started()
            await trio.sleep_forever()

    async def _follow_shared(self, task_status: trio.TaskStatus[None]) -> None:
        """Follow a store to which other processes write too."""
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
        ended: Logs that wait until no other log is at work.
    """

    def __init__(self) -> None:
        self.logs = LogTurns()
        self.ended = trio.lowlevel.ParkingLot()
        self._is_giving = False
        # The interpreter's own switch interval and thresholds, while ours replace them; else None.
        self._usual: tuple[float, tuple[int, int, int]] | None = None

    def adapt(self, now: float) -> None:
        """Shorten the interpreter's switch interval, and collect less garbage, while one log has much to do and others are awake.

        The event loop may have to wait for the interpreter's lock several times in one piece of work. A log that is alone would pay 8 % for
        this.
        """
        if self.logs.is_contended(now) is (self._usual is not None):
            return
        if self._usual is None:
            self._usual = sys.getswitchinterval(), gc.get_threshold()
            youngest, young, full = self._usual[1]
            sys.setswitchinterval(_SWITCH_S)
            gc.set_threshold(youngest, young, _COLLECTIONS * full)
        else:
            sys.setswitchinterval(self._usual[0])
            gc.set_threshold(*self._usual[1])
            self._usual = None

    async def wait_alone(self, log: IntakeWork) -> None:
        """Wait until no other log is at work, but not for long."""
        with trio.move_on_after(PATIENCE_S):
            while not self.logs.is_alone(log):
                await self.ended.park()

    def give(self, now: float) -> None:
        """Start the turn of the next log. If that turn ends within this call, the loop starts the one after it, without recursion."""
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


def _explain(error: BaseException, entries: int, way: str) -> NotStored:
    """Say why entries were not stored. A log that is being closed accepts no more, which is nobody's fault: peers bring them again.

    A failed `post` is logged at DEBUG only, because the answer to the client says it.
    """
    if isinstance(error, ClosedError):
        note("entries not stored", level=logging.DEBUG, entries=entries, reason=str(error))
        return NotStored(CLOSING)
    told = NotStored.because(error)
    if not told.may_be_of_one or entries == 1:
        note("entries not stored", level=logging.DEBUG if way == "post" else logging.ERROR, entries=entries, reason=told.reason)
    return told
