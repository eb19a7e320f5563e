"""A reconciliation on a stream, of either side: what `reconcile/` asks for, done with a log and a stream."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, assert_never

import trio

from ...codec.framing import FrameDecoder
from ...entry.validation import Verdict
from ...errors import ClosedError, DecodeError, StoreError, StreamReset
from ...reconcile import messages
from ...reconcile.steps import Give, Insert, Receive, Run, RunOnSnapshot, Send, Step, Steps
from ...replica.log import Replica
from ...replica.sketching import SketchView
from ...store.base import Reader
from ...sync.result import SyncResult
from ...tasks.nursery import open_service_nursery
from ..transport.stream import Stream
from .pull_session import Insert as InsertFunction
from .pull_session import close_in_peace

__all__ = ["CATCH_UP_S", "ReconcileSession", "refuse", "sketch_in_time"]

T = TypeVar("T")

CATCH_UP_S = 2.0
"""How long a session waits for the sketch; what was added by then is not added again."""
_LONG_BYTES = 4 * 1024
SEND_S = 60.0
"""How long a message may take to be written."""


async def sketch_in_time(log: Replica) -> SketchView | None:
    """Return the log's sketch; None if that takes too long now, or an entry is damaged, which the merkle sync may not notice."""
    with trio.move_on_after(CATCH_UP_S), contextlib.suppress(StoreError):
        return await log.sketch()
    return None


async def refuse(stream: Stream, reason: str) -> None:
    """Tell the other side to use the merkle sync."""
    with contextlib.suppress(StreamReset, ClosedError):
        await stream.send_all(messages.encode(messages.Refuse(reason)))
        stream.close_sending()


@dataclass(frozen=True, slots=True)
class _Over(Generic[T]):
    """The session has ended."""

    result: T


def _advance(session: Generator[Step, Any, T], answer: Any) -> Step | _Over[T]:
    try:
        return session.send(answer)
    except StopIteration as stop:
        return _Over(stop.value)


def _takes_long(answer: Any) -> bool:
    """Whether a message has symbols to decode or asks for many, for which others should not have to wait: 11,000 differences take 0.3 s."""
    return isinstance(answer, bytes) and answer[:1] in messages.SYMBOL_KINDS and (len(answer) > _LONG_BYTES or answer[:1] == messages.MORE)


class ReconcileSession:
    """Drives one session.

    Args:
        log: Ours.
        stream: Negotiated, or proposed lazily.
        insert: Validates and inserts what came.
        snapshot: A state of the log that has all that its sketch has; None for the log itself.
        first_answer_s: What the other side has for its first answer, if that is less than usual.

    Attributes:
        result: What it has come to so far, for whoever cancels it; bytes are those of the stream, framing included.
    """

    def __init__(
        self, log: Replica, stream: Stream, insert: InsertFunction, *, snapshot: Reader | None = None, first_answer_s: float | None = None
    ) -> None:
        self.result = SyncResult()
        self._log = log
        self._stream = stream
        self._insert = insert
        self._snapshot = snapshot
        self._first_answer_s = first_answer_s or float("inf")
        self._frames = FrameDecoder()
        # The session and what it gives write in turns, a frame at a time.
        self._writing = trio.Lock()
        self._nursery: trio.Nursery

    async def run(self, session: Generator[Step, Any, T]) -> T:
        """Run to the end. A cancelled run still inserts the batch that it is inserting.

        Raises:
            ProtocolNotSupported: The stream was proposed lazily, and the other side does not speak it.
            StoreError: Our store failed.
        """
        answer: Any = None
        async with open_service_nursery() as self._nursery:
            while True:
                if _takes_long(answer):
                    moved = await trio.to_thread.run_sync(_advance, session, answer)
                else:
                    moved = _advance(session, answer)
                if isinstance(moved, _Over):
                    result: T = moved.result
                    break
                # The session has let go of the values by the time they are sent.
                answer = None
                answer = await self._take(moved)
            self._nursery.cancel_scope.cancel()
        return result

    @property
    def is_unheard(self) -> bool:
        """Whether not a byte came: a peer that does not speak the protocol may reset the stream before its refusal is on its way."""
        return not self.result.bytes_received

    async def close(self) -> None:
        """Close the stream in peace, within 2 s."""
        await close_in_peace(self._stream)

    async def _take(self, step: Step) -> Any:
        match step:
            case Send(data):
                await self._send(data)
            case Receive(patience_s):
                return await self._receive(patience_s)
            case Run(plan):
                return await self._log.run(plan)
            case RunOnSnapshot(plan):
                return await (self._log if self._snapshot is None else self._snapshot).run(plan)
            case Insert(entries):
                return await self._insert_entries(entries)
            case Give(steps):
                self._nursery.start_soon(self._give, steps)
            case _:
                assert_never(step)
        return None

    async def _give(self, steps: Steps) -> None:
        answer: Any = None
        with contextlib.suppress(StopIteration):
            while True:
                step, answer = steps.send(answer), None
                answer = await self._take(step)

    async def _send(self, data: bytes) -> None:
        self.result.bytes_sent += len(data)
        with trio.move_on_after(SEND_S):
            async with self._writing:
                # Whoever reads learns of a stream that is broken.
                with contextlib.suppress(StreamReset, ClosedError):
                    await self._stream.send_all(data)
                return
        self._stream.reset()

    async def _receive(self, patience_s: float) -> bytes | DecodeError | None:
        patience_s, self._first_answer_s = min(patience_s, self._first_answer_s), float("inf")
        frame: bytes | DecodeError | None = None
        with trio.move_on_after(patience_s):
            try:
                while (frame := self._frames.next()) is None:
                    data = await self._stream.receive_some()
                    if not data:
                        break
                    self.result.bytes_received += len(data)
                    self._frames.feed(data)
            except (StreamReset, ClosedError):
                return None
            except DecodeError as error:
                return error
        return frame

    async def _insert_entries(self, entries: Sequence[tuple[bytes, bytes]]) -> list[Verdict]:
        # What has begun is finished and counted.
        await trio.lowlevel.checkpoint_if_cancelled()
        with trio.CancelScope(shield=True):
            verdicts = await self._insert(entries)
        self.result.entries += sum(verdict.is_new for verdict in verdicts)
        return verdicts
