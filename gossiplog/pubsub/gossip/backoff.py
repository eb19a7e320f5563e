"""Backoff: whom not to graft again for a while, after a PRUNE in either direction."""

from __future__ import annotations

from ..types import PeerId, Topic

__all__ = ["Backoff"]


class Backoff:
    """For each topic the peers that are in backoff.

    Args:
        size_max: Peers remembered a topic; the one refreshed longest ago is forgotten first.
    """

    __slots__ = ("_size_max", "_topics")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._topics: dict[Topic, dict[PeerId, float]] = {}

    def __len__(self) -> int:
        """The size of the fullest topic."""
        return max(map(len, self._topics.values()), default=0)

    def add(self, topic: Topic, peer: PeerId, seconds: float, now: float) -> None:
        """Begin or refresh a backoff; it is never shortened."""
        peers = self._topics.setdefault(topic, {})
        until = peers.pop(peer, now)
        if len(peers) >= self._size_max:
            del peers[next(iter(peers))]
        peers[peer] = max(until, now + seconds)

    def until(self, peer: PeerId) -> float | None:
        """Until when a peer is not grafted, in whatever topic the longest; None where nothing is known. O(topics)."""
        return max((peers[peer] for peers in self._topics.values() if peer in peers), default=None)

    def is_active(self, topic: Topic, peer: PeerId, now: float) -> bool:
        """Whether a graft would come too early."""
        peers = self._topics.get(topic)
        return peers is not None and peer in peers and now < peers[peer]

    def is_flood(self, topic: Topic, peer: PeerId, now: float, threshold_s: float, whole_s: float) -> bool:
        """Whether the backoff, which must be active, has longer to last than a whole one has after the threshold.

        So a graft in a short one, as after leaving the topic, is no flood. Source: go-libp2p-pubsub, `handleGraft`; rust-libp2p has it too.
        """
        return now < self._topics[topic][peer] - whole_s + threshold_s

    def expire(self, now: float) -> None:
        """Forget what is over. O(size)."""
        for topic in list(self._topics):
            peers = {peer: until for peer, until in self._topics[topic].items() if now < until}
            if peers:
                self._topics[topic] = peers
            else:
                del self._topics[topic]
