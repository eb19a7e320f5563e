"""Entries that peers sent one by one: verified in worker threads and inserted, many at a time, in the order in which they came."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

import trio

from ...broadcast import InsertEntry
from ...entry.message import Entry
from ...entry.validation import Outcome, Rule, Verdict
from ...errors import ClosedError, CommitError, GossipLogError
from ...replica.log import Replica
from ..journal import note
from .cut_through import CutThrough
from .own_appends import OwnAppends

__all__ = ["InsertQueue"]

_BATCH_ENTRIES = 256
_BATCH_BYTES = 2**20

_Verified: TypeAlias = tuple[list[InsertEntry], list[Verdict]]


class InsertQueue:
    """A queue with two tasks: while one batch is being committed, the next one is being verified, and a third one gathers.

    The broadcast machine bounds the queue: a peer has so many entries under way and no more.

    Args:
        log: Ours.
        appends: Told what is about to be inserted, and is not ours therefore.
        admit: Has the last word on what was verified.
        on_foreseen: Gets an entry that is certain to be accepted, before its verdict; not every entry that will be.
        on_decided: Gets each entry's verdict.
    """

    def __init__(
        self,
        log: Replica,
        appends: OwnAppends,
        admit: Callable[[InsertEntry, Verdict], Verdict],
        on_foreseen: Callable[[InsertEntry, Entry], None],
        on_decided: Callable[[InsertEntry, Verdict], None],
    ) -> None:
        self._log = log
        self._appends = appends
        self._admit = admit
        self._cut_through = CutThrough(log)
        self._on_foreseen = on_foreseen
        self._on_decided = on_decided
        self._queue: deque[InsertEntry] = deque()
        self._more = trio.Event()

    def __len__(self) -> int:
        """How many entries wait to be verified."""
        return len(self._queue)

    def put(self, entry: InsertEntry) -> None:
        """Take an entry."""
        self._queue.append(entry)
        self._more.set()

    async def run(self) -> None:
        """Verify and insert for ever."""
        send, receive = trio.open_memory_channel[_Verified](0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._cut_through.run)
            nursery.start_soon(self._insert_all, receive)
            while True:
                has_waited = not self._queue
                if has_waited:
                    self._more = trio.Event()
                    await self._more.wait()
                batch = self._gather()
                # Waiting was a turn for others already.
                verdict = self._log.verify_now(batch[0].value) if has_waited and len(batch) == 1 else None
                verdicts = await self._log.verify_many([entry.value for entry in batch]) if verdict is None else [verdict]
                judged = self._judge(batch, verdicts)
                try:
                    # Verifying was a turn for others already.
                    send.send_nowait(judged)
                except trio.WouldBlock:
                    await send.send(judged)

    def _judge(self, batch: list[InsertEntry], verdicts: Sequence[Verdict]) -> _Verified:
        """Check the keys too, and tell of what need not wait for the commit."""
        judged = [self._admit(entry, _check_key(entry, verdict)) for entry, verdict in zip(batch, verdicts, strict=True)]
        for entry, verdict in zip(batch, judged, strict=True):
            if verdict.accepted and verdict.entry is not None and self._cut_through.foresees(verdict.entry):
                self._on_foreseen(entry, verdict.entry)
        return batch, judged

    def _gather(self) -> list[InsertEntry]:
        batch: list[InsertEntry] = []
        size = 0
        while self._queue and len(batch) < _BATCH_ENTRIES and size < _BATCH_BYTES:
            batch.append(self._queue.popleft())
            size += len(batch[-1].value)
        return batch

    async def _insert_all(self, receive: trio.MemoryReceiveChannel[_Verified]) -> None:
        async for batch, verdicts in receive:
            for entry, verdict in zip(batch, await self.insert(verdicts), strict=True):
                self._on_decided(entry, verdict)
                self._cut_through.on_decided(verdict)

    async def insert(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        """Insert what verification accepted. A fault of ours is a verdict, of the rule `storage`; nobody is to blame for it."""
        keys = [verdict.entry.key for verdict in verdicts if verdict.accepted and verdict.entry is not None]
        self._appends.on_arrived(keys)
        decided = await self._insert(verdicts)
        stored = {verdict.entry.key for verdict in decided if verdict.is_new and verdict.entry is not None}
        self._appends.on_refused(key for key in keys if key not in stored)
        return decided

    async def insert_synced(
        self, entries: Sequence[tuple[bytes, bytes]], admit: Callable[[Verdict], Verdict] | None = None
    ) -> list[Verdict]:
        """Verify and insert the `(key, VALUE)` that a sync brought; the same verdicts. The caller compares the keys.

        Args:
            entries: At most as many as a sync inserts at a time.
            admit: Has the last word on what was verified, if it is given.
        """
        keys = [key for key, _ in entries]
        self._appends.on_arrived(keys)
        values = [value for _, value in entries]
        if admit is not None:
            # With their entries, whatever fails: what was charged for them is given back.
            verdicts = await self._insert([admit(verdict) for verdict in await self._log.verify_many(values)])
        else:
            try:
                verdicts = await self._log.insert_many(values)
            except Exception as error:
                verdicts = [Verdict(Outcome.IGNORE, Rule.STORAGE, _note_failure(error, len(entries)))] * len(entries)
        self._appends.on_refused(key for key, verdict in zip(keys, verdicts, strict=True) if not verdict.is_new)
        return verdicts

    async def _insert(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        try:
            return await self._log.insert_verified(verdicts)
        except Exception as error:
            # The store, or whatever the application's `apply` or rule raises; the latter's failing on one entry must not keep back others.
            if len(verdicts) > 1 and (isinstance(error, CommitError) or not isinstance(error, GossipLogError)):
                return [(await self._insert([verdict]))[0] for verdict in verdicts]
            reason = _note_failure(error, len(verdicts))
        return [Verdict(Outcome.IGNORE, Rule.STORAGE, reason, verdict.entry) if verdict.accepted else verdict for verdict in verdicts]


def _note_failure(error: Exception, entries: int) -> str:
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
