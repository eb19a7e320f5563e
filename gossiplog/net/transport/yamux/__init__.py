"""Yamux as a machine without I/O: many streams, each with a window, over one ordered stream of bytes."""

from .frames import GO_AWAY_NORMAL, GO_AWAY_VIOLATION, Flags, FrameKind, Header, decode_header, encode_header
from .machine import (
    QUEUE_BYTES,
    STREAMS_MAX,
    WINDOW_BYTES,
    WINDOW_BYTES_MAX,
    GoneAway,
    MuxerEvent,
    Opened,
    StreamEnded,
    StreamReadable,
    StreamState,
    Writable,
    Yamux,
)

__all__ = [
    "GO_AWAY_NORMAL",
    "GO_AWAY_VIOLATION",
    "QUEUE_BYTES",
    "STREAMS_MAX",
    "WINDOW_BYTES",
    "WINDOW_BYTES_MAX",
    "Flags",
    "FrameKind",
    "GoneAway",
    "Header",
    "MuxerEvent",
    "Opened",
    "StreamEnded",
    "StreamReadable",
    "StreamState",
    "Writable",
    "Yamux",
    "decode_header",
    "encode_header",
]
