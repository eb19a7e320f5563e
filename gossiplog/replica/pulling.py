"""A pull between two logs of one process: the machines of both sides and the bytes between them, without a network or a clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, assert_never

import trio

from ..entry.validation import Verdict
from ..errors import LocalProtocolError
from ..plan import Plan
from ..pull import machine
from ..reconcile import Reconciliation, Wishes, serve
from ..reconcile.steps import LogView
from ..sync import events
from ..sync.limits import ServerLimits
from ..sync.result import SyncResult
from ..sync.server import SyncServer
from ..sync.source import Source

Run: TypeAlias = Callable[[Plan[Any]], Awaitable[Any]]
"""Runs a plan on a log or a snapshot."""
Insert: TypeAlias = Callable[[Sequence[tuple[bytes, bytes]]], Awaitable[Sequence[Verdict]]]
"""Inserts `(key, VALUE)` in order, and returns a verdict for each."""

_UNHURRIED = ServerLimits(requests_per_s=1e12, requests_burst=2**62, share_s=float("inf"), idle_s=float("inf"))
_RESUMPTION = machine.Resumption(stuck_max=0)


async def pull_locally(
    run: Run,
    insert: Insert,
    run_on_source: Run,
    *,
    sketches: tuple[LogView, LogView] | None = None,
    forget_sketch: Callable[[], Awaitable[None]] | None = None,
    source: Source | None = None,
    server_limits: ServerLimits | None = None,
) -> SyncResult:
    """Pull the entries that another log has and ours lacks. Sessions follow each other while they make progress.

    Args:
        run: On our log.
        insert: Into our log.
        run_on_source: On one snapshot of the other log.
        sketches: Ours and the other log's, of that snapshot or of an earlier state; None to compare trees.
        forget_sketch: Forgets our sketch.
        source: The knowledge from earlier syncs with the other log.
        server_limits: The limits of the serving side; by default none on time or rate.
    """
    pull = machine.Pull(source or Source(), machine.Speaks(reconciles=True), wishes=Wishes(gives=False), resumption=_RESUMPTION)
    server: events.Session | None = None
    step = pull.start(0.0)
    while True:
        answer: machine.PullAnswer = None
        match step:
            case machine.Pulled():
                return pull.result
            case machine.ViewSketch():
                answer = None if sketches is None else sketches[0]
            case machine.OpenStream(ways):
                answer = ways[0]
                if answer is machine.Way.RECONCILE and sketches is not None:
                    server = Reconciliation(serve(sketches[1], takes=False))
                else:
                    server = SyncServer(0.0, limits=server_limits or _UNHURRIED, in_parts=True)
            case machine.RunSession(client):
                assert server is not None
                await _Pipe(client, server, run, insert, run_on_source).run()
            case machine.ForgetSketch():
                if forget_sketch is not None:
                    await forget_sketch()
            case machine.AwaitServed() | machine.Rest():
                pass  # No other peer exists, and no time passes.
            case _:
                assert_never(step)
        step = pull.handle(answer, 0.0)


class _Pipe:
    """One session: bytes that one side sends count as written once the other side has received them."""

    def __init__(self, client: events.Session, server: events.Session, run: Run, insert: Insert, run_on_source: Run) -> None:
        self._client = client
        self._server = server
        self._run = {client: run, server: run_on_source}
        self._insert = insert
        self._todo: deque[tuple[events.Session, events.SessionAction]] = deque()
        self._inboxes: dict[events.Session, deque[events.Received | events.Closed]] = {client: deque(), server: deque()}
        self._sent: deque[tuple[events.Session, int]] = deque()
        self._is_done = False
        self._now = 0.0

    async def run(self) -> None:
        """Run to the end of the client's side."""
        for side in (self._server, self._client):
            self._take(side, side.start(self._now))
        while not self._is_done:
            if self._todo:
                await self._perform(*self._todo.popleft())
            elif reader := next((side for side in (self._server, self._client) if self._inboxes[side] and side.wants_input), None):
                await self._give(reader, self._inboxes[reader].popleft())
            elif self._sent:
                side, token = self._sent.popleft()
                await self._give(side, events.Sent(token))
            else:
                raise LocalProtocolError("both sides of a sync wait for each other")

    def _take(self, side: events.Session, actions: Sequence[events.SessionAction]) -> None:
        self._todo.extend((side, action) for action in actions)

    async def _give(self, side: events.Session, event: events.SessionEvent) -> None:
        if side.takes_long(event):
            self._take(side, await trio.to_thread.run_sync(side.handle, event, self._now))
        else:
            self._take(side, side.handle(event, self._now))

    async def _perform(self, side: events.Session, action: events.SessionAction) -> None:
        other = self._inboxes[self._server if side is self._client else self._client]
        match action:
            case events.Send(data, token):
                other.append(events.Received(data))
                if token is not None:
                    self._sent.append((side, token))
            case events.Finish() | events.Reset():
                other.append(events.Closed(action.reason if isinstance(action, events.Reset) else "the other side is done"))
            case events.Ask(plan, _, token):
                await self._give(side, events.Answered(await self._run[side](plan), token))
            case events.StoreEntries(entries):
                assert side is self._client, "nothing is given to the log that is pulled from"
                await self._give(side, events.EntriesStored(await self._insert(entries)))
            case events.Pause(until):
                # Nobody waits: the time simply advances.
                self._now = max(self._now, until)
                await self._give(side, events.Resumed())
            case events.Done():
                self._is_done = self._is_done or side is self._client
            case _:
                assert_never(action)
