"""One push stream: framed events both ways, with a bounded queue of outgoing ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import trio

from ...codec.framing import FRAME_BYTES_MAX, FrameDecoder
from ...errors import ClosedError, StreamReset
from ...tasks.nursery import open_service_nursery
from ..transport.framed import read_frames
from ..transport.muxed import Stream

QUEUE_BYTES_MAX = 4 * 2**20
"""Bytes that may wait to be written. Source: docs/spec/limits.md, "slow reader"."""
STALLED_S = 15.0
"""If nothing of a queue that is more than half full is written for so long, its reader counts as gone."""
_WRITE_BYTES = 64 * 1024
_MESSAGES_A_TURN = 16


class PushStream:
    """Writes frames in order, and hands on the messages that arrive.

    Args:
        on_message: Takes one message without its prefix; nothing more is read until it returns.
        take_now: Takes a message in the step in which it arrives, unless that has to wait; then it returns False.
        on_emptied: Called when all queued frames are written.
    """

    def __init__(
        self,
        stream: Stream,
        on_message: Callable[[bytes], Awaitable[None]],
        take_now: Callable[[bytes], bool] = lambda message: False,
        bytes_max: int = FRAME_BYTES_MAX,
        on_emptied: Callable[[], None] = lambda: None,
    ) -> None:
        self.stream = stream
        self._on_message = on_message
        self._take_now = take_now
        self._bytes_max = bytes_max
        self._on_emptied = on_emptied
        self._queue: deque[bytes] = deque()
        self.queued_bytes = 0
        self._more = trio.lowlevel.ParkingLot()
        self._emptied = trio.Event()
        self._emptied.set()
        self._moved_at = 0.0

    def put(self, frame: bytes) -> bool:
        """Send or queue a frame; False if there is no room for it. An empty queue has room for any frame."""
        if not self.queued_bytes and self.stream.send_at_once(frame):
            return True
        if self.queued_bytes + len(frame) > QUEUE_BYTES_MAX and self._queue:
            return False
        if not self.queued_bytes:
            self._moved_at = trio.current_time()
            self._emptied = trio.Event()
        self._queue.append(frame)
        self.queued_bytes += len(frame)
        self._more.unpark_all()
        return True

    def is_stalled(self) -> bool:
        """Whether the queue is more than half full, and nothing of it was written for 15 s."""
        return self.queued_bytes > QUEUE_BYTES_MAX // 2 and trio.current_time() - self._moved_at > STALLED_S

    async def drain(self) -> None:
        """Wait until the queue is written, or the stream has ended."""
        await self._emptied.wait()

    async def run(self) -> None:
        """Read and write until the peer closes its side or the stream breaks.

        Raises:
            StreamReset: The stream broke.
            DecodeError: What arrived is no sequence of frames.
        """
        try:
            async with open_service_nursery() as nursery:
                nursery.start_soon(self._write)
                await read_frames(
                    self.stream, FrameDecoder(self._bytes_max), self._take_now, self._on_message, at_once_max=_MESSAGES_A_TURN
                )
        finally:
            # The peer reads the end and closes its side. What is still queued is not wanted any more.
            self.stream.close_sending()
            self._queue.clear()
            self.queued_bytes = 0
            self._emptied.set()

    async def _write(self) -> None:
        while True:
            while not self._queue:
                await self._more.park()
            # The frames that wait go out together: under load that makes a message cheap.
            parts = [self._queue.popleft()]
            size = len(parts[0])
            while self._queue and size + len(self._queue[0]) <= _WRITE_BYTES:
                parts.append(self._queue.popleft())
                size += len(parts[-1])
            try:
                await self.stream.send_all(b"".join(parts))
            except (StreamReset, ClosedError):
                return  # The reader notices too, and raises.
            self.queued_bytes -= size
            self._moved_at = trio.current_time()
            if not self.queued_bytes:
                self._emptied.set()
                self._on_emptied()
