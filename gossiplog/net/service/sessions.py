"""Syncs on streams: what the machines of `pull`, `sync` and `reconcile` ask for, done with a log and a connection.

A session of ours, `PullSession`, reads on while it asks the log, inserts and writes, as far as it wants to. One of a peer's,
`ServeSession`, does one thing after the other over one snapshot, so that a peer that does not read costs no memory, and is cut short when
others wait.
`Puller` drives a whole pull, which is some sessions of ours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TypeAlias, assert_never

import trio

from ...entry.validation import Verdict
from ...errors import ClosedError, GossipLogError, RemoteProtocolError, SnapshotExpired, StoreError, StreamReset
from ...pubsub.types import PeerId
from ...pull.machine import (
    AwaitServed,
    ForgetSketch,
    OpenStream,
    Pull,
    PullAnswer,
    Pulled,
    Rest,
    RunSession,
    ViewSketch,
    Way,
)
from ...reconcile import Reconciliation, Served
from ...replica.log import Replica
from ...replica.sketching import SketchView
from ...store.base import Reader
from ...sync import events
from ...sync.schedule import SessionSlots
from ...sync.server import SyncServer
from ...tasks.nursery import open_service_nursery
from ..ground.protocol_ids import reconcile_protocol, sync_protocols
from ..transport.stream import Connection, Stream

Insert: TypeAlias = Callable[[Sequence[tuple[bytes, bytes]]], Awaitable[list[Verdict]]]
"""Validates and inserts what a sync brought; a store that fails is a verdict of the rule `storage`."""

CATCH_UP_S = 2.0
"""How long a session waits for the sketch; what was added by then is not added again."""
SEND_S = 60.0
"""How long a message whose sender waits for it may take to be written."""
TURN_S = 2.0
"""What a session may take while others wait; the reference gives nobody more."""
SESSION_S = 60.0
"""How long a session may hold its snapshot, wanted or not: nothing later can be tidied up meanwhile. The client resumes on a later one."""
ANSWER_S = 10.0
"""How long one answer may take to be written: a slow reader holds up a place that others want."""
_CLOSING_S = 2.0


async def sketch_in_time(log: Replica) -> SketchView | None:
    """Return the log's sketch; None if that takes too long now, or an entry is damaged, which the sync by trees may not notice."""
    with trio.move_on_after(CATCH_UP_S), suppress(StoreError):
        return await log.sketch()
    return None


async def close_in_peace(stream: Stream) -> None:
    """Close a stream after its session: what was sent arrives, if the peer takes part in that, within 2 s."""
    try:
        stream.close_sending()
        with trio.move_on_after(_CLOSING_S):
            while await stream.receive_some():
                pass
    except GossipLogError:
        pass  # It is over all the same, even where the peer never took it.
    finally:
        stream.reset()


async def _handle(session: events.Session, event: events.SessionEvent) -> list[events.SessionAction]:
    """Have a session take an event, in a thread where that takes long: a frame may have 91,000 nodes."""
    if session.takes_long(event):
        return await trio.to_thread.run_sync(session.handle, event, trio.current_time())
    return session.handle(event, trio.current_time())


async def _take(insert: Insert, entries: Sequence[tuple[bytes, bytes]]) -> events.EntriesStored:
    """Insert entries: what has begun is finished and counted, cancelled or not; what has not is left to the next session."""
    await trio.lowlevel.checkpoint_if_cancelled()
    with trio.CancelScope(shield=True):
        verdicts = await insert(entries)
    return events.EntriesStored(verdicts)


