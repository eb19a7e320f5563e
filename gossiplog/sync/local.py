"""A sync between two logs of one process: both machines, and the bytes between them, without a network, a task or a clock."""

from collections import deque
from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias, assert_never

from ..errors import LocalProtocolError
from ..plan import Plan
from .client import SyncClient
from .events import (
    Answered,
    Ask,
    ClientAction,
    Closed,
    Done,
    Finish,
    Pause,
    Received,
    Reset,
    Resumed,
    Send,
    ServerAction,
    TakeEntries,
    Taken,
)
from .limits import ClientLimits, ServerLimits
from .result import SyncResult
from .server import SyncServer
from .source import Source

__all__ = ["InsertIntoTarget", "RunOnSource", "RunOnTarget", "SyncStep", "sync_steps"]

_UNHURRIED = ServerLimits(requests_per_s=1e12, requests_burst=2**62, share_s=float("inf"), idle_s=float("inf"))
_FRUITLESS_MAX = 200
"""Sessions in a row that bring nothing and yet narrow down which keys the source fails on, about 12 a key, before we give up."""


class RunOnTarget(NamedTuple):
    """Run this plan on the log that pulls; send back what it returns."""

    plan: Plan[Any]


class RunOnSource(NamedTuple):
    """Run this plan on the one snapshot of the log that is pulled from; send back what it returns."""

    plan: Plan[Any]


class InsertIntoTarget(NamedTuple):
    """Insert these `(key, VALUE)` into the log that pulls, in this order; send back a verdict each."""

    entries: list[tuple[bytes, bytes]]


SyncStep: TypeAlias = RunOnTarget | RunOnSource | InsertIntoTarget


def sync_steps(
    source: Source | None = None, *, client_limits: ClientLimits | None = None, server_limits: ServerLimits | None = None
) -> Generator[SyncStep, Any, SyncResult]:
    """Pull what one log has and another lacks, as a generator of the steps that touch a log:

        steps = sync_steps()
        step = next(steps)
        while True:   # until StopIteration, whose value is the SyncResult
            match step:
                case RunOnTarget(plan): answer = await target.run(plan)
                case RunOnSource(plan): answer = await snapshot.run(plan)
                case InsertIntoTarget(entries): answer = await target.insert_many([value for _, value in entries])
            step = steps.send(answer)

    Sessions follow each other as long as they get on. All `RunOnSource` must see one state of the source, at least until the
    generator is done: opening one snapshot for the whole is right.

    Args:
        source: What earlier syncs from this log have taught us.
        client_limits: Bounds of the pulling side.
        server_limits: Bounds of the serving side; by default none of time or rate.
    """
    memory = source or Source()
    total: SyncResult | None = None
    fruitless = 0
    while fruitless < _FRUITLESS_MAX:
        result = yield from _Session(memory, client_limits, server_limits or _UNHURRIED).steps()
        total = result if total is None else total.then(result)
        if not result.is_resumable or not result.has_progressed:
            break
        fruitless = 0 if result.entries else fruitless + 1
    assert total is not None
    return total


class _Session:
    """One session: whatever either side wants sent, the other receives."""

    def __init__(self, source: Source, client_limits: ClientLimits | None, server_limits: ServerLimits) -> None:
        self._client = SyncClient(source, client_limits, in_parts=True)
        self._server = SyncServer(0.0, limits=server_limits, in_parts=True)
        self._client_todo: deque[ClientAction] = deque()
        self._server_todo: deque[ServerAction] = deque()
        self._up: deque[Received | Closed] = deque()
        self._down: deque[Received | Closed] = deque()
        self._now = 0.0

    def steps(self) -> Generator[SyncStep, Any, SyncResult]:
        """Run to the end."""
        self._client_todo.extend(self._client.start(self._now))
        while True:
            if self._client_todo:
                result = yield from self._step_client(self._client_todo.popleft())
                if result is not None:
                    return result
            elif self._server_todo:
                yield from self._step_server(self._server_todo.popleft())
            elif self._up and self._server.wants_input:
                self._server_todo.extend(self._server.handle(self._up.popleft(), self._now))
            elif self._down and self._client.wants_input:
                self._client_todo.extend(self._client.handle(self._down.popleft(), self._now))
            else:
                raise LocalProtocolError("both sides of a sync wait for each other")

    def _step_client(self, action: ClientAction) -> Generator[SyncStep, Any, SyncResult | None]:
        match action:
            case Send(data):
                self._up.append(Received(data))
            case Finish():
                self._up.append(Closed("the client is done"))
            case Ask(plan):
                answer = yield RunOnTarget(plan)
                self._client_todo.extend(self._client.handle(Answered(answer), self._now))
            case TakeEntries(entries):
                verdicts = yield InsertIntoTarget(entries)
                self._client_todo.extend(self._client.handle(Taken(verdicts), self._now))
            case Done(result):
                return result
            case _:
                assert_never(action)
        return None

    def _step_server(self, action: ServerAction) -> Generator[SyncStep, Any, None]:
        match action:
            case Send(data):
                self._down.append(Received(data))
            case Finish():
                self._down.append(Closed("the server is done"))
            case Reset(reason, _):
                self._down.append(Closed(reason))
            case Ask(plan):
                answer = yield RunOnSource(plan)
                self._server_todo.extend(self._server.handle(Answered(answer), self._now))
            case Pause(until):
                # Nobody waits in here: time is what the limits say it is.
                self._now = max(self._now, until)
                self._server_todo.extend(self._server.handle(Resumed(), self._now))
            case _:
                assert_never(action)
