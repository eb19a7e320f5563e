"""A peer pulls from us: a `SyncServer` on a stream, over one snapshot of our log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import assert_never

import trio

from ...errors import ClosedError, RemoteProtocolError, SnapshotExpired, StreamReset
from ...limits import TokenBucket
from ...store.base import Reader
from ...sync.events import Answered, Ask, Closed, Finish, Pause, Received, Reset, Resumed, Send, ServerAction, ServerEvent
from ...sync.server import SyncServer
from ..ground.protocol_ids import is_in_parts
from ..transport.stream import Stream

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
        snapshot: What is served, held by the caller for as long as `run` runs.
        stream: Negotiated for sync.
        bucket: The peer's allowance of requests.
        turns: Shared by all sessions of the log.
    """

    def __init__(self, snapshot: Reader, stream: Stream, bucket: TokenBucket, turns: Turns) -> None:
        self._snapshot = snapshot
        self._stream = stream
        self._turns = turns
        self._started = trio.current_time()
        self.server = SyncServer(self._started, bucket=bucket, in_parts=is_in_parts(stream.protocol))

    async def run(self) -> None:
        """Serve until the peer is done, or its share of time is over.

        Raises:
            RemoteProtocolError: The peer broke the protocol.
            StreamReset: The stream broke, or the peer does not read.
            StoreError: The store failed.
        """
        while not self.server.is_done:
            if self._turns.is_over(self._started) or trio.current_time() >= self._started + SESSION_S:
                await self._do(self.server.abort())
                return
            try:
                await self._do(self.server.handle(await self._receive(), trio.current_time()))
            except SnapshotExpired:
                await self._do(self.server.abort())
                return

    async def _receive(self) -> ServerEvent:
        with self._turns.limit(self._started, min(self.server.deadline, self._started + SESSION_S)):
            try:
                data = await self._stream.receive_some()
            except (StreamReset, ClosedError) as error:
                return Closed(str(error))
            return Received(data) if data else Closed("the client is done")
        return Resumed()

    async def _do(self, actions: Iterable[ServerAction]) -> None:
        todo = deque(actions)
        while todo:
            match action := todo.popleft():
                case Ask(plan):
                    # Not by a name, which would keep the answer's parts for as long as the whole of it is being sent.
                    todo.extend(self.server.handle(Answered(await self._snapshot.run(plan)), trio.current_time()))
                case Send(data):
                    await self._send(data)
                case Pause(until):
                    await trio.sleep_until(until)
                    todo.extend(self.server.handle(Resumed(), trio.current_time()))
                case Finish():
                    self._stream.close_sending()
                case Reset(reason, is_violation):
                    self._stream.reset()
                    if is_violation:
                        raise RemoteProtocolError(reason)
                case _:
                    assert_never(action)

    async def _send(self, data: bytes) -> None:
        with self._turns.limit(self._started, trio.current_time() + SEND_S) as scope:
            await self._stream.send_all(data)
        if scope.cancelled_caught:
            self._stream.reset()
            raise StreamReset("the peer does not read what it asked for")
