"""A peer pulls from us: the serving side of a session on a stream, over one snapshot of our log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import assert_never

import trio

from ...errors import ClosedError, RemoteProtocolError, SnapshotExpired, StreamReset
from ...reconcile import Reconciliation, Served
from ...replica.log import Replica
from ...store.base import Reader
from ...sync.events import (
    Answered,
    Ask,
    Closed,
    Done,
    Finish,
    Pause,
    Received,
    Reset,
    Resumed,
    Send,
    Sent,
    SessionAction,
    SessionEvent,
    TakeEntries,
    Taken,
)
from ...sync.server import SyncServer
from ..transport.stream import Stream
from .pull_session import Insert

__all__ = ["ServeSession", "Turns"]

TURN_S = 2.0
"""What a session may take while others wait; the reference gives nobody more."""
SESSION_S = 60.0
"""How long a session may hold its snapshot, wanted or not: nothing later can be tidied up meanwhile. The client resumes on a later one."""
SEND_S = 10.0
"""How long one answer may take to be written: a slow reader holds up a place that others want."""


class Turns:
    """Cuts short who has been served for long enough, as soon as somebody else waits.

    Attributes:
        waiting: Sessions that wait to be served.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self._scopes: dict[trio.CancelScope, float] = {}

    def on_wait(self) -> None:
        """One session more waits."""
        self.waiting += 1
        for scope, ends_at in self._scopes.items():
            scope.deadline = min(scope.deadline, ends_at)

    def on_served(self) -> None:
        """One session waits no longer."""
        self.waiting -= 1

    def is_over(self, started: float) -> bool:
        """Whether a session that began at this time has to make room."""
        return self.waiting > 0 and trio.current_time() >= started + TURN_S

    @contextmanager
    def limit(self, started: float, deadline: float) -> Iterator[trio.CancelScope]:
        """Cancel what a session waits for at a deadline, or when it has to make room."""
        ends_at = started + TURN_S
        with trio.CancelScope(deadline=min(deadline, ends_at) if self.waiting else deadline) as scope:
            self._scopes[scope] = ends_at
            try:
                yield scope
            finally:
                del self._scopes[scope]


class ServeSession:
    """One session.

    Args:
        log: The one that is pulled from.
        snapshot: What is served, held by the caller for as long as `run` runs.
        stream: Negotiated for it.
        session: By trees, or a reconciliation.
        turns: Shared by all sessions of the log.
        insert: Inserts what the peer gives; None where it may give nothing.
    """

    def __init__(
        self,
        log: Replica,
        snapshot: Reader,
        stream: Stream,
        session: SyncServer | Reconciliation[Served],
        turns: Turns,
        insert: Insert | None = None,
    ) -> None:
        self._log = log
        self._snapshot = snapshot
        self._stream = stream
        self._session = session
        self._turns = turns
        self._insert = insert
        self._started = trio.current_time()

    async def run(self) -> None:
        """Serve until the peer is done, or its share of time is over.

        Raises:
            RemoteProtocolError: The peer broke the protocol.
            StreamReset: The stream broke, or the peer does not read.
            StoreError: The store failed.
        """
        await self._do(self._session.start(trio.current_time()))
        while not self._session.is_done:
            if self._turns.is_over(self._started) or trio.current_time() >= self._started + SESSION_S:
                await self._do(self._session.abort())
                return
            try:
                await self._give(await self._receive())
            except SnapshotExpired:
                if not isinstance(self._session, SyncServer):
                    # A reconciliation has no word for it.
                    raise
                await self._do(self._session.abort())
                return

    async def _receive(self) -> SessionEvent:
        ends_at, deadline = self._started + SESSION_S, self._session.deadline
        with self._turns.limit(self._started, ends_at if deadline is None else min(deadline, ends_at)):
            try:
                data = await self._stream.receive_some()
            except (StreamReset, ClosedError) as error:
                return Closed(str(error))
            return Received(data) if data else Closed("the client is done")
        return Resumed()

    async def _give(self, event: SessionEvent) -> None:
        await self._do(await self._handle(event))

    async def _handle(self, event: SessionEvent) -> Sequence[SessionAction]:
        if self._session.takes_long(event):
            return await trio.to_thread.run_sync(self._session.handle, event, trio.current_time())
        return self._session.handle(event, trio.current_time())

    async def _do(self, actions: Iterable[SessionAction]) -> None:
        todo = deque(actions)
        while todo:
            match action := todo.popleft():
                case Ask(plan, of_snapshot, token):
                    # Not by a name, which would keep the answer's parts for as long as the whole of it is being sent.
                    todo.extend(await self._handle(Answered(await (self._snapshot if of_snapshot else self._log).run(plan), token)))
                case Send(data, token):
                    await self._send(data)
                    if token is not None:
                        # Nor these.
                        del action, data
                        todo.extend(await self._handle(Sent(token)))
                case TakeEntries(entries):
                    todo.extend(await self._take(entries))
                case Pause(until):
                    await trio.sleep_until(until)
                    todo.extend(await self._handle(Resumed()))
                case Finish():
                    self._stream.close_sending()
                case Reset(reason, is_violation):
                    self._stream.reset()
                    if is_violation:
                        raise RemoteProtocolError(reason)
                case Done():
                    pass
                case _:
                    assert_never(action)

    async def _take(self, entries: Sequence[tuple[bytes, bytes]]) -> Sequence[SessionAction]:
        assert self._insert is not None
        await trio.lowlevel.checkpoint_if_cancelled()
        # What has begun is finished and counted.
        with trio.CancelScope(shield=True):
            verdicts = await self._insert(entries)
        return await self._handle(Taken(verdicts))

    async def _send(self, data: bytes) -> None:
        with self._turns.limit(self._started, trio.current_time() + SEND_S) as scope:
            await self._stream.send_all(data)
        if scope.cancelled_caught:
            self._stream.reset()
            raise StreamReset("the peer does not read what it asked for")
