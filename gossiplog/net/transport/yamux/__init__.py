"""Yamux as a machine without I/O: many streams, each with a window, over one ordered stream of bytes."""

from .events import GoneAway, MuxerEvent, Opened, Readable, StreamEnded, Writable
from .frames import GO_AWAY_NORMAL, GO_AWAY_VIOLATION, Flags, FrameKind, Header, decode_header, encode_header
from .limits import QUEUE_BYTES, STREAMS_MAX
from .machine import Yamux
from .state import WINDOW_BYTES, WINDOW_BYTES_MAX, StreamState

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
    "Readable",
    "StreamEnded",
    "StreamState",
    "Writable",
    "Yamux",
    "decode_header",
    "encode_header",
]
