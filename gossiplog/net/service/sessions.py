"""Syncs on streams: carries out the actions of the machines in `pull`, `sync` and `reconcile` on a log and a connection.

`PullSession` is a session of ours: it goes on reading while it asks the log, inserts and writes, unless its machine wants no input.
`ServeSession` serves a peer's session: one action after the other on one snapshot, so that a peer that does not read costs no memory. It is
cut short when other peers wait. `run_pull` drives a whole pull, which consists of sessions of ours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from math import inf
from typing import TypeAlias, assert_never

import trio

from ...entry.validation import Verdict
from ...errors import ClosedError, GossipLogError, RemoteProtocolError, SnapshotExpired, StoreError, StreamReset
from ...pull.machine import AwaitServed, ForgetSketch, OpenStream, Pull, PullAnswer, Pulled, Rest, RunSession, ViewSketch, Way
from ...reconcile import Reconciliation, Served
from ...replica.log import Replica
from ...replica.sketching import SketchView
from ...store.base import Reader
from ...sync import events
from ...sync.server import SyncServer
from ...tasks.nursery import open_service_nursery
from ..ground.protocol_ids import reconcile_protocol, sync_protocols
from ..transport.muxed import Connection, Stream

Insert: TypeAlias = Callable[[Sequence[tuple[bytes, bytes]]], Awaitable[list[Verdict]]]
"""Validates and inserts the `(key, VALUE)` of a sync. If the store fails, the verdicts name the rule `storage`."""

CATCH_UP_S = 2.0
"""How long a session waits for the sketch. The entries added to the sketch by then stay added."""
SEND_S = 60.0
"""How long writing a message may take when the session waits for it."""
SERVED_MAX, WAITING_MAX = 32, 256
"""How many sessions are served at a time, and how many wait for their turn."""
TURN_S = 2.0
"""How long a session may take while others wait, as in the reference."""
SESSION_S = 60.0
"""How long a session may hold its snapshot in any case: meanwhile the store cannot tidy up. The client resumes on a later snapshot."""
ANSWER_S = 10.0
"""How long writing one answer may take: a slow reader occupies a place that others want."""
_CLOSING_S = 2.0


async def sketch_in_time(log: Replica) -> SketchView | None:
    """Return the log's sketch; None if that takes too long, or an entry is damaged: a sync by trees may never read that entry."""
    with trio.move_on_after(CATCH_UP_S), suppress(StoreError):
        return await log.sketch()
    return None


async def close_in_peace(stream: Stream) -> None:
    """Close a stream after its session. The peer has 2 s to read what was sent and close its side."""
    try:
        stream.close_sending()
        with trio.move_on_after(_CLOSING_S):
            while await stream.receive_some():
                pass
    except GossipLogError:
        pass  # The session is over in any case, even if the peer never accepted the stream.
    finally:
        stream.reset()


async def _handle(session: events.Session, event: events.SessionEvent) -> list[events.SessionAction]:
    """Give a session an event, in a thread if that takes long: a frame may have 91,000 nodes."""
    if session.takes_long(event):
        return await trio.to_thread.run_sync(session.handle, event, trio.current_time())
    return session.handle(event, trio.current_time())


async def _take(insert: Insert, entries: Sequence[tuple[bytes, bytes]]) -> events.EntriesStored:
    """Insert entries. Once the insertion has begun, a cancelled call finishes it; else the next session brings the entries again."""
    await trio.lowlevel.checkpoint_if_cancelled()
    with trio.CancelScope(shield=True):
        verdicts = await insert(entries)
    return events.EntriesStored(verdicts)


