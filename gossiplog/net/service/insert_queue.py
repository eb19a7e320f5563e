"""Entries that peers sent one by one: verified in worker threads and inserted, many at a time.

Those of one client keep their order, and so do those of the mesh and of hubs together. Where more waits than is verified at a time, clients
are served in turn: one that sends much waits for itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import trio

from ...broadcast import InsertEntry
from ...entry.message import Entry
from ...entry.validation import Outcome, Rule, Verdict
from ...errors import ClosedError, CommitError, GossipLogError
from ...pubsub.types import PeerId
from ...replica.log import Replica
from ...tasks.sleeper import Sleeper
from ...tasks.spans import span
from ..ground.journal import note
from .cut_through import CutThrough
from .fair_queue import FairQueue
from .own_appends import OwnAppends

__all__ = ["InsertQueue"]

_BATCH_ENTRIES = 256
_BATCH_BYTES = 2**20
_AT_ONCE = 4
"""Small entries that are verified in the step that brings them, before others get their turn and what has been verified is committed."""


class _Batch(NamedTuple):
    """Entries that were verified together, and are inserted together.

    Attributes:
        verdicts: Of verification.
        keys: Of what that accepted.
        began_ns: When it was handed to the log, as Unix time.
    """

    entries: list[InsertEntry]
    verdicts: list[Verdict]
    keys: list[bytes]
    began_ns: int


class InsertQueue:
    """A queue and its task: while one batch is being committed, the next one is being verified, and a third one gathers.

    Where nothing waits, an entry passes the queue by: it is verified in the step that brings it. What was committed is decided upon in
    the step that commits it. A task for either would have to be woken up for each entry.

    The broadcast machine bounds the queue: a peer has so many entries under way and no more.

    Args:
        log: Ours.
        appends: Told what is about to be inserted, and is not ours therefore.
        refuse: Says of an entry that it will not be taken, where that is certain before it is verified; else None.
        admit: Has the last word on what was verified.
        on_foreseen: Gets an entry that is certain to be accepted, before its verdict; not every entry that will be.
        on_decided: Gets each entry's verdict.
    """

    def __init__(
        self,
        log: Replica,
        appends: OwnAppends,
        refuse: Callable[[InsertEntry], Verdict | None],
        admit: Callable[[InsertEntry, Verdict], Verdict],
        on_foreseen: Callable[[InsertEntry, Entry], None],
        on_decided: Callable[[InsertEntry, Verdict], None],
    ) -> None:
        self._log = log
        self._appends = appends
        self._refuse = refuse
        self._admit = admit
        self._cut_through = CutThrough(log)
        self._on_foreseen = on_foreseen
        self._on_decided = on_decided
        self._queue = FairQueue[InsertEntry]()
        self._more, self._turn = Sleeper(), Sleeper()
        self._under_way = 0  # batches that the log has
        self._at_once_left = _AT_ONCE
        self._nursery: trio.Nursery | None = None

    def __len__(self) -> int:
        """How many entries wait to be verified."""
        return len(self._queue)

    def put(self, entry: InsertEntry, client: PeerId | None) -> None:
        """Take an entry, from a client, or None for all others."""
        # The task is at none that came before.
        if self._at_once_left and self._more.is_asleep and not self._queue:
            verdict = self._refuse(entry) or self._log.verify_now(entry.value)
            if verdict is not None:
                self._at_once_left -= 1
                batch = self._judge([entry], [verdict])
                if not self._submit(batch):
                    self._insert_later(batch)
                return
        self._queue.put(client, entry)
        self._more.wake()

    async def run(self) -> None:
        """Verify and insert for ever."""
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._cut_through.run)
                while True:
                    has_waited = not self._queue
                    while not self._queue:
                        await self._more.sleep()
                    entries = self._gather()
                    self._at_once_left = _AT_ONCE
                    # Waiting was a turn for others already.
                    verdicts = await self._verify([entry.value for entry in entries], map(self._refuse, entries), is_rested=has_waited)
                    batch = self._judge(entries, verdicts)
                    while self._under_way:
                        await self._turn.sleep()
                    if not self._submit(batch):
                        self._on_settled(batch, await self._insert(batch.verdicts))
        finally:
            self._nursery = None

    async def _verify(self, values: Sequence[bytes], refusals: Iterable[Verdict | None], *, is_rested: bool = False) -> Sequence[Verdict]:
        """Verify what has no refusal yet. Where others had their turn just now, a single small one is verified in place."""
        verdicts = list(refusals)
        asked = [value for value, verdict in zip(values, verdicts, strict=True) if verdict is None]
        if not asked:
            await trio.lowlevel.checkpoint()
        now = self._log.verify_now(asked[0]) if is_rested and len(asked) == 1 else None
        verified = iter([now] if now is not None else await self._log.verify_many(asked) if asked else ())
        return [next(verified) if verdict is None else verdict for verdict in verdicts]

    def _judge(self, entries: list[InsertEntry], verdicts: Sequence[Verdict]) -> _Batch:
        """Check the keys too, and tell of what need not wait for the commit."""
        judged = [self._admit(entry, _check_key(entry, verdict)) for entry, verdict in zip(entries, verdicts, strict=True)]
        keys = list[bytes]()
        for entry, verdict in zip(entries, judged, strict=True):
            if verdict.accepted and verdict.entry is not None:
                keys.append(verdict.entry.key)
                if self._cut_through.foresees(verdict.entry):
                    self._on_foreseen(entry, verdict.entry)
        return _Batch(entries, judged, keys, time.time_ns())

    def _gather(self) -> list[InsertEntry]:
        entries = size = 0

        def is_full(entry: InsertEntry) -> bool:
            nonlocal entries, size
            entries += 1
            size += len(entry.value)
            return entries >= _BATCH_ENTRIES or size >= _BATCH_BYTES

        return self._queue.take(is_full)

    def _submit(self, batch: _Batch) -> bool:
        """Hand to the log what verification accepted; False if the log has too much to do, and will have to be waited for."""
        if not batch.keys:
            self._decide(batch, batch.verdicts)
            return True
        self._appends.on_arrived(batch.keys)
        self._under_way += 1
        try:
            return self._log.insert_then(batch.verdicts, partial(self._on_inserted, batch))
        except GossipLogError as error:
            self._on_inserted(batch, error)
            return True

    def _on_inserted(self, batch: _Batch, outcome: list[Verdict] | BaseException) -> None:
        if isinstance(outcome, BaseException):
            if _is_of_one(outcome, len(batch.verdicts)):
                self._insert_later(batch)
                return
            outcome = _not_stored(batch.verdicts, outcome)
        self._on_settled(batch, outcome)

    def _insert_later(self, batch: _Batch) -> None:
        # What comes next waits for it in the queue.
        self._at_once_left = 0
        if self._nursery is not None:
            self._nursery.start_soon(self._insert_each, batch)

    async def _insert_each(self, batch: _Batch) -> None:
        """Insert one by one what could not be inserted together."""
        self._on_settled(batch, await self._insert_apart(batch.verdicts))

    def _on_settled(self, batch: _Batch, decided: Sequence[Verdict]) -> None:
        self._under_way -= 1
        self._decide(batch, decided)
        if not self._under_way:
            self._at_once_left = _AT_ONCE
            self._turn.wake()

    def _decide(self, batch: _Batch, decided: Sequence[Verdict]) -> None:
        with span("receive", self._log.topic, len(decided), batch.began_ns) as note_attributes:
            stored = {verdict.entry.key for verdict in decided if verdict.is_new and verdict.entry is not None}
            note_attributes(new=len(stored))
        self._appends.on_refused(key for key in batch.keys if key not in stored)
        try:
            for entry, verified, verdict in zip(batch.entries, batch.verdicts, decided, strict=True):
                self._on_decided(entry, verdict)
                if verified.accepted:
                    self._cut_through.on_decided(verdict)
        except Exception as error:
            # This is the log's own writer, which must not come to harm.
            note("fault in the protocol", level=logging.ERROR, error=error)

    async def insert_synced(
        self,
        entries: Sequence[tuple[bytes, bytes]],
        refuse: Callable[[bytes, bytes], Verdict | None] = lambda key, value: None,
        admit: Callable[[Verdict], Verdict] | None = None,
    ) -> list[Verdict]:
        """Verify and insert the `(key, VALUE)` that a sync brought; the same verdicts. The caller compares the keys.

        Args:
            entries: At most as many as a sync inserts at a time.
            refuse: Says of a key and VALUE that it will not be taken, where that is certain before it is verified; else None.
            admit: Has the last word on what was verified, if it is given.
        """
        keys = [key for key, _ in entries]
        self._appends.on_arrived(keys)
        with span("receive", self._log.topic, len(keys)) as note_attributes:
            verdicts = await self._insert_synced(entries, refuse, admit)
            refused = [key for key, verdict in zip(keys, verdicts, strict=True) if not verdict.is_new]
            note_attributes(new=len(keys) - len(refused))
        self._appends.on_refused(refused)
        return verdicts

    async def _insert_synced(
        self,
        entries: Sequence[tuple[bytes, bytes]],
        refuse: Callable[[bytes, bytes], Verdict | None],
        admit: Callable[[Verdict], Verdict] | None,
    ) -> list[Verdict]:
        values = [value for _, value in entries]
        if admit is not None:
            # With their entries, whatever fails: what was charged for them is given back.
            verified = await self._verify(values, [refuse(key, value) for key, value in entries])
            return await self._insert([admit(verdict) for verdict in verified])
        try:
            return await self._log.insert_many(values)
        except Exception as error:
            return [Verdict(Outcome.IGNORE, Rule.STORAGE, _note_failure(error, len(entries)))] * len(entries)

    async def _insert(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        try:
            return await self._log.insert_verified(verdicts)
        except Exception as error:
            if _is_of_one(error, len(verdicts)):
                return await self._insert_apart(verdicts)
            return _not_stored(verdicts, error)

    async def _insert_apart(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        return [(await self._insert([verdict]))[0] for verdict in verdicts]


def _is_of_one(error: BaseException, entries: int) -> bool:
    """Say whether one of several entries may be what keeps back the others: the application's `apply` or rule raised, not the store."""
    return entries > 1 and (isinstance(error, CommitError) or not isinstance(error, GossipLogError))


def _not_stored(verdicts: Sequence[Verdict], error: BaseException) -> list[Verdict]:
    """Make a verdict of a fault of ours, of the rule `storage`; nobody is to blame for it."""
    reason = _note_failure(error, len(verdicts))
    return [Verdict(Outcome.IGNORE, Rule.STORAGE, reason, verdict.entry) if verdict.accepted else verdict for verdict in verdicts]


def _note_failure(error: BaseException, entries: int) -> str:
    """Say why entries were not stored. A log that is being closed takes no more, which is nobody's fault: peers bring them again."""
    reason = str(error) if isinstance(error, GossipLogError) else f"{type(error).__name__}: {error}"
    level = logging.DEBUG if isinstance(error, ClosedError) else logging.ERROR
    note("entries not stored", level=level, entries=entries, reason=reason)
    return reason


def _check_key(entry: InsertEntry, verdict: Verdict) -> Verdict:
    """[REJECT] key, which verification of VALUE alone cannot see."""
    if verdict.entry is not None and verdict.entry.key != entry.key and verdict.rule != Rule.TOPIC:
        return Verdict(Outcome.REJECT, Rule.KEY, f"key {entry.key.hex()}, expected {verdict.entry.key.hex()}", verdict.entry)
    return verdict
