"""The driver of the protocol on real networks: streams over WebSocket and libp2p, and the service that runs a log on them."""

from .ground.admission import HubLimits
from .transport.muxed import Connection, Handler, Stream, open_muxed
from .transport.stream import ByteStream

__all__ = [
    "ByteStream",
    "Connection",
    "Handler",
    "HubLimits",
    "Stream",
    "open_muxed",
]