async def run_pull(
    pull: Pull,
    log: Replica,
    connection: Connection,
    open_stream: Callable[[Sequence[str], float | None, bool], Awaitable[Stream | None]],
    insert: Callable[[Way], Insert],
    close: Callable[[Stream], Awaitable[None]],
    *,
    serving: trio.Lock | None = None,
    on_pause: Callable[[float], None] = lambda pause_s: None,
) -> None:
    """Pull on a connection to the end. A cancelled pull still inserts the batch that it is inserting, and counts it in its result.

    Args:
        open_stream: Opens a stream for one of some protocols, or returns None. It is given the protocols, seconds, and whether it is lazy.
        insert: Returns what inserts the entries of a session.
        close: Closes a stream after its session.
        serving: Held by the session that we serve to this peer, if any.
        on_pause: Called before a pause, with its seconds.
    """
    in_parts, as_reference = sync_protocols(log.topic)
    ids = {Way.RECONCILE: reconcile_protocol(log.topic), Way.PARTS: in_parts, Way.TREE: as_reference}
    stream: Stream | None = None
    way = Way.TREE
    try:
        step = pull.start(trio.current_time())
        while not isinstance(step, Pulled):
            answer: PullAnswer = None
            match step:
                case ViewSketch():
                    answer = await sketch_in_time(log)
                case OpenStream(ways, is_lazy, wait_s):
                    stream = await open_stream([ids[each] for each in ways], wait_s, is_lazy)
                    if stream is not None:
                        answer = way = next(each for each in ways if ids[each] == stream.protocol)
                case RunSession(session):
                    assert stream is not None
                    try:
                        await PullSession(log, connection, stream, session, insert(way)).run()
                    finally:
                        await close(stream)
                    answer = connection.is_over
                case ForgetSketch():
                    await log.forget_sketch()
                case AwaitServed():
                    if serving is not None:
                        async with serving:
                            pass
                case Rest(pause_s):
                    on_pause(pause_s)
                    await trio.sleep(pause_s)
                case _:
                    assert_never(step)
            step = pull.handle(answer, trio.current_time())
    finally:
        pull.close()


class PullSession:
    """One session of ours: it reads, writes, asks the log and inserts, all at once while its machine wants input.

    Each action that takes time has a task of its own.
    """

    def __init__(self, log: Replica, connection: Connection, stream: Stream, session: events.Session, insert: Insert) -> None:
        self._log = log
        self._connection = connection
        self._stream = stream
        self._session = session
        self._insert = insert
        # Messages to write, each with a token if the machine waits for it. The first starts the task that writes them.
        self._outgoing: deque[tuple[bytes, int | None]] = deque()
        self._is_writing = False
        self._is_finishing = False
        # Set and replaced after every step of the machine.
        self._moved = trio.Event()
        # Held while the machine takes a step, which may be in a thread.
        self._turn = trio.Lock()
        self._reading: trio.CancelScope | None = None
        self._nursery: trio.Nursery
        self._is_done = False

    async def run(self) -> None:
        """Run to the end. A cancelled run still inserts the batch that it is inserting, and tells the machine."""
        async with open_service_nursery() as self._nursery:
            self._perform(self._session.start(trio.current_time()))
            await self._read()

    async def _give(self, event: events.SessionEvent) -> None:
        async with self._turn:
            self._perform(await _handle(self._session, event))

    def _perform(self, actions: Sequence[events.SessionAction]) -> None:
        for action in actions:
            match action:
                case events.Send(data, token):
                    self._outgoing.append((data, token))
                    if not self._is_writing:
                        self._is_writing = True
                        self._nursery.start_soon(self._write)
                case events.Ask() | events.StoreEntries():
                    self._nursery.start_soon(self._carry_out, action)
                case events.Finish():
                    self._is_finishing = True
                    if not self._is_writing:
                        self._stream.close_sending()
                case events.Done():
                    self._is_done = True
                case events.Pause() | events.Reset():
                    raise AssertionError(action)
                case _:
                    assert_never(action)
        # There may be something to write or to read, or another deadline.
        moved, self._moved = self._moved, trio.Event()
        moved.set()
        if self._reading is not None:
            if self._is_done:
                self._reading.cancel()
            deadline = self._session.deadline
            self._reading.deadline = inf if deadline is None else deadline

    async def _read(self) -> None:
        while True:
            async with self._turn:
                moved, is_wanted, deadline = self._moved, self._session.wants_input, self._session.deadline
            if self._is_done:
                return
            if is_wanted:
                event: events.SessionEvent = events.Resumed()
                with trio.CancelScope(deadline=inf if deadline is None else deadline) as self._reading:
                    event = await self._receive()
                self._reading = None
                await self._give(event)
            else:
                await moved.wait()

    async def _receive(self) -> events.Received | events.Closed:
        try:
            data = await self._stream.receive_some()
        except GossipLogError as error:
            return events.Closed(str(error), self._connection.is_over)
        return events.Received(data) if data else events.Closed("the stream ended")

    async def _write(self) -> None:
        while True:
            while self._outgoing:
                data, token = self._outgoing.popleft()
                # The reader notices a broken stream.
                with trio.move_on_after(inf if token is None else SEND_S) as scope, suppress(GossipLogError):
                    await self._stream.send_all(data)
                if scope.cancelled_caught:
                    self._stream.reset()
                del data
                if token is not None:
                    await self._give(events.Sent(token))
            if self._is_finishing:
                self._stream.close_sending()
                return
            await self._moved.wait()

    async def _carry_out(self, action: events.Ask | events.StoreEntries) -> None:
        match action:
            case events.Ask(plan, _, token):
                try:
                    answer = events.Answered(await self._log.run(plan), token)
                except StoreError as error:
                    await self._give(events.Failed(str(error)))
                    return
                await self._give(answer)
            case events.StoreEntries(entries):
                taken = await _take(self._insert, entries)
                with trio.CancelScope(shield=True):
                    await self._give(taken)
            case _:
                assert_never(action)


