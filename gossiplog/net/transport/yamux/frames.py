"""Frames of yamux: a header of 12 bytes, big endian. A data frame has a body, whose length the header states.

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
"""The longest body that we send, as in the reference, so that no stream holds up the others. We accept any that fits the window."""
GO_AWAY_NORMAL = 0
GO_AWAY_VIOLATION = 1

_VERSION = 0
_HEADER = struct.Struct(">BBHII")
_KINDS_MAX = 3


class FrameKind(IntEnum):
    """A frame's purpose, which decides what its length field means."""

    DATA = 0
    """The length of the body."""
    WINDOW = 1
    """How many more bytes the other side may send."""
    PING = 2
    """A value that is sent back."""
    GO_AWAY = 3
    """Why the connection ends."""


class Flags(IntFlag):
    """What a frame does to its stream. On a ping, SYN marks the question and ACK the answer."""

    SYN = 1
    ACK = 2
    FIN = 4
    RST = 8


class Header(NamedTuple):
    """A header that was read. Undefined flags are kept and ignored."""

    kind: int
    flags: int
    stream: int
    length: int


encode_header: Callable[[int, int, int, int], bytes] = partial(_HEADER.pack, _VERSION)
"""Encode a header from its kind, flags, stream and length; the last two are 0 … 2^32 − 1."""


def decode_header(data: bytes, start: int = 0) -> Header:
    """Decode the 12 bytes at `start`, which must be there.

    Raises:
        DecodeError: The version or the kind is unknown, or the kind does not fit the stream: PING and GO_AWAY are for stream 0, the
            connection itself, and no other kind is.
    """
    version, kind, flags, stream, length = _HEADER.unpack_from(data, start)
    if version != _VERSION:
        raise DecodeError(f"yamux version {version}, expected {_VERSION}")
    if kind > _KINDS_MAX:
        raise DecodeError(f"yamux frame of kind {kind}, expected 0 … {_KINDS_MAX}")
    if (stream == 0) != (kind >= FrameKind.PING):
        raise DecodeError(f"yamux frame of kind {kind} for stream {stream}")
    return Header(kind, flags, stream, length)
