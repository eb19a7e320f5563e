"""Segments: 4,096 VALUEs in the order of their leaves, compressed in frames that can be read one by one, with an index at the end.

    "GLVALUE1"                                                   8 bytes
    frames, each one stream of zlib (RFC 1950)
    for each frame: bytes of the stream ‖ VALUEs ‖ bytes of what it holds        3 × uint32
    frames ‖ VALUEs ‖ "GLVALUE1"                                 2 × uint32, 8 bytes

A frame holds each VALUE's length (uint32) and bytes. All numbers are big-endian. A frame ends at a multiple of 256 leaves, or earlier with
the VALUE that brings it to 1 MiB; so it never holds more than 5 MiB.

Source: docs/spec/bucket.md, "Segments".
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from ..entry.rules import VALUE_BYTES_LIMIT
from ..errors import DecodeError
from .tiles import TILE_WIDTH, index_path

SEGMENT_WIDTH = 4_096
FRAME_BYTES = 1024 * 1024
FRAME_BYTES_MAX = FRAME_BYTES + 4 + VALUE_BYTES_LIMIT
_MAGIC = b"GLVALUE1"
_ENTRY = struct.Struct(">III")
_TRAILER = struct.Struct(">II8s")
_LENGTH = struct.Struct(">I")
_LEVEL = 6
INDEX_BYTES_MAX = SEGMENT_WIDTH * _ENTRY.size + _TRAILER.size
"""The longest index: a reader that takes this much of an object's end has all of it."""


class Frame(NamedTuple):
    """A frame's position in a segment, and its contents.

    Attributes:
        offset: The offset of its first byte in the segment.
        length: Its compressed length in bytes.
        first: The number of its first VALUE in the segment, from 0.
        held: How many VALUEs it holds, 1 to 256.
        size: Its length in bytes, uncompressed.
    """

    offset: int
    length: int
    first: int
    held: int
    size: int


def segment_path(index: int, width: int) -> str:
    """Return the path of a segment below its generation, `values/<N>[.p/<W>]`."""
    return f"values/{index_path(index)}" + (f".p/{width}" if width < SEGMENT_WIDTH else "")


class SegmentWriter:
    """A segment being written."""

    def __init__(self) -> None:
        self.count = 0
        self._frames: list[tuple[bytes, int, int]] = []
        self._open: list[bytes] = []
        self._size = 0

    def add(self, value: bytes) -> None:
        """Add the next VALUE. The last VALUE of a frame compresses the frame: 7 µs for each VALUE of 280 bytes."""
        self._open += (_LENGTH.pack(len(value)), value)
        self._size += _LENGTH.size + len(value)
        self.count += 1
        if self.count % TILE_WIDTH == 0 or self._size >= FRAME_BYTES:
            self._frames.append(self._frame())
            self._open, self._size = [], 0

    def to_bytes(self) -> bytes:
        """Return the segment's bytes as it is now. More VALUEs can be added afterwards."""
        frames = [*self._frames, *([self._frame()] if self._open else [])]
        index = [_ENTRY.pack(len(stream), count, size) for stream, count, size in frames]
        return b"".join([_MAGIC, *(stream for stream, _, _ in frames), *index, _TRAILER.pack(len(frames), self.count, _MAGIC)])

    def _frame(self) -> tuple[bytes, int, int]:
        return zlib.compress(b"".join(self._open), _LEVEL), len(self._open) // 2, self._size


def parse_index(end: bytes, size: int, count: int) -> list[Frame]:
    """Read the index of a segment.

    Args:
        end: The segment's last bytes, `INDEX_BYTES_MAX` of them or all there are.
        size: The segment's size in bytes.

    Raises:
        DecodeError: It is not a segment, has another number of VALUEs, or its frames break the rules above.
    """
    if len(end) < _TRAILER.size:
        raise DecodeError(f"{size:,} bytes are no segment")
    frames_count, values, magic = _TRAILER.unpack(end[-_TRAILER.size :])
    if magic != _MAGIC or values != count or not 0 < frames_count <= values <= SEGMENT_WIDTH:
        raise DecodeError(f"no segment of {count:,} VALUEs")
    at = len(end) - _TRAILER.size - frames_count * _ENTRY.size
    if at < 0:
        raise DecodeError("the segment's index is cut off")
    frames, offset, first = list[Frame](), len(_MAGIC), 0
    for length, held, held_size in _ENTRY.iter_unpack(end[at : -_TRAILER.size]):
        within = TILE_WIDTH - first % TILE_WIDTH
        if not 0 < held <= within or not held * _LENGTH.size < held_size <= FRAME_BYTES_MAX or length > FRAME_BYTES_MAX:
            raise DecodeError(f"frame {len(frames)} of the segment breaks the rules")
        frames.append(Frame(offset, length, first, held, held_size))
        offset, first = offset + length, first + held
    if first != values or offset + frames_count * _ENTRY.size + _TRAILER.size != size:
        raise DecodeError("the segment's index does not fit its frames")
    return frames


def unpack(data: bytes, frame: Frame) -> list[bytes]:
    """Return the VALUEs of a frame. Memory is bounded by the size in the index, whatever the bytes are.

    Raises:
        DecodeError: The bytes are not the frame that the index describes.
    """
    stream = zlib.decompressobj()
    try:
        held = stream.decompress(data, frame.size + 1)
    except zlib.error as error:
        raise DecodeError(f"a frame that is no zlib: {error}") from None
    if len(held) != frame.size or not stream.eof or stream.unused_data:
        raise DecodeError(f"a frame that does not hold {frame.size:,} bytes")
    values, at = [], 0
    for _ in range(frame.held):
        if at + _LENGTH.size > len(held):
            break
        (length,) = _LENGTH.unpack_from(held, at)
        at += _LENGTH.size
        values.append(held[at : at + length])
        at += length
    if at != len(held) or len(values) != frame.held:
        raise DecodeError(f"a frame that does not hold {frame.held} VALUEs")
    return values