class Puller:
    """Drives a pull on one connection.

    Args:
        open_stream: Opens a stream for one of these protocols, or returns None: protocols, seconds, and whether it is lazy.
        close: Closes a stream after its session.
        serving: Held by the session of the peer's that is served; None where none is.
        on_pause: Called before a pause, with its seconds.
    """

    def __init__(
        self,
        log: Replica,
        connection: Connection,
        open_stream: Callable[[Sequence[str], float | None, bool], Awaitable[Stream | None]],
        insert: Callable[[Way], Insert],
        close: Callable[[Stream], Awaitable[None]],
        *,
        serving: trio.Lock | None = None,
        on_pause: Callable[[float], None] | None = None,
    ) -> None:
        self._log = log
        self._connection = connection
        self._open_stream = open_stream
        self._insert = insert
        self._close = close
        self._serving = serving
        self._on_pause = on_pause
        in_parts, as_reference = sync_protocols(log.topic)
        self._ids = {Way.RECONCILE: reconcile_protocol(log.topic), Way.PARTS: in_parts, Way.TREE: as_reference}
        # What the next session runs on, and what it was opened for.
        self._stream: Stream | None = None
        self._way = Way.TREE

    async def run(self, pull: Pull) -> None:
        """Pull to the end. A cancelled pull still inserts the batch that it is inserting, and has it in its result."""
        try:
            step = pull.start(trio.current_time())
            while not isinstance(step, Pulled):
                step = pull.handle(await self._take(step), trio.current_time())
        finally:
            pull.close()

    async def _take(self, step: ViewSketch | OpenStream | RunSession | ForgetSketch | AwaitServed | Rest) -> PullAnswer:
        match step:
            case ViewSketch():
                return await sketch_in_time(self._log)
            case OpenStream(ways, is_lazy, wait_s):
                return await self._open(ways, wait_s, is_lazy=is_lazy)
            case RunSession(session):
                return await self._run_session(session)
            case ForgetSketch():
                await self._log.forget_sketch()
            case AwaitServed():
                if self._serving is not None:
                    async with self._serving:
                        pass
            case Rest(pause_s):
                if self._on_pause is not None:
                    self._on_pause(pause_s)
                await trio.sleep(pause_s)
            case _:
                assert_never(step)
        return None

    async def _open(self, ways: Sequence[Way], wait_s: float | None, *, is_lazy: bool) -> Way | None:
        ids = [self._ids[way] for way in ways]
        self._stream = await self._open_stream(ids, wait_s, is_lazy)
        if self._stream is None:
            return None
        self._way = ways[ids.index(self._stream.protocol)]
        return self._way

    async def _run_session(self, session: events.Session) -> bool:
        stream, self._stream = self._stream, None
        assert stream is not None
        try:
            await PullSession(self._log, self._connection, stream, session, self._insert(self._way)).run()
        finally:
            await self._close(stream)
        return self._connection.is_over


class PullSession:
    """One session: it reads, writes, asks the log and inserts, all at once if the session reads on meanwhile.

    What a session waits for without reading is done in place; the rest has a task of its own.
    """

    def __init__(self, log: Replica, connection: Connection, stream: Stream, session: events.Session, insert: Insert) -> None:
        self._log = log
        self._connection = connection
        self._stream = stream
        self._session = session
        self._insert = insert
        self._todo: deque[events.Send | events.Ask | events.StoreEntries] = deque()
        # Bytes that nobody waits for, written by a task of their own that is started with the first of them.
        self._outgoing: deque[bytes] = deque()
        self._is_writing = False
        self._is_finishing = False
        # Those whose sender waits are written in turns.
        self._writing = trio.Lock()
        self._moved = trio.Event()
        # Held while the machine is at work, which may be in a thread.
        self._turn = trio.Lock()
        self._reading: trio.CancelScope | None = None
        self._nursery: trio.Nursery
        self._is_done = False

    async def run(self) -> None:
        """Run to the end. A cancelled run still inserts the batch that it is inserting, and the session hears of it."""
        async with open_service_nursery() as self._nursery:
            self._perform(self._session.start(trio.current_time()))
            await self._read()
            self._nursery.cancel_scope.cancel()

    async def _give(self, event: events.SessionEvent) -> None:
        async with self._turn:
            self._perform(await _handle(self._session, event))

    def _perform(self, actions: Sequence[events.SessionAction]) -> None:
        for action in actions:
            match action:
                case events.Send(data, None):
                    self._outgoing.append(data)
                    if not self._is_writing:
                        self._is_writing = True
                        self._nursery.start_soon(self._write)
                case events.Send() | events.Ask() | events.StoreEntries():
                    self._todo.append(action)
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
        if self._reading is not None or self._session.wants_input:
            while self._todo:
                self._nursery.start_soon(self._carry_out, self._todo.popleft())
        # Those who wait look again: there is something to write, or to read, or another deadline.
        moved, self._moved = self._moved, trio.Event()
        moved.set()
        if self._reading is not None:
            if self._is_done:
                self._reading.cancel()
            deadline = self._session.deadline
            self._reading.deadline = float("inf") if deadline is None else deadline

    async def _read(self) -> None:
        while True:
            async with self._turn:
                moved, is_wanted, deadline = self._moved, self._session.wants_input, self._session.deadline
            if self._is_done:
                return
            if is_wanted:
                event: events.SessionEvent = events.Resumed()
                with trio.CancelScope(deadline=float("inf") if deadline is None else deadline) as self._reading:
                    event = await self._receive()
                self._reading = None
                await self._give(event)
            elif self._todo:
                await self._carry_out(self._todo.popleft())
            else:
                await moved.wait()

    async def _receive(self) -> events.Received | events.Closed:
        try:
            data = await self._stream.receive_some()
        except GossipLogError as error:
            return events.Closed(str(error), self._connection.is_over)
        return events.Received(data) if data else events.Closed("the stream ended")

    async def _write(self) -> None:
        # The reader learns of a stream that is broken.
        with suppress(GossipLogError):
            while True:
                while self._outgoing:
                    await self._stream.send_all(self._outgoing.popleft())
                if self._is_finishing:
                    self._stream.close_sending()
                    return
                await self._moved.wait()

    async def _carry_out(self, action: events.Send | events.Ask | events.StoreEntries) -> None:
        match action:
            case events.Send(data, token):
                assert token is not None
                del action
                await self._send(data)
                await self._give(events.Sent(token))
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

    async def _send(self, data: bytes) -> None:
        with trio.move_on_after(SEND_S):
            async with self._writing:
                with suppress(GossipLogError):
                    await self._stream.send_all(data)
                return
        self._stream.reset()


