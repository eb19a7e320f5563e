"""From bytes to streams: TCP, WebSocket, the muxer, and the agreement on a stream's protocol."""

from .muxed import ConnectionEnd, Counters, EndKind, MuxedConnection, open_muxed
from .muxed_stream import MuxedStream
from .stream import ByteStream, Connection, Handler, Stream

__all__ = [
    "ByteStream",
    "Connection",
    "ConnectionEnd",
    "Counters",
    "EndKind",
    "Handler",
    "MuxedConnection",
    "MuxedStream",
    "Stream",
    "open_muxed",
]
