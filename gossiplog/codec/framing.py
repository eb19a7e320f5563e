"""Frames: messages in a stream of bytes, each preceded by its length as an unsigned varint.

Source: docs/spec/sync.md, "Messages"; docs/spec/pubsub.md, "Protobuf": each prefixed with an unsigned-varint length, at most 4 MiB.
"""

from __future__ import annotations

from ..errors import DecodeError
from .varint import encode_varint

FRAME_BYTES_MAX = 4 * 1024 * 1024
VALUE_BYTES_MAX = FRAME_BYTES_MAX - 10
"""The largest VALUE that can be synced: alone in an answer it fills a frame of the reference's. The reference can make a longer one but not
sync it: between two of its processes 4,194,262 bytes were synced, and 4,194,297 were not."""
_PREFIX_BYTES_MAX = 10
"""The bytes of a 64-bit length; the limit of a frame's size nearly always ends it earlier."""
_COMPACT_BYTES = 65_536


def encode_frame(message: bytes) -> bytes:
    """Return a message with its length in front. The caller makes sure that the other side accepts messages of this length."""
    return encode_varint(len(message)) + message


class FrameTooLong(DecodeError):
    """A frame is longer than its reader accepts; the stream is lost."""


class FrameDecoder:
    """Cuts one direction of one stream into frames, however it was fragmented.

    It buffers only bytes, as nothing is decoded ahead of `next`. If the caller feeds only after `next` has returned None, it buffers at
    most one frame and the bytes fed last.

    Attributes:
        frame_bytes_max: The longest frame that is accepted, without its prefix.
    """

    __slots__ = ("_buffer", "_end", "_start", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self._start = 0
        self._end: int | None = None

    @property
    def buffered_bytes(self) -> int:
        """The number of bytes not yet returned as part of a frame."""
        return len(self._buffer) - self._start

    def is_completed(self, more: int, longer_than: int) -> bool:
        """Whether `more` further bytes complete a frame of more than `longer_than` bytes; if no frame has begun, whether they might."""
        if self._end is None:
            return self.buffered_bytes + more > longer_than
        return self._end - self._start > longer_than and self._end <= len(self._buffer) + more

    def feed(self, data: bytes) -> None:
        """Add bytes that arrived. O(len(data)) amortised."""
        self._buffer += data

    def next(self) -> bytes | None:
        """Return the next whole frame without its prefix, or None until more is fed. O(length of the frame).

        A frame that is too long is refused by its prefix, before any of it is buffered.

        Raises:
            DecodeError: The frame is too long, or its prefix is no minimal varint. The stream is lost: every later call raises too.
        """
        if self._end is None:
            if not self._buffer:
                return None
            self._read_prefix()
        if self._end is None or len(self._buffer) < self._end:
            return None
        message = bytes(memoryview(self._buffer)[self._start : self._end])
        self._start, self._end = self._end, None
        if self._start == len(self._buffer):
            self._buffer.clear()
            self._start = 0
        elif self._start >= _COMPACT_BYTES and self._start * 2 > len(self._buffer):
            # The front is dropped only when it is the larger part, which keeps the total cost at O(1) per byte.
            del self._buffer[: self._start]
            self._start = 0
        return message

    def take(self, data: bytes) -> list[bytes]:
        """Feed `data` and return all complete frames in order. Raises like `next`; the frames before the bad one are then lost."""
        self.feed(data)
        frames = []
        while (message := self.next()) is not None:
            frames.append(message)
        return frames

    def take_rest(self) -> bytes:
        """Remove and return the bytes that are not part of a returned frame, for a stream that continues without frames."""
        rest = bytes(memoryview(self._buffer)[self._start :])
        self._buffer.clear()
        self._start = 0
        return rest

    def finish(self) -> None:
        """Check that the stream may end here.

        Raises:
            DecodeError: It ends within a frame, or a complete frame was not yet taken.
        """
        if self._end is not None or self.buffered_bytes:
            raise DecodeError(f"the stream ended within a frame, with {self.buffered_bytes} bytes of it here")

    def _read_prefix(self) -> None:
        length = 0
        for index, byte in enumerate(self._buffer[self._start : self._start + _PREFIX_BYTES_MAX]):
            length |= (byte & 0x7F) << (7 * index)
            if length > self.frame_bytes_max or index == _PREFIX_BYTES_MAX - 1:
                raise FrameTooLong(f"a frame of {length} bytes or more, at most {self.frame_bytes_max} are allowed")
            if byte < 0x80:
                if byte == 0 and index > 0:
                    raise DecodeError("a frame's length is written longer than it needs to be")
                self._start += index + 1
                self._end = self._start + length
                return
