"""A pull between two logs of one process: the machines of both sides and the bytes between them, without network, tasks or clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias, assert_never

from ..errors import LocalProtocolError
from ..plan import Plan
from ..reconcile import Reconciliation, Wishes, serve
from ..reconcile.steps import LogView
from ..sync import events
from ..sync.limits import ServerLimits
from ..sync.result import SyncResult
from ..sync.server import SyncServer
from ..sync.source import Source
from . import machine

_UNHURRIED = ServerLimits(requests_per_s=1e12, requests_burst=2**62, share_s=float("inf"), idle_s=float("inf"))
_RESUMPTION = machine.Resumption(stuck_max=0)


class RunOnTarget(NamedTuple):
    """Run a plan on the log that pulls, and send back its answer."""

    plan: Plan[Any]


class RunOnSource(NamedTuple):
    """Run a plan on the one snapshot of the log that is pulled from, and send back its answer."""

    plan: Plan[Any]


class InsertIntoTarget(NamedTuple):
    """Insert `(key, VALUE)` pairs into the log that pulls, in order, and send back a verdict for each."""

    entries: list[tuple[bytes, bytes]]


class ViewBoth(NamedTuple):
    """Send back the sketches of the log that pulls and of the other one, if both are at hand, else None.

    The second sketch is of the snapshot of `RunOnSource` or of an earlier state.
    """


class Work(NamedTuple):
    """Call a function that may take more than a few milliseconds, and send back its result."""

    call: Callable[[], Any]


SyncStep: TypeAlias = RunOnTarget | RunOnSource | InsertIntoTarget | ViewBoth | machine.ForgetSketch | Work


def sync_steps(source: Source | None = None, *, server_limits: ServerLimits | None = None) -> Generator[SyncStep, Any, SyncResult]:
    """Pull the entries that one log has and another lacks, as a generator of the steps that touch a log:

        steps = sync_steps()
        step = next(steps)
        while True:   # until StopIteration, whose value is the SyncResult
            match step:
                case RunOnTarget(plan): answer = await target.run(plan)
                case RunOnSource(plan): answer = await snapshot.run(plan)
                case InsertIntoTarget(entries): answer = await target.insert_many([value for _, value in entries])
                case ViewBoth(): answer = None
                case ForgetSketch(): answer = await target.forget_sketch()
                case Work(call): answer = call()
            step = steps.send(answer)

    Sessions follow each other while they make progress. All `RunOnSource` must see the same state of the source until the generator is
    done, so open one snapshot for all of them.

    Args:
        source: The knowledge from earlier syncs with this log.
        server_limits: The limits of the serving side; by default none on time or rate.
    """
    pull = machine.Pull(
        source or Source(),
        machine.Speaks(reconciles=True),
        wishes=Wishes(gives=False),
        resumption=_RESUMPTION,
    )
    # The other log's sketch, and the serving side of the stream opened last.
    theirs: LogView | None = None
    server: events.Session | None = None
    step = pull.start(0.0)
    while True:
        answer: machine.PullAnswer = None
        match step:
            case machine.Pulled():
                return pull.result
            case machine.ViewSketch():
                views: tuple[LogView, LogView] | None = yield ViewBoth()
                answer, theirs = (None, None) if views is None else views
            case machine.OpenStream(ways):
                answer = ways[0]
                if answer is machine.Way.RECONCILE and theirs is not None:
                    server = Reconciliation(serve(theirs, takes=False))
                else:
                    server = SyncServer(0.0, limits=server_limits or _UNHURRIED, in_parts=True)
            case machine.RunSession(client):
                assert server is not None
                yield from _Pipe(client, server).steps()
            case machine.ForgetSketch():
                yield step
            case machine.AwaitServed() | machine.Rest():
                pass  # No other peer exists, and no time passes.
            case _:
                assert_never(step)
        step = pull.handle(answer, 0.0)


class _Pipe:
    """One session: bytes that one side sends count as written once the other side has received them."""

    def __init__(self, client: events.Session, server: events.Session) -> None:
        self._client = client
        self._server = server
        self._todo: deque[tuple[events.Session, events.SessionAction]] = deque()
        self._inboxes: dict[events.Session, deque[events.Received | events.Closed]] = {client: deque(), server: deque()}
        self._sent: deque[tuple[events.Session, int]] = deque()
        self._is_done = False
        self._now = 0.0

    def steps(self) -> Generator[SyncStep, Any, None]:
        """Run to the end of the client's side."""
        for side in (self._server, self._client):
            self._take(side, side.start(self._now))
        while not self._is_done:
            if self._todo:
                yield from self._perform(*self._todo.popleft())
            elif reader := next((side for side in (self._server, self._client) if self._inboxes[side] and side.wants_input), None):
                yield from self._give(reader, self._inboxes[reader].popleft())
            elif self._sent:
                side, token = self._sent.popleft()
                yield from self._give(side, events.Sent(token))
            else:
                raise LocalProtocolError("both sides of a sync wait for each other")

    def _take(self, side: events.Session, actions: Sequence[events.SessionAction]) -> None:
        self._todo.extend((side, action) for action in actions)

    def _give(self, side: events.Session, event: events.SessionEvent) -> Generator[SyncStep, Any, None]:
        if side.takes_long(event):
            self._take(side, (yield Work(partial(side.handle, event, self._now))))
        else:
            self._take(side, side.handle(event, self._now))

    def _perform(self, side: events.Session, action: events.SessionAction) -> Generator[SyncStep, Any, None]:
        other = self._inboxes[self._server if side is self._client else self._client]
        match action:
            case events.Send(data, token):
                other.append(events.Received(data))
                if token is not None:
                    self._sent.append((side, token))
            case events.Finish() | events.Reset():
                other.append(events.Closed(action.reason if isinstance(action, events.Reset) else "the other side is done"))
            case events.Ask(plan, _, token):
                answer = yield RunOnTarget(plan) if side is self._client else RunOnSource(plan)
                yield from self._give(side, events.Answered(answer, token))
            case events.StoreEntries(entries):
                assert side is self._client, "nothing is given to the log that is pulled from"
                yield from self._give(side, events.EntriesStored((yield InsertIntoTarget(entries))))
            case events.Pause(until):
                # Nobody waits: the time simply advances.
                self._now = max(self._now, until)
                yield from self._give(side, events.Resumed())
            case events.Done():
                self._is_done = self._is_done or side is self._client
            case _:
                assert_never(action)
