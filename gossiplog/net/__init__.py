"""The driver of the protocol on real networks: streams over WebSocket and libp2p, and the service that runs a log on them."""

from .ground.admission import HubLimits
from .transport.muxed import MuxedConnection, MuxedStream, open_muxed
from .transport.stream import ByteStream, Connection, Handler, Stream

__all__ = [
    "ByteStream",
    "Connection",
    "Handler",
    "HubLimits",
    "MuxedConnection",
    "MuxedStream",
    "Stream",
    "open_muxed",
]
