"""A reconciliation as a simulated replica drives it, of either side: the steps of `reconcile/`, with streams and deadlines of the world."""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Generic, TypeVar, assert_never

from ...codec.framing import FrameDecoder
from ...errors import DecodeError
from ...plan import run_plan
from ...reconcile.steps import Give, Insert, Receive, Run, RunOnSnapshot, Send, Step, Steps
from .sessions import Host

__all__ = ["ReconcileSession"]

T = TypeVar("T")


class ReconcileSession(Generic[T]):
    """Drives one session.

    Args:
        host: Us; what the session gives is of the log as it is now.
        session: Its steps.
        send: Writes to the stream.
        done: Gets what it came to.
        first_answer_s: What the other side has for its first answer, if that is less than usual.

    Attributes:
        has_heard: Whether anything came.
    """

    def __init__(
        self,
        host: Host,
        session: Generator[Step, Any, T],
        send: Callable[[bytes], None],
        done: Callable[[T], None],
        *,
        first_answer_s: float | None = None,
    ) -> None:
        self.has_heard = False
        self._host = host
        self._session = session
        self._snapshot = host.state.snapshot()
        self._send = send
        self._done = done
        self._first_answer_s = first_answer_s or float("inf")
        self._frames = FrameDecoder()
        self._has_ended = False
        # The number of the wait for a frame that is going on; None while none is.
        self._waiting: int | None = None
        self._waits = 0

    def start(self) -> None:
        """Begin."""
        self._advance(None)

    def receive(self, data: bytes | None) -> None:
        """Take what arrived; empty or None: the stream is closed, or broke."""
        if data:
            self.has_heard = True
            self._frames.feed(data)
        else:
            self._has_ended = True
        if self._waiting is not None:
            frame = self._next_frame()
            if frame is not None or self._has_ended:
                self._waiting = None
                self._advance(frame)

    def lose_connection(self) -> None:
        """The stream is gone with its connection."""
        self.receive(None)

    def _next_frame(self) -> bytes | DecodeError | None:
        try:
            return self._frames.next()
        except DecodeError as error:
            return error

    def _advance(self, answer: Any) -> None:
        while True:
            try:
                step = self._session.send(answer)
            except StopIteration as stop:
                self._done(stop.value)
                return
            match step:
                case Receive(patience_s):
                    answer = self._next_frame()
                    if answer is None and not self._has_ended:
                        self._wait(min(patience_s, self._first_answer_s))
                        return
                    self._first_answer_s = float("inf")
                case Insert(entries):
                    # The verdicts may be there at once.
                    self._host.insert_many(entries, self._advance)
                    return
                case Give(steps):
                    self._give(steps)
                    answer = None
                case _:
                    answer = self._take(step)

    def _take(self, step: Step) -> Any:
        match step:
            case Send(data):
                return self._send(data)
            case Run(plan):
                return self._host.read(plan)
            case RunOnSnapshot(plan):
                return run_plan(plan, self._snapshot.answer)
            case Receive() | Insert() | Give():
                raise AssertionError(step)
            case _:
                assert_never(step)

    def _give(self, steps: Steps) -> None:
        answer: Any = None
        while True:
            try:
                answer = self._take(steps.send(answer))
            except StopIteration:
                return

    def _wait(self, patience_s: float) -> None:
        self._waits += 1
        self._waiting = self._waits
        self._host.wake_at(self._host.local_now() + patience_s, partial(self._on_alarm, self._waits))

    def _on_alarm(self, number: int) -> None:
        if self._waiting == number:
            self._waiting = None
            self._first_answer_s = float("inf")
            self._advance(None)
