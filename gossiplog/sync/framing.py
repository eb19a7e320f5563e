"""Frames of a push or sync stream: an unsigned-varint length, then that many bytes, at most 4 MiB."""

from ..codec.varint import encode_varint
from ..errors import DecodeError
from .rpc import FRAME_BYTES_MAX

__all__ = ["FrameDecoder", "frame"]

_PREFIX_BYTES_MAX = 4
"""What the length of the longest frame needs."""
_COMPACT_BYTES = 65_536


def frame(message: bytes) -> bytes:
    """Prefix a message with its length. The caller has made sure that it is at most `FRAME_BYTES_MAX` bytes."""
    return encode_varint(len(message)) + message


class FrameDecoder:
    """Cuts a byte stream into frames, however it was fragmented.

    Nothing is decoded ahead of `next`, so what waits here is bytes alone: at most one frame and what was fed last, as long as
    the caller feeds only when `next` has returned None.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._start = 0
        self._end: int | None = None

    @property
    def buffered(self) -> int:
        """Bytes that are here and not yet part of a frame that was returned."""
        return len(self._buffer) - self._start

    def feed(self, data: bytes) -> None:
        """Take what arrived; O(len(data)) amortised."""
        self._buffer += data

    def next(self) -> bytes | None:
        """Return the next whole frame without its prefix, or None until more is fed; O(length of the frame).

        Raises:
            DecodeError: The prefix is longer than needed or names more than `FRAME_BYTES_MAX` bytes. The stream is unusable then.
        """
        if self._end is None:
            self._read_prefix()
        if self._end is None or len(self._buffer) < self._end:
            return None
        message = bytes(memoryview(self._buffer)[self._start : self._end])
        self._start, self._end = self._end, None
        if self._start == len(self._buffer):
            self._buffer.clear()
            self._start = 0
        elif self._start >= _COMPACT_BYTES and self._start * 2 > len(self._buffer):
            # Dropping the front only when it is the larger part keeps the whole at O(1) a byte.
            del self._buffer[: self._start]
            self._start = 0
        return message

    def _read_prefix(self) -> None:
        length = 0
        prefix = self._buffer[self._start : self._start + _PREFIX_BYTES_MAX]
        for index, byte in enumerate(prefix):
            length |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                if byte == 0 and index > 0:
                    raise DecodeError(f"frame length {length} in {index + 1} bytes, longer than needed")
                if length > FRAME_BYTES_MAX:
                    raise DecodeError(f"frame of {length} bytes, at most {FRAME_BYTES_MAX} allowed")
                self._start += index + 1
                self._end = self._start + length
                return
        if len(prefix) == _PREFIX_BYTES_MAX:
            raise DecodeError(f"frame length in more than {_PREFIX_BYTES_MAX} bytes")
