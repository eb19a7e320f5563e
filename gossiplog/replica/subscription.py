"""Following a log: entries in the order in which this replica got them, from a cursor that survives a crash; and its members."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import takewhile
from math import inf

import trio

from ..access import is_control
from ..entry.message import Entry
from ..errors import GossipLogError, LocalProtocolError
from ..log.place import LogPlace, check_place
from ..log.requests import ReadTail, WriteCursor
from ..plan import Plan, ask
from .applications import logger
from .members import LogMember
from .reader import LogReader

UNACKED_MAX = 10_000
"""Entries that a named follower may take without acknowledging any."""
_PAGE = 256
_ACK_S = 0.05
_LOOK_S = 5.0
"""How often to look whether another process has changed who the members are."""


class Subscription:
    """An endless asynchronous iterator over a log's entries, in the order of their insertion here.

    That order is causal too, but not the order of ids: an entry that arrives late has a low id and comes late. Memory is bounded, as
    entries are read from the store as they are wanted. Open one with `GossipLog.subscribe`.

    Args:
        keep: Stores a cursor durably.
    """

    def __init__(self, log: LogReader, cursor: str | None, seq: int, keep: Callable[[WriteCursor], Awaitable[object]]) -> None:
        self._log = log
        self._keep = keep
        self._cursor = cursor
        self._place = LogPlace(seq)
        self._page: deque[tuple[int, Entry]] = deque()
        # In the order of delivery, so that an acknowledgement covers all before it.
        self._unacked: dict[bytes, int] = {}
        self._acked = self._kept = seq
        self._is_acked = trio.Event()
        self._keeping = trio.CancelScope()
        self._failure: GossipLogError | None = None

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Entry:
        """Return the next entry, waiting for it if need be. A cancelled call loses nothing.

        Raises:
            LocalProtocolError: A named follower has taken 10,000 entries without an `ack`.
            LogReplaced: Somebody else writes to the log, and has put an older state of it, or another log, in its place.
        """
        if len(self._unacked) >= UNACKED_MAX:
            hint = "call `await events.ack(entry)`, or subscribe without a cursor"
            raise LocalProtocolError(f"{UNACKED_MAX} entries were taken without an ack", hint=hint)
        if self._page:
            await trio.lowlevel.checkpoint()
        while not self._page:
            await self._fill()
        seq, entry = self._page.popleft()
        if self._cursor is not None:
            self._unacked[entry.key] = seq
        return entry

    async def next_page(self) -> list[Entry]:
        """Return the entries that are at hand, 1 to 256, waiting for the first if need be. As `__anext__` otherwise."""
        entries = [await anext(self)]
        while self._page and len(self._unacked) < UNACKED_MAX:
            seq, entry = self._page.popleft()
            if self._cursor is not None:
                self._unacked[entry.key] = seq
            entries.append(entry)
        return entries

    async def ack(self, entry: Entry) -> None:
        """Say that this entry and all before it are dealt with: after a crash the cursor goes on after it.

        It does not wait for the disk: the cursor is kept within 50 ms, in one commit for all acknowledgements of that time, and at the end
        of the block. A crash before that delivers again what was acknowledged last; `flush` waits.

        Raises:
            LocalProtocolError: The subscription has no cursor, or did not deliver the entry, or it was acknowledged before.
            StoreError: The cursor could not be kept after an earlier call; it is tried again.
        """
        if self._cursor is None:
            raise LocalProtocolError("a subscription without a cursor has nothing to acknowledge", hint="subscribe(cursor=NAME)")
        seq = self._unacked.get(entry.key)
        if seq is None:
            raise LocalProtocolError(f"entry {entry.id} is not waiting for an ack")
        for key, _ in list(takewhile(lambda delivered: delivered[1] <= seq, self._unacked.items())):
            del self._unacked[key]
        self._acked = seq
        self._is_acked.set()
        await trio.lowlevel.checkpoint()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    async def flush(self) -> None:
        """Wait until what was acknowledged is kept, as durably as the log was opened for.

        Raises:
            StoreError: It could not be kept.
        """
        await trio.lowlevel.checkpoint()
        seq = self._acked
        if self._cursor is not None and seq > self._kept:
            await self._keep(WriteCursor(self._cursor, seq))
            self._kept = max(self._kept, seq)

    async def keep_acks(self) -> None:
        """Keep the cursor as it moves on, at most once in 50 ms. For `GossipLog.subscribe`."""
        with self._keeping:
            while True:
                await self._is_acked.wait()
                self._is_acked = trio.Event()
                try:
                    await self.flush()
                except GossipLogError as error:
                    self._failure = error
                await trio.sleep(_ACK_S)

    def stop_keeping(self) -> None:
        """End `keep_acks`. For `GossipLog.subscribe`."""
        self._keeping.cancel()

    async def _fill(self) -> None:
        self._place, entries = await entries_after(self._log, self._place, _PAGE)
        self._page.extend(entries)

    @property
    def place(self) -> LogPlace:
        """The place after what was read from the store so far."""
        return self._place


async def entries_after(log: LogReader, place: LogPlace, limit: int) -> tuple[LogPlace, list[tuple[int, Entry]]]:
    """Return up to `limit` entries after a place, with their insertion numbers, and the place after them; none after a wait for some.

    Only while somebody subscribes to the log, for otherwise it is not told what other processes write.

    Raises:
        LogReplaced: As `Subscription.__anext__`.
    """
    # Taken before the read, so that a commit in between is not slept through.
    changed = log.next_commit
    place, rows = await log.run(_rows_after(log, place, limit))
    if rows:
        entries = [(seq, Entry.stored(value)) for seq, value in rows]
        seq, last = entries[-1]
        return LogPlace(seq, place.generation, last.key), entries
    with trio.move_on_after(log.poll_s) if log.is_shared else contextlib.nullcontext():
        await changed.wait()
    return place, []


def _rows_after(log: LogReader, place: LogPlace, limit: int) -> Plan[tuple[LogPlace, list[tuple[int, bytes]]]]:
    """Read on where a place still is what it was: only our own writer can be trusted not to change that."""
    if log.is_shared:
        found = yield from check_place(place, log.location)
        place = LogPlace(place.seq, found.generation, place.key)
    return place, (yield from ask(ReadTail(place.seq, limit)))


async def follow_members(
    log: LogReader, tell: Callable[[Sequence[LogMember]], None], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Call a function with a log's members, at once and whenever they may have changed, until cancelled.

    A commit of ours is noticed at once, one of another process within `_LOOK_S`. There is no call before the log has its policy.
    """
    changed = trio.Event()

    def on_commit(entries: Sequence[Entry]) -> None:
        if any(not entry.parent_keys or is_control(entry) for entry in entries):
            changed.set()

    with log.watch_commits(on_commit):
        while True:
            try:
                tell(await log.members())
            except LocalProtocolError:
                pass
            except GossipLogError as error:
                # The store is away; the last call stands.
                logger.warning("members of %s not read: %s", log.topic, error)
            task_status.started()
            task_status = trio.TASK_STATUS_IGNORED
            with trio.move_on_after(_LOOK_S if log.is_shared else inf):
                await changed.wait()
            changed = trio.Event()
