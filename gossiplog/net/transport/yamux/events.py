"""What the muxer tells its driver when bytes arrive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from .state import StreamState

__all__ = ["GoneAway", "MuxerEvent", "Opened", "Readable", "StreamEnded", "Writable"]


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer opened a stream. It keeps one of the places until `Yamux.release`, whatever becomes of it."""

    stream: StreamState


@dataclass(slots=True)
class Readable:
    """Bytes arrived, or the end. May come several times for the same ones. Not frozen for speed: there is one for nearly every frame."""

    stream: StreamState


@dataclass(frozen=True, slots=True)
class Writable:
    """The peer's window has grown."""

    stream: StreamState


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The stream was reset, by the peer or for what the peer did."""

    stream: StreamState


@dataclass(frozen=True, slots=True)
class GoneAway:
    """The peer ends the connection.

    Attributes:
        code: 0 when nothing is wrong, 1 when it thinks that we broke the protocol, 2 for its own fault.
    """

    code: int


MuxerEvent: TypeAlias = Opened | Readable | Writable | StreamEnded | GoneAway