class Turns:
    """Who is served: one session a peer, a few at a time, each cut short once it was served for long enough and somebody else waits."""

    def __init__(self) -> None:
        self._slots = SessionSlots[PeerId]()
        self._waiting: dict[PeerId, trio.Event] = {}
        # What a session waits for, and when its turn is over.
        self._scopes: dict[trio.CancelScope, float] = {}

    @asynccontextmanager
    async def taken(self, peer: PeerId) -> AsyncIterator[None]:
        """Wait for a peer's turn, and have it for the length of a block.

        Raises:
            StreamReset: Too many wait.
        """
        is_served = self._slots.enter(peer)
        if is_served is None:
            raise StreamReset("too many sessions wait")
        try:
            if not is_served:
                await self._wait(peer)
            yield
        finally:
            chosen = self._slots.leave(peer)
            if chosen is not None:
                self._waiting[chosen].set()

    async def _wait(self, peer: PeerId) -> None:
        self._waiting[peer] = turn = trio.Event()
        for scope, ends_at in self._scopes.items():
            scope.deadline = min(scope.deadline, ends_at)
        try:
            await turn.wait()
        finally:
            del self._waiting[peer]

    def is_over(self, started: float) -> bool:
        """Whether a session that began at this time has to make room."""
        return bool(self._waiting) and trio.current_time() >= started + TURN_S

    @contextmanager
    def limit(self, started: float, deadline: float) -> Iterator[trio.CancelScope]:
        """Cancel what a session waits for at a deadline, or when it has to make room."""
        ends_at = started + TURN_S
        with trio.CancelScope(deadline=min(deadline, ends_at) if self._waiting else deadline) as scope:
            self._scopes[scope] = ends_at
            try:
                yield scope
            finally:
                del self._scopes[scope]


class ServeSession:
    """One session.

    Args:
        snapshot: What is served, held by the caller for as long as `run` runs.
        session: By trees, or a reconciliation.
        insert: Inserts what the peer gives; None where it may give nothing.
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
                await self._do(await _handle(self._session, await self._receive()))
            except SnapshotExpired:
                if not isinstance(self._session, SyncServer):
                    # A reconciliation has no word for it.
                    raise
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
                    # Not by a name, which would keep the answer's parts for as long as the whole of it is being sent.
                    todo.extend(
                        await _handle(self._session, events.Answered(await (self._snapshot if of_snapshot else self._log).run(plan), token))
                    )
                case events.Send(data, token):
                    await self._send(data)
                    if token is not None:
                        # Nor these.
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
            raise StreamReset("the peer does not read what it asked for")
