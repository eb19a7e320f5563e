"""Frames of yamux: a header of 12 bytes, big endian, and for data a body of as many bytes as it says.

Source: docs/spec/sync.md, "Mode A"; the yamux specification, "Framing".
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum, IntFlag
from functools import partial
from typing import NamedTuple

from ....errors import DecodeError

HEADER_BYTES = 12
BODY_BYTES_MAX = 65_536 - HEADER_BYTES
"""The longest body that we send, as the reference does, so that no stream holds up the others; we take any that fits the window."""
GO_AWAY_NORMAL = 0
GO_AWAY_VIOLATION = 1

_VERSION = 0
_HEADER = struct.Struct(">BBHII")
_PEEKED = struct.Struct(">III")
_KINDS_MAX = 3


class FrameKind(IntEnum):
    """A frame's purpose, which decides what its length means."""

    DATA = 0
    """The bytes that follow."""
    WINDOW = 1
    """How many more bytes the other side may send."""
    PING = 2
    """A value that is sent back."""
    GO_AWAY = 3
    """Why the connection ends."""


class Flags(IntFlag):
    """What a frame does to its stream; SYN and ACK are question and answer on a ping."""

    SYN = 1
    ACK = 2
    FIN = 4
    RST = 8


class Header(NamedTuple):
    """A header that was read. Flags that nobody has defined are kept, and mean nothing."""

    kind: int
    flags: int
    stream: int
    length: int


encode_header: Callable[[int, int, int, int], bytes] = partial(_HEADER.pack, _VERSION)
"""Encode a header of a kind, with flags, stream and length, both 0 … 2^32 − 1."""


peek_header: Callable[[bytes], tuple[int, int, int]] = _PEEKED.unpack_from
"""Read version, kind and flags as one number, which is 0 for data and nothing else, then stream and length; there must be 12 bytes."""


def decode_header(data: bytes, start: int = 0) -> Header:
    """Decode the 12 bytes at `start`, which must be there.

    Raises:
        DecodeError: The version or the kind is unknown, or the kind does not fit the stream: only pings and the going away are of
            stream 0, the connection itself.
    """
    version, kind, flags, stream, length = _HEADER.unpack_from(data, start)
    if version != _VERSION:
        raise DecodeError(f"yamux version {version}, expected {_VERSION}")
    if kind > _KINDS_MAX:
        raise DecodeError(f"yamux frame of kind {kind}, expected 0 … {_KINDS_MAX}")
    if (stream == 0) != (kind >= FrameKind.PING):
        raise DecodeError(f"yamux frame of kind {kind} for stream {stream}")
    return Header(kind, flags, stream, length)
