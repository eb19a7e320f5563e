"""We pull: a `SyncClient` on a stream."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, assert_never

import trio

from ...entry.validation import Verdict
from ...errors import ClosedError, GossipLogError, StoreError, StreamReset
from ...replica.log import Replica
from ...sync.client import SyncClient
from ...sync.events import Answered, Ask, ClientAction, ClientEvent, Closed, Done, Finish, Received, Send, TakeEntries, Taken, TimedOut
from ...sync.result import Ending, SyncResult
from ...sync.source import Source
from ...tasks.nursery import open_service_nursery
from ..ground.protocol_ids import is_in_parts
from ..transport.stream import Connection, Stream

__all__ = ["Insert", "PullSession", "close_in_peace"]

Insert: TypeAlias = Callable[[Sequence[tuple[bytes, bytes]]], Awaitable[list[Verdict]]]
"""Validates and inserts what a sync brought; a store that fails is a verdict of the rule `storage`."""

_CLOSING_S = 2.0


async def close_in_peace(stream: Stream) -> None:
    """Close a stream after its session: what was sent arrives, if the peer takes part in that, within 2 s."""
    try:
        stream.close_sending()
        with trio.move_on_after(_CLOSING_S):
            while await stream.receive_some():
                pass
    except (StreamReset, GossipLogError):
        pass  # It is over all the same, even where the peer never took it.
    finally:
        stream.reset()


class PullSession:
    """One session: it reads, writes, asks the log and inserts all at once, as the machine wants it.

    Args:
        log: Ours.
        connection: With the peer.
        stream: On it, negotiated for sync.
        source: What earlier sessions with this peer have taught us.
        insert: Inserts into the log.
        first_answer_s: As `SyncClient`'s.
    """

    def __init__(
        self,
        log: Replica,
        connection: Connection,
        stream: Stream,
        source: Source,
        insert: Insert,
        *,
        first_answer_s: float | None = None,
    ) -> None:
        self._log = log
        self._connection = connection
        self._stream = stream
        self._insert = insert
        self._client = SyncClient(source, first_answer_s=first_answer_s, in_parts=is_in_parts(stream.protocol))
        self._outgoing: deque[bytes] = deque()
        self._is_finishing = False
        self._moved = trio.Event()
        # Held while the machine is at work, which may be in a thread: a frame may have 91,000 nodes.
        self._turn = trio.Lock()
        self._reading = trio.CancelScope()
        self._nursery: trio.Nursery
        self._is_done = False

    @property
    def result(self) -> SyncResult:
        """What it has come to so far; final once `run` is over, however it ended."""
        return self._client.result

    async def run(self) -> SyncResult:
        """Run to the end. A cancelled run still inserts the batch that it is inserting, and counts it."""
        async with open_service_nursery() as self._nursery:
            self._nursery.start_soon(self._write)
            self._perform(self._client.start(trio.current_time()))
            await self._read()
            self._nursery.cancel_scope.cancel()
        return self.result

    async def close(self) -> None:
        """Close the stream after `run`: in peace, if the peer takes part in that, within 2 s."""
        await close_in_peace(self._stream)

    async def _give(self, event: ClientEvent) -> None:
        async with self._turn:
            if self._client.takes_long(event):
                self._perform(await trio.to_thread.run_sync(self._client.handle, event, trio.current_time()))
            else:
                self._perform(self._client.handle(event, trio.current_time()))

    def _perform(self, actions: Sequence[ClientAction]) -> None:
        for action in actions:
            match action:
                case Send(data):
                    self._outgoing.append(data)
                case Ask():
                    self._nursery.start_soon(self._ask, action)
                case TakeEntries():
                    self._nursery.start_soon(self._insert_entries, action)
                case Finish():
                    self._is_finishing = True
                case Done():
                    self._is_done = True
                    self._reading.cancel()
                case _:
                    assert_never(action)
        # Whoever waits looks again: there is something to write, or to read, or another deadline.
        moved, self._moved = self._moved, trio.Event()
        moved.set()
        deadline = self._client.deadline
        self._reading.deadline = float("inf") if deadline is None else deadline

    async def _read(self) -> None:
        while True:
            async with self._turn:
                moved, is_wanted, deadline = self._moved, self._client.wants_input, self._client.deadline
            if self._is_done:
                return
            if not is_wanted:
                await moved.wait()
                continue
            event: Received | Closed | TimedOut = TimedOut()
            with trio.CancelScope(deadline=float("inf") if deadline is None else deadline) as self._reading:
                event = await self._receive()
            await self._give(event)

    async def _receive(self) -> Received | Closed:
        try:
            data = await self._stream.receive_some()
        except (StreamReset, ClosedError) as error:
            return Closed(str(error), self._connection.is_over)
        return Received(data) if data else Closed("the stream ended")

    async def _write(self) -> None:
        try:
            while True:
                while self._outgoing:
                    await self._stream.send_all(self._outgoing.popleft())
                if self._is_finishing:
                    self._stream.close_sending()
                    return
                await self._moved.wait()
        except (StreamReset, ClosedError):
            # Whoever reads learns of it as well.
            return

    async def _ask(self, action: Ask) -> None:
        try:
            answer = await self._log.run(action.plan)
        except StoreError as error:
            # A fault of ours, for which the machine has no event.
            self.result.ending, self.result.reason = Ending.STORAGE, str(error)
            self._is_done = True
            self._reading.cancel()
            self._moved.set()
            return
        await self._give(Answered(answer))

    async def _insert_entries(self, action: TakeEntries) -> None:
        # What has begun is finished and counted; what has not is left to the next session.
        await trio.lowlevel.checkpoint_if_cancelled()
        with trio.CancelScope(shield=True):
            await self._give(Taken(await self._insert(action.entries)))
