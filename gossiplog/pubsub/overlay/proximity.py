"""Proximity: smoothed round trips to the members of an overlay.

Source: "Episub" (r1), "Active View Management"; GoCast (DSN 2005), section 2.2.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..types import PeerId

__all__ = ["RoundTrips"]


class RoundTrips:
    """The smoothed round trips to the members of one topic's views; bounded by forgetting whoever leaves them.

    Args:
        gain: Weight of a new sample.
    """

    __slots__ = ("_gain", "_rtts")

    def __init__(self, gain: float) -> None:
        self._gain = gain
        self._rtts: dict[PeerId, float] = {}

    def add(self, peer: PeerId, rtt_s: float) -> None:
        """Take in a sample, seconds."""
        old = self._rtts.get(peer)
        self._rtts[peer] = rtt_s if old is None else old + self._gain * (rtt_s - old)

    def get(self, peer: PeerId) -> float | None:
        """Seconds, or None if it was never measured."""
        return self._rtts.get(peer)

    def forget(self, peer: PeerId) -> None:
        """Drop what is known of a peer."""
        self._rtts.pop(peer, None)

    def nearest(self, peers: Iterable[PeerId]) -> PeerId | None:
        """The measured peer with the smallest round trip."""
        rtts = self._rtts
        return min((peer for peer in peers if peer in rtts), key=rtts.__getitem__, default=None)

    def farthest(self, peers: Iterable[PeerId]) -> PeerId | None:
        """The measured peer with the largest round trip."""
        rtts = self._rtts
        return max((peer for peer in peers if peer in rtts), key=rtts.__getitem__, default=None)

    def is_closer(self, peer: PeerId, other: PeerId, alpha: float) -> bool:
        """Whether both are measured and the first one's round trip is below alpha times the other's."""
        return peer in self._rtts and other in self._rtts and self._rtts[peer] < alpha * self._rtts[other]
