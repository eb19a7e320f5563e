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
"""How many entries a named follower may take without an acknowledgement."""
_PAGE = 256
_ACK_S = 0.05
_LOOK_S = 5.0
"""How often to look whether another process has changed who the members are."""


class Subscription:
    """An endless asynchronous iterator over a log's entries, in the order of their insertion here.

    That order is causal, but it is not the order of ids: an entry that arrives late comes late, although its id may be low. Memory is
    bounded, because entries are read from the store only when they are wanted. Open one with `GossipLog.subscribe`.

    Args:
        seq: Where to begin: after this insertion number.
        keep: Stores a cursor durably.

    Attributes:
        place: The place up to which entries were read from the store.
    """

    def __init__(self, log: LogReader, cursor: str | None, seq: int, keep: Callable[[WriteCursor], Awaitable[object]]) -> None:
        self._log = log
        self._keep = keep
        self._cursor = cursor
        self.place = LogPlace(seq)
        self._page: deque[tuple[int, Entry]] = deque()
        # Delivered entries by key, in the order of delivery: an acknowledgement covers all before it.
        self._unacked: dict[bytes, int] = {}
        self._acked = self._kept = seq
        self._is_acked = trio.Event()
        self._keeping = trio.CancelScope()
        self._failure: GossipLogError | None = None

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Entry:
        """Return the next entry, waiting for it if necessary. A cancelled call loses nothing.

        Raises:
            LocalProtocolError: A named follower has taken 10,000 entries without an `ack`.
            LogReplaced: Another process has replaced the log by an older state of it, or by another log.
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
        """Return 1 to 256 entries that are at hand, waiting for the first if necessary. Raises as `__anext__`."""
        entries = [await anext(self)]
        while self._page and len(self._unacked) < UNACKED_MAX:
            seq, entry = self._page.popleft()
            if self._cursor is not None:
                self._unacked[entry.key] = seq
            entries.append(entry)
        return entries

    async def ack(self, entry: Entry) -> None:
        """Acknowledge this entry and all delivered before it: after a crash, the cursor continues after it.

        This does not wait for the disk. The cursor is stored within 50 ms, in one commit for all acknowledgements of that time, and at the
        end of the block. After a crash before that, the entries acknowledged last are delivered again. `flush` waits.

        Raises:
            LocalProtocolError: The subscription has no cursor, did not deliver the entry, or the entry is already acknowledged.
            StoreError: The cursor could not be stored after an earlier call; it will be tried again.
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
        """Wait until the last acknowledgement is stored, as durably as the log was opened for.

        Raises:
            StoreError: It could not be stored.
        """
        await trio.lowlevel.checkpoint()
        seq = self._acked
        if self._cursor is not None and seq > self._kept:
            await self._keep(WriteCursor(self._cursor, seq))
            self._kept = max(self._kept, seq)

    async def keep_acks(self) -> None:
        """Store the cursor whenever it has moved, at most every 50 ms. For `GossipLog.subscribe`."""
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
        self.place, entries = await entries_after(self._log, self.place, _PAGE)
        self._page.extend(entries)


async def entries_after(log: LogReader, place: LogPlace, limit: int) -> tuple[LogPlace, list[tuple[int, Entry]]]:
    """Return up to `limit` entries after a place, with their insertion numbers, and the place after them. If there are none, wait for some.

    After a wait no entries are returned. Call this only within a subscription: otherwise other processes' commits are not noticed.

    Raises:
        LogReplaced: As `Subscription.__anext__`.
    """
    # Taken before the read, so that a commit in between is not missed.
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
    """Read the entries after a place. If other processes can write, first check that the place is still what it was."""
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
