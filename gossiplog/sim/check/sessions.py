"""The two sides of a sync as simulated replicas drive them: the real machines, streams and deadlines of the world."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, assert_never

from ...entry.validation import Verdict
from ...limits import TokenBucket
from ...plan import Plan, run_plan
from ...store.memory.state import MemoryState
from ...sync.client import SyncClient
from ...sync.events import (
    Answered,
    Ask,
    ClientAction,
    ClientEvent,
    Closed,
    Done,
    Finish,
    Pause,
    Received,
    Reset,
    Resumed,
    Send,
    ServerAction,
    ServerEvent,
    TakeEntries,
    Taken,
    TimedOut,
)
from ...sync.result import SyncResult
from ...sync.server import SyncServer

__all__ = ["END", "ClientSession", "Host", "Server", "ServerSession"]

T = TypeVar("T")

END = b""
"""Sent on a stream: the sender closes its side."""


class Host(Protocol):
    """What a session needs of the replica that it belongs to."""

    @property
    def state(self) -> MemoryState:
        """The log of now."""

    def local_now(self) -> float:
        """The time on the replica's clock."""

    def wake_at(self, local_s: float, call: Callable[[], None]) -> None:
        """Call at a time on the replica's clock, unless it has crashed by then."""

    def read(self, plan: Plan[T]) -> T:
        """Run a plan that reads the log of now."""

    def insert_many(self, entries: Sequence[tuple[bytes, bytes]], then: Callable[[list[Verdict]], None]) -> None:
        """Validate and insert, and give the verdicts."""


class _Inbox:
    """What has arrived on a stream and waits until the machine wants it; its end comes last, once."""

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()
        self._end: Closed | None = None

    def put(self, data: bytes | None, *, is_connection_lost: bool = False) -> None:
        """Take what arrived; `END` or None: the stream is closed, or broke."""
        if data:
            self._messages.append(data)
        else:
            self._end = Closed("the stream ended", is_connection_lost)

    def take(self) -> Received | Closed | None:
        """The next for the machine; None while there is nothing."""
        if self._messages:
            return Received(self._messages.popleft())
        end, self._end = self._end, None
        return end


class ClientSession:
    """We pull.

    Args:
        host: The replica that pulls.
        client: A new one for this session.
        send: Writes to the stream; `END` closes our side.
        done: Gets the result.
    """

    def __init__(self, host: Host, client: SyncClient, send: Callable[[bytes], None], done: Callable[[SyncResult], None]) -> None:
        self._host = host
        self._client = client
        self._send = send
        self._done = done
        self._inbox = _Inbox()
        self._is_over = False
        self._alarm: float | None = None

    def start(self) -> None:
        """Begin."""
        self._perform(self._client.start(self._host.local_now()))

    def receive(self, data: bytes | None) -> None:
        """Take what arrived; `END` or None: the stream is closed, or broke."""
        self._inbox.put(data)
        self._read()

    def lose_connection(self) -> None:
        """The stream is gone with its connection."""
        self._inbox.put(None, is_connection_lost=True)
        self._read()

    def _read(self) -> None:
        while not self._is_over and self._client.wants_input and (event := self._inbox.take()) is not None:
            self._give(event)
        self._set_alarm()

    def _give(self, event: ClientEvent) -> None:
        self._perform(self._client.handle(event, self._host.local_now()))

    def _perform(self, actions: Sequence[ClientAction]) -> None:
        todo = deque(actions)
        while todo:
            action = todo.popleft()
            match action:
                case Send(data):
                    self._send(data)
                case Ask(plan):
                    answer = self._host.read(plan)
                    todo.extend(self._client.handle(Answered(answer), self._host.local_now()))
                case TakeEntries(entries):
                    self._host.insert_many(entries, self._on_inserted)
                case Finish():
                    self._send(END)
                case Done(result):
                    self._is_over = True
                    self._done(result)
                case _:
                    assert_never(action)
        self._set_alarm()

    def _on_inserted(self, verdicts: list[Verdict]) -> None:
        if not self._is_over:
            self._give(Taken(verdicts))
            self._read()

    def _set_alarm(self) -> None:
        deadline = None if self._is_over else self._client.deadline
        if deadline is not None and self._alarm is None:
            self._alarm = deadline
            self._host.wake_at(deadline, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        deadline = None if self._is_over else self._client.deadline
        if deadline is not None and self._host.local_now() >= deadline:
            self._give(TimedOut())
        self._set_alarm()


class Server(Protocol):
    """Whoever answers on a sync stream."""

    def receive(self, data: bytes | None) -> None:
        """Take what arrived; empty or None: the client is done, or the stream broke."""


class ServerSession:
    """We are pulled from.

    Args:
        host: Us; the session sees its log as it is now.
        bucket: The peer's allowance.
        send: Writes to the stream; `END` closes our side, None breaks it.
        done: Called at the end, with whether the peer broke the protocol.
    """

    def __init__(self, host: Host, bucket: TokenBucket, send: Callable[[bytes | None], None], done: Callable[[bool], None]) -> None:
        self._host = host
        self._state = host.state.snapshot()
        self._server = SyncServer(host.local_now(), bucket=bucket)
        self._send = send
        self._done = done
        self._inbox = _Inbox()
        self._is_over = False
        self._host.wake_at(self._server.deadline, self._on_alarm)

    def receive(self, data: bytes | None) -> None:
        """Take what arrived; `END` or None: the stream is closed, or broke."""
        self._inbox.put(data)
        self._read()

    def _read(self) -> None:
        while not self._is_over and self._server.wants_input and (event := self._inbox.take()) is not None:
            self._give(event)

    def _give(self, event: ServerEvent) -> None:
        todo: deque[ServerAction] = deque(self._server.handle(event, self._host.local_now()))
        while todo:
            action = todo.popleft()
            match action:
                case Send(data):
                    self._send(data)
                case Ask(plan):
                    answer: Any = run_plan(plan, self._state.answer)
                    todo.extend(self._server.handle(Answered(answer), self._host.local_now()))
                case Pause(until):
                    self._host.wake_at(until, self._resume)
                case Finish():
                    self._end(END, is_violation=False)
                case Reset(_, is_violation):
                    self._end(None, is_violation=is_violation)
                case _:
                    assert_never(action)

    def _end(self, data: bytes | None, *, is_violation: bool) -> None:
        self._is_over = True
        self._send(data)
        self._done(is_violation)

    def _resume(self) -> None:
        if not self._is_over:
            self._give(Resumed())
            self._read()

    def _on_alarm(self) -> None:
        if self._is_over:
            return
        if self._host.local_now() >= self._server.deadline:
            self._resume()
        if not self._is_over:
            self._host.wake_at(max(self._server.deadline, self._host.local_now() + 0.1), self._on_alarm)
