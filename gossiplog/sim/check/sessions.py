"""Drives a sync session, on either side, for a simulated replica: the machines that nodes run, with streams and deadlines of the world."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, assert_never

from ...broadcast.events import Event
from ...entry.message import Entry
from ...entry.validation import Verdict
from ...limits import TokenBucket
from ...plan import Plan, Request, run_plan
from ...pubsub.types import PeerId
from ...store.memory.state import MemoryState
from ...sync import events
from .disk import Disk
from .observer import ReplicaObserver, Stream, Watch
from .plan import ReplicaSpec
from .world import Named, SimWire, SimWorld

P = ParamSpec("P")
T = TypeVar("T")

Receive: TypeAlias = Callable[[bytes | None], None]
"""Takes a message on a sync stream. Empty: the peer closed its side; None: the stream broke."""
END = b""
"""Sent on a stream to close the sender's side."""
_LATE_S = 0.1
"""A session that has nothing to do at its deadline is asked again after this time."""


class Owner(Named, Protocol):
    """The part of a replica that its log, its pulls and its sessions use."""

    world: SimWorld
    spec: ReplicaSpec
    disk: Disk
    watch: Watch[Any]
    wires: dict[PeerId, SimWire]

    @property
    def state(self) -> MemoryState:
        """Return the current log."""

    def local_now(self) -> float:
        """Return the time on the replica's clock."""

    def wake_at(self, local_s: float, call: Callable[[], None]) -> None:
        """Call at a time on the replica's clock, unless the log has been closed by then."""

    def later(self, wait_s: float, call: Callable[[], None]) -> None:
        """Call a function after some seconds, unless the log has been closed by then."""

    def report(self, event: Callable[Concatenate[ReplicaObserver, P], None], /, *args: P.args, **options: P.kwargs) -> None:
        """Report an event to all observers."""

    def tell(self, event: Event) -> None:
        """Hand an event to the replica's machine."""

    def read(self, plan: Plan[T]) -> T:
        """Run a plan that reads the current log."""

    def insert_many(self, peer: PeerId, entries: Sequence[tuple[bytes, bytes]], then: Callable[[list[Verdict]], None]) -> None:
        """Validate and insert entries from a peer; `then` gets the verdicts."""

    def on_commit(self, entries: Sequence[Entry]) -> None:
        """Take note of the new entries of a transaction."""

    def new_stream(self, purpose: str) -> Stream:
        """Return a new name for a stream of its own."""

    def make_server(self, wire: SimWire, stream: Stream, bucket: TokenBucket) -> Receive:
        """Serve a peer that pulls from us by its tree."""


class SimulatedSession:
    """Drives one session.

    Messages wait until the machine asks for them. The end of the stream comes last, once.

    Args:
        snapshot: Answers requests about the log as it is now; the replica's own log unless given.
        send: Writes to the stream; `END` closes our side, None breaks it.
    """

    def __init__(
        self,
        host: Owner,
        peer: PeerId,
        session: events.Session,
        send: Callable[[bytes | None], None],
        done: Callable[[], None],
        snapshot: Callable[[Request[Any]], Any] | None = None,
    ) -> None:
        self._host = host
        self._peer = peer
        self._session = session
        self._send = send
        self._done = done
        self._snapshot = snapshot or host.state.snapshot().answer
        self._messages: deque[bytes] = deque()
        self._end: events.Closed | None = None
        self._is_over = False
        self._alarm: float | None = None
        # Whether the last alarm changed nothing for the session.
        self._is_late = False

    def start(self) -> None:
        """Begin."""
        self._perform(self._session.start(self._host.local_now()))
        self._read()

    def receive(self, data: bytes | None) -> None:
        """Take a message. `END`: the peer closed its side; None: the stream broke."""
        if data:
            self._messages.append(data)
        else:
            self._end = events.Closed("the stream ended")
        self._read()

    def cut_short(self, abort: Callable[[], Sequence[events.SessionAction]]) -> None:
        """Have the session end itself, unless it is over."""
        if not self._is_over:
            self._perform(abort())

    def lose_connection(self) -> None:
        """The stream has ended with its connection."""
        self._end = events.Closed("the stream ended", is_connection_lost=True)
        self._read()

    def _read(self) -> None:
        while not self._is_over and self._session.wants_input:
            if self._messages:
                self._give(events.Received(self._messages.popleft()))
            elif self._end is not None:
                end, self._end = self._end, None
                self._give(end)
            else:
                break
        self._set_alarm()

    def _give(self, event: events.SessionEvent) -> None:
        self._perform(self._session.handle(event, self._host.local_now()))

    def _perform(self, actions: Sequence[events.SessionAction]) -> None:
        todo = deque(actions)
        while todo:
            event = self._carry_out(todo.popleft())
            if event is not None:
                todo.extend(self._session.handle(event, self._host.local_now()))
        if self._session.is_done and not self._is_over:
            self._is_over = True
            self._done()

    def _carry_out(self, action: events.SessionAction) -> events.SessionEvent | None:
        match action:
            case events.Send(data, token):
                self._send(data)
                return None if token is None else events.Sent(token)
            case events.Ask(plan, of_snapshot, token):
                answer: Any = run_plan(plan, self._snapshot) if of_snapshot else self._host.read(plan)
                return events.Answered(answer, token)
            case events.StoreEntries(entries):
                # The verdicts may come at once.
                self._host.insert_many(self._peer, entries, self._on_inserted)
            case events.Pause(until):
                self._host.wake_at(until, self._resume)
            case events.Finish():
                self._send(END)
            case events.Reset():
                self._send(None)
            case events.Done():
                pass
            case _:
                assert_never(action)
        return None

    def _on_inserted(self, verdicts: list[Verdict]) -> None:
        if not self._is_over:
            self._give(events.EntriesStored(verdicts))
            self._read()

    def _resume(self) -> None:
        if not self._is_over:
            self._give(events.Resumed())
            self._read()

    def _set_alarm(self) -> None:
        deadline = None if self._is_over else self._session.deadline
        if deadline is not None and self._alarm is None:
            self._alarm = max(deadline, self._host.local_now() + (_LATE_S if self._is_late else 0.0))
            self._host.wake_at(self._alarm, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        deadline = None if self._is_over else self._session.deadline
        self._is_late = deadline is not None and self._host.local_now() >= deadline
        if self._is_late:
            self._resume()
        self._set_alarm()