class Turns:
    """Turns of the sessions that we serve, a few at a time. Each is cut short after `TURN_S` if others wait."""

    def __init__(self) -> None:
        self._places = trio.Semaphore(SERVED_MAX)
        # Scopes of sessions that wait for their peer, with the time at which each one's turn is over.
        self._scopes: dict[trio.CancelScope, float] = {}

    @property
    def _waiting(self) -> int:
        return self._places.statistics().tasks_waiting

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Wait for a turn, in the order in which sessions came, and hold it for the length of a block.

        Raises:
            StreamReset: Too many sessions wait.
        """
        if self._waiting >= WAITING_MAX:
            raise StreamReset("too many sessions wait")
        if not self._places.value:
            for scope, ends_at in self._scopes.items():
                scope.deadline = min(scope.deadline, ends_at)
        async with self._places:
            yield

    def is_over(self, started: float) -> bool:
        """Whether a session that began at this time has to make room for others."""
        return self._waiting > 0 and trio.current_time() >= started + TURN_S

    @contextmanager
    def limit(self, started: float, deadline: float) -> Iterator[trio.CancelScope]:
        """Cancel a block at a deadline, or when the session that began at `started` has to make room."""
        ends_at = started + TURN_S
        with trio.CancelScope(deadline=min(deadline, ends_at) if self._waiting else deadline) as scope:
            self._scopes[scope] = ends_at
            try:
                yield scope
            finally:
                del self._scopes[scope]


class ServeSession:
    """One session that we serve.

    Args:
        snapshot: Held by the caller while `run` runs.
        session: The machine: of a sync by trees, or of a reconciliation.
        insert: Inserts the entries that the peer gives; None if it may give none.
        turns: Shared by all sessions of the log.
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
        """Serve until the peer is done or its time is up.

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
                await self._do(await _handle(self._session, await self._receive()))
            except SnapshotExpired:
                if not isinstance(self._session, SyncServer):
                    raise  # A reconciliation has no message for this.
                await self._do(self._session.abort())
                return

    async def _receive(self) -> events.SessionEvent:
        ends_at, deadline = self._started + SESSION_S, self._session.deadline
        with self._turns.limit(self._started, ends_at if deadline is None else min(deadline, ends_at)):
            try:
                data = await self._stream.receive_some()
            except (StreamReset, ClosedError) as error:
                return events.Closed(str(error))
            return events.Received(data) if data else events.Closed("the client is done")
        return events.Resumed()

    async def _do(self, actions: Iterable[events.SessionAction]) -> None:
        todo = deque(actions)
        while todo:
            match action := todo.popleft():
                case events.Ask(plan, of_snapshot, token):
                    # A name for the answer would keep its parts in memory until all of it is sent.
                    todo.extend(
                        await _handle(self._session, events.Answered(await (self._snapshot if of_snapshot else self._log).run(plan), token))
                    )
                case events.Send(data, token):
                    await self._send(data)
                    if token is not None:
                        del action, data
                        todo.extend(await _handle(self._session, events.Sent(token)))
                case events.StoreEntries(entries):
                    assert self._insert is not None
                    todo.extend(await _handle(self._session, await _take(self._insert, entries)))
                case events.Pause(until):
                    await trio.sleep_until(until)
                    todo.extend(await _handle(self._session, events.Resumed()))
                case events.Finish():
                    self._stream.close_sending()
                case events.Reset(reason, is_violation):
                    self._stream.reset()
                    if is_violation:
                        raise RemoteProtocolError(reason)
                case events.Done():
                    pass
                case _:
                    assert_never(action)

    async def _send(self, data: bytes) -> None:
        with self._turns.limit(self._started, trio.current_time() + ANSWER_S) as scope:
            await self._stream.send_all(data)
        if scope.cancelled_caught:
            self._stream.reset()
            raise StreamReset("the peer does not read the answers that it asked for")
