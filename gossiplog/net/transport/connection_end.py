"""How a connection came to its end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["ConnectionEnd", "EndKind"]


class EndKind(Enum):
    """How a connection came to its end."""

    CLOSED = "closed"
    """We closed it."""
    GONE = "gone"
    """The peer closed it cleanly."""
    LOST = "lost"
    """What lies below broke, or the peer gave no sign of life."""
    SLOW = "slow"
    """The peer did not read what we sent."""
    VIOLATION = "violation"
    """The peer broke the protocol of the muxer."""


@dataclass(frozen=True, slots=True)
class ConnectionEnd:
    """Why a connection ended.

    Attributes:
        reason: One sentence without its full stop, for logs and people.
    """

    kind: EndKind
    reason: str
