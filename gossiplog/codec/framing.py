"""Frames: messages behind an unsigned varint of their length, cut out of a stream of bytes.

Source: spec/sync.md, "Messages"; spec/pubsub.md, "Protobuf": each prefixed with an unsigned-varint length, at most 4 MiB.
"""

from __future__ import annotations

from ..errors import DecodeError
from .varint import encode_varint

__all__ = ["FRAME_BYTES_MAX", "FrameDecoder", "encode_frame"]

FRAME_BYTES_MAX = 4 * 1024 * 1024


def encode_frame(message: bytes) -> bytes:
    """Return a message with its length in front."""
    return encode_varint(len(message)) + message


class FrameDecoder:
    """Cuts one direction of one stream into frames. Memory is at most one frame and what is fed at a time.

    Attributes:
        frame_bytes_max: The longest frame that is taken, without its prefix.
    """

    __slots__ = ("_buffer", "_failure", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer = bytearray()
        self._failure: str | None = None

    @property
    def buffered_bytes(self) -> int:
        """How many bytes of an unfinished frame are held."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes of the stream and return the frames that they complete, in order.

        A frame that is too long is refused on its prefix, before any of it is held.

        Raises:
            DecodeError: A frame is longer than allowed, or its prefix is no minimal varint. The stream is lost: every later call
                raises too, and frames that were complete in the same `data` are lost with it.
        """
        if self._failure is not None:
            raise DecodeError(self._failure)
        buffer = self._buffer
        buffer += data
        frames = []
        position = 0
        while (prefix := self._prefix(position)) is not None:
            size, start = prefix
            if len(buffer) - start < size:
                break
            position = start + size
            frames.append(bytes(buffer[start:position]))
        del buffer[:position]
        return frames

    def finish(self) -> None:
        """Say that the stream has ended.

        Raises:
            DecodeError: It ended within a frame, or was lost before.
        """
        if self._failure is not None:
            raise DecodeError(self._failure)
        if self._buffer:
            raise DecodeError(f"the stream ended within a frame, after {len(self._buffer)} bytes of it")

    def _prefix(self, position: int) -> tuple[int, int] | None:
        """Return a frame's size and where it begins, or None if its prefix is not all here."""
        size = 0
        shift = 0
        for index in range(position, len(self._buffer)):
            byte = self._buffer[index]
            size |= (byte & 0x7F) << shift
            shift += 7
            if size > self.frame_bytes_max or (byte >= 0x80 and shift >= 63):
                self._fail(f"a frame of {size} bytes or more, at most {self.frame_bytes_max} are allowed")
            if byte < 0x80:
                if byte == 0 and index > position:
                    self._fail("a frame's length is written longer than it needs to be")
                return size, index + 1
        return None

    def _fail(self, reason: str) -> None:
        self._failure = reason
        self._buffer.clear()
        raise DecodeError(reason)
