"""One side of a reconciliation as a `Session` of `sync.events`, with the same drivers as a sync by trees.

The side itself is a generator of `steps`. Between two events it waits for the outcome of one step. If it gives entries while it takes, the
steps of this gift run beside it. Each of the two has at most one action outstanding, told apart by its token. So at most one message of
each waits to be written, however slowly the other side reads.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, Generic, TypeVar, assert_never

from ..codec.framing import FrameDecoder
from ..errors import DecodeError, LocalProtocolError
from ..sync import events
from . import messages
from .steps import Give, Receive, Step, Steps

T = TypeVar("T")

_TALK: Final = 0
_GIFT: Final = 1
_LONG_BYTES: Final = 4 * 1024


class Reconciliation(Generic[T]):
    """One session of either side.

    Args:
        first_answer_s: Seconds for the other side's first message, if less than usual.

    Attributes:
        outcome: The return value of the steps; None before their end, and if our store failed.
        failure: Why our store failed; empty if it did not.
        bytes_sent: Bytes written, framing included.
    """

    def __init__(self, steps: Generator[Step, Any, T], *, first_answer_s: float | None = None) -> None:
        self.outcome: T | None = None
        self.failure = ""
        self.bytes_sent = 0
        self.bytes_received = 0
        self.is_done = False
        self._steps = steps
        # The steps of the gift; None before one is given and after it.
        self._gift: Steps | None = None
        # The limit for the first Receive only.
        self._first_answer_s = first_answer_s or float("inf")
        self._frames = FrameDecoder()
        # The stream has ended.
        self._is_closed = False
        # The step that the talk waits for: a Receive without a frame, or an action without its event.
        self._at: Step | None = None
        # When the wait of that Receive ends.
        self._deadline = 0.0
        self._now = 0.0

    @property
    def wants_input(self) -> bool:
        """Return whether the session waits for a frame."""
        return isinstance(self._at, Receive) and not self.is_done

    @property
    def deadline(self) -> float | None:
        """Return when the wait for that frame ends."""
        return self._deadline if self.wants_input else None

    def takes_long(self, event: events.SessionEvent) -> bool:
        """Return whether many symbols have to be decoded or written: 11,000 differences take 0.3 s."""
        if not isinstance(event, events.Received):
            return False
        if self._frames.buffered_bytes:
            return self._frames.is_completed(len(event.data), _LONG_BYTES)
        kind = next((event.data[at + 1 : at + 2] for at, byte in enumerate(event.data[:5]) if byte < 0x80), b"")
        return kind in messages.SYMBOL_KINDS and (len(event.data) > _LONG_BYTES or kind == messages.MORE)

    def start(self, now: float) -> list[events.SessionAction]:
        """Begin the session."""
        self._now = now
        return self._advance(None)

    def handle(self, event: events.SessionEvent, now: float) -> list[events.SessionAction]:
        """Handle an event and return the actions that follow.

        Raises:
            LocalProtocolError: The driver answered a question that was not asked.
        """
        self._now = now
        if self.is_done:
            return []
        match event:
            case events.Received(data):
                self.bytes_received += len(data)
                self._frames.feed(data)
                return self._receive()
            case events.Closed():
                self._is_closed = True
                return self._receive()
            case events.Resumed():
                return self._advance(None) if self.wants_input and now >= self._deadline else []
            case events.Answered(answer, token):
                return self._go_on(token, answer)
            case events.Sent(token):
                return self._go_on(token, None)
            case events.EntriesStored(verdicts):
                return self._go_on(_TALK, verdicts)
            case events.Failed(reason):
                self.failure = reason
                return self.abort()
            case _:
                assert_never(event)

    def abort(self) -> list[events.SessionAction]:
        """End the session, with its outcome so far. The rest of a gift is dropped, as it is of no more use."""
        self.is_done = True
        self._gift = self._at = None
        return [events.Finish(), events.Done(self.outcome)]

    def _receive(self) -> list[events.SessionAction]:
        if not self.wants_input:
            return []
        frame = self._next_frame()
        return [] if frame is None and not self._is_closed else self._advance(frame)

    def _next_frame(self) -> bytes | DecodeError | None:
        try:
            return self._frames.next()
        except DecodeError as error:
            return error

    def _go_on(self, token: int, answer: Any) -> list[events.SessionAction]:
        if token == _GIFT:
            return self._advance_gift(answer)
        if self._at is None or isinstance(self._at, Receive):
            raise LocalProtocolError("an answer to nothing that was asked")
        return self._advance(answer)

    def _advance(self, answer: Any) -> list[events.SessionAction]:
        actions: list[events.SessionAction] = []
        self._at = None
        while True:
            try:
                step = self._steps.send(answer)
            except StopIteration as stop:
                self.outcome = stop.value
                return actions + self.abort()
            match step:
                case Receive(patience_s):
                    answer = self._next_frame()
                    if answer is None and not self._is_closed:
                        self._at = step
                        self._deadline = self._now + min(patience_s, self._first_answer_s)
                        self._first_answer_s = float("inf")
                        return actions
                case Give(steps):
                    self._gift = steps
                    actions += self._advance_gift(None)
                    answer = None
                case _:
                    self._at = step
                    return [*actions, self._action(step, _TALK)]

    def _advance_gift(self, answer: Any) -> list[events.SessionAction]:
        if self._gift is None:
            return []
        try:
            return [self._action(self._gift.send(answer), _GIFT)]
        except StopIteration:
            self._gift = None
            return []

    def _action(self, step: Step, token: int) -> events.SessionAction:
        match step:
            case events.Send(data):
                self.bytes_sent += len(data)
                return events.Send(data, token)
            case events.Ask():
                return step._replace(token=token)
            case events.StoreEntries():
                return step
            case Receive() | Give():
                raise AssertionError(step)
            case _:
                assert_never(step)
