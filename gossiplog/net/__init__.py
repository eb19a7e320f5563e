"""The driver of the protocol on real networks: streams over WebSocket and libp2p, and the service that runs a log over them."""

from .stream import ByteStream, Connection, Handler, Stream

__all__ = ["ByteStream", "Connection", "Handler", "Stream"]
