"""The serving side of one sync session, as a machine between bytes, one snapshot of a log and time.

The module `events` says how to drive it. Each action is carried out before the next one and before the driver reads on, so a slow reader
holds up only its own session, at a Send, and nothing grows meanwhile. Requests are answered in order, many in one plan. Finish or Reset
ends the session.
"""

from collections import deque
from typing import assert_never

from ..codec.framing import FRAME_BYTES_MAX, FrameDecoder, encode_frame
from ..errors import DecodeError, LocalProtocolError
from ..limits import TokenBucket
from . import events
from .limits import ServerLimits
from .rpc import AbortResponse, Request
from .serve_plan import Reply, answer
from .wire import decode_request, encode_response

_BUFFER_BYTES_MAX = FRAME_BYTES_MAX + 2**20


class SyncServer:
    """One session; see the module's docstring for how it is driven.

    Args:
        bucket: The peer's allowance of requests, which outlives its sessions; None: the session gets one of its own.
        in_parts: In this session's protocol an answer may have only a part of a node's children.

    Attributes:
        values: How many values were sent.
        is_aborted: We ended the session with an abort; the client resumes in a new session.
        is_short: An answer had only the first of the values asked for; the client has to come again for the others.
        fault: Why we ended the session without an answer, unless the client was at fault.
    """

    def __init__(
        self, now: float, *, bucket: TokenBucket | None = None, limits: ServerLimits | None = None, in_parts: bool = False
    ) -> None:
        self._limits = limits or ServerLimits()
        self._in_parts = in_parts
        self._bucket = bucket or TokenBucket(self._limits.requests_per_s, self._limits.requests_burst, now)
        self._frames = FrameDecoder()
        # Decoded requests, in order: at most as many as one plan takes. Those of a running plan stay until it is answered.
        self._queue: deque[Request] = deque()
        self._started = now
        self._active_at = now
        # Whether a plan is running; and the requests that the bucket granted for it, of which the unanswered ones are given back.
        self._is_asking = False
        self._granted = 0
        self._is_pausing = False
        self._is_closed = False
        self.is_done = False
        # The error in the request after those of the queue, which are answered first.
        self._fault: str | None = None
        self.requests = 0
        self.values = 0
        self.bytes_received = 0
        self.bytes_sent = 0
        self.is_aborted = False
        self.is_short = False
        self.fault = ""

    @property
    def wants_input(self) -> bool:
        """Return whether the driver should read now."""
        return not (self.is_done or self._is_asking or self._is_pausing or self._is_closed)

    @property
    def deadline(self) -> float:
        """Return when `Resumed` is due if nothing happens before: the end of the session's share of time, or of the wait for a request."""
        return min(self._started + self._limits.share_s, self._active_at + self._limits.idle_s)

    def start(self, now: float) -> list[events.SessionAction]:
        """Wait for the first request."""
        return []

    def takes_long(self, event: events.SessionEvent) -> bool:
        """Return False: `handle` decodes few requests at a time, and reading is left to plans."""
        return False

    def handle(self, event: events.SessionEvent, now: float) -> list[events.SessionAction]:
        """Handle an event and return the actions that follow.

        Raises:
            LocalProtocolError: The driver answered a question that was not asked, or fed more bytes than were wanted.
        """
        if self.is_done:
            return []
        actions: list[events.SessionAction] = []
        match event:
            case events.Received():
                self.bytes_received += len(event.data)
                if self._frames.buffered_bytes + len(event.data) > _BUFFER_BYTES_MAX and not self.wants_input:
                    raise LocalProtocolError("more bytes were fed than were wanted")
                self._frames.feed(event.data)
            case events.Closed():
                self._is_closed = True
            case events.Answered():
                actions += self._on_reply(event.answer, now)
            case events.Resumed():
                self._is_pausing = False
            case events.Failed():
                return [self._reset(event.reason, is_violation=False)]
            case events.EntriesStored() | events.Sent():
                pass
            case _:
                assert_never(event)
        if not self.is_done and not self._is_asking:
            actions += self._next(now)
        return actions

    def abort(self) -> list[events.SessionAction]:
        """End the session before the client is done."""
        self.is_done = self.is_aborted = True
        return [self._send(encode_frame(encode_response(AbortResponse(self._limits.cooldown_ms)))), events.Finish()]

    def _on_reply(self, reply: object, now: float) -> list[events.SessionAction]:
        if not self._is_asking or not isinstance(reply, Reply):
            raise LocalProtocolError("an answer to no plan")
        self._is_asking = False
        self._active_at = now
        self._bucket.give_back(self._granted - len(reply.frames))
        for _ in reply.frames:
            self._queue.popleft()
        self.requests += len(reply.frames)
        self.values += reply.values
        self.is_short = reply.is_short
        actions: list[events.SessionAction] = [self._send(b"".join(reply.frames))] if reply.frames else []
        if reply.fault is not None:
            actions.append(self._reset(reply.fault, is_violation=reply.is_violation))
        return actions

    def _next(self, now: float) -> list[events.SessionAction]:
        """Choose the next action: the end of the session, a pause, a run of requests, or none until more arrives."""
        self._decode()
        if now >= self._started + self._limits.share_s or (self.is_short and self._queue):
            # After a short answer, the client would ask for descendants of entries that it did not get.
            return self.abort()
        if not self._queue:
            if self._fault is not None:
                return [self._reset(self._fault, is_violation=True)]
            if self._is_closed or now >= self._active_at + self._limits.idle_s:
                self.is_done = True
                return [events.Finish()]
            return []
        if self._is_pausing:
            return []
        self._granted = granted = self._bucket.take(min(len(self._queue), self._limits.run_requests), now)
        if not granted:
            self._is_pausing = True
            return [events.Pause(self._bucket.ready_at(now))]
        self._is_asking = True
        return [
            events.Ask(answer([self._queue[index] for index in range(granted)], self._limits, in_parts=self._in_parts), of_snapshot=True)
        ]

    def _decode(self) -> None:
        """Decode at most as many requests as one plan takes; the rest stays bytes."""
        while self._fault is None and len(self._queue) < self._limits.run_requests:
            try:
                message = self._frames.next()
                if message is None:
                    return
                self._queue.append(decode_request(message))
            except DecodeError as error:
                # Earlier requests are answered first.
                self._fault = str(error)

    def _send(self, data: bytes) -> events.Send:
        self.bytes_sent += len(data)
        return events.Send(data)

    def _reset(self, reason: str, *, is_violation: bool) -> events.Reset:
        self.is_done = True
        self.fault = "" if is_violation else reason
        return events.Reset(reason, is_violation)
