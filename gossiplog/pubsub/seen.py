"""The seen cache: the messages of the last two minutes, with the verdict and sources of those whose further copies matter."""

from __future__ import annotations

from collections import deque

from .events import Outcome
from .rpc import Message
from .types import MessageId, PeerId, Topic

_GENERATIONS = 8


class Held:
    """A message that is being validated, was ignored, or whose further copies affect a score.

    Attributes:
        message: None once the verdict is in.
        source: The peer that brought the first copy; None for a message of our own.
        sources: Peers that brought further copies, in order, each once; bounded by `sources_max`.
        outcome: None while it is being validated.
        validated_at: When the verdict came, in seconds of the driver's clock.
        hops: As in the RPC that brought the first copy.
    """

    __slots__ = ("hops", "message", "outcome", "source", "sources", "topic", "validated_at")

    def __init__(self, message: Message, source: PeerId | None) -> None:
        self.message: Message | None = message
        self.topic: Topic = message.topic
        self.source = source
        self.sources: list[PeerId] = []
        self.outcome: Outcome | None = None
        self.validated_at = 0.0
        self.hops = 0

    def settle(self, outcome: Outcome, now: float) -> None:
        """Note the verdict and drop the message itself."""
        self.message, self.outcome, self.validated_at = None, outcome, now


class Seen:
    """Remember ids for `ttl_s` after they were first seen, at most `size_max` of them.

    Ids are kept in eight generations and forgotten a generation at a time, so an id costs a dict entry and a list entry and stores no
    time. It lives for `ttl_s` to 9/8 × `ttl_s`, or until at least 7/8 × `size_max` newer ids came.

    Attributes:
        entries: Maps each id to what is held for it, mostly None. Read it directly; write with `add`.
        due: The time, in seconds, from which `expire` has something to do.
    """

    __slots__ = ("_closed", "_current", "_generation_max", "_span_s", "_ttl_s", "due", "entries", "size_max")

    def __init__(self, ttl_s: float, size_max: int) -> None:
        self.entries: dict[MessageId, Held | None] = {}
        self.size_max = size_max
        self.due = 0.0
        self._ttl_s = ttl_s
        self._span_s = ttl_s / _GENERATIONS
        self._generation_max = max(1, size_max // _GENERATIONS)
        self._current: list[MessageId] = []
        self._closed: deque[tuple[float, list[MessageId]]] = deque()

    def add(self, message_id: MessageId, held: Held | None, now: float) -> None:
        """Remember an id; for a remembered one, only replace what is held for it. O(1) amortised."""
        if now >= self.due:
            self.expire(now)
        is_known = message_id in self.entries
        self.entries[message_id] = held
        if is_known:
            return
        self._current.append(message_id)
        if len(self._current) >= self._generation_max:
            self.expire(now, close=True)

    def expire(self, now: float, *, close: bool = False) -> None:
        """Forget generations that are too old, or beyond `size_max`.

        Args:
            close: Begin a new generation even if the current one's span is not over.
        """
        closed, entries = self._closed, self.entries
        if close or now >= self.due:
            if self._current:
                closed.append((min(now, self.due), self._current))  # nothing was added after `due`
                self._current = []
            self.due = now + self._span_s
        while closed and (closed[0][0] + self._ttl_s <= now or len(entries) > self.size_max - self._generation_max):
            for message_id in closed.popleft()[1]:
                del entries[message_id]
