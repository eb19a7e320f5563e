"""Peer scores: P1 to P7 with decay, and their thresholds.

Source: gossipsub v1.1 specification, "Peer Scoring"; counters and retention as in go-libp2p-pubsub's `score.go`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address

from ..params import ScoreParams, Thresholds, TopicScoreParams
from ..router import ScoreParts
from ..types import PeerId, Topic


class Scoring:
    """The interface to peer scores, for a router without any: every score is 0, and so are the thresholds."""

    thresholds = Thresholds(gossip=0, publish=0, graylist=0, accept_px=0, opportunistic_graft=0)

    def of(self, peer: PeerId) -> float:
        """Return a peer's score; 0 for an unknown peer."""
        return 0.0

    def penalise(self, peer: PeerId, count: int) -> None:
        """Count misbehaviour (P7)."""

    def reject(self, peer: PeerId, topic: Topic) -> None:
        """Count an invalid message (P4)."""

    def is_silent(self, peer: PeerId, topic: Topic) -> bool:
        """Whether a peer that has been in our mesh for long enough has brought nothing lately."""
        return False

    def graft(self, peer: PeerId, topic: Topic, now: float) -> None:
        """Note that the peer joined our mesh."""

    def prune(self, peer: PeerId, topic: Topic) -> None:
        """Note that the peer left our mesh."""


@dataclass(slots=True, eq=False)
class _TopicStats:
    grafted_at: float | None = None
    mesh_time_s: float = 0.0
    is_active: bool = False
    first_deliveries: float = 0.0
    mesh_deliveries: float = 0.0
    mesh_failure: float = 0.0
    invalid_messages: float = 0.0

    def is_blank(self) -> bool:
        return self.grafted_at is None and not (self.first_deliveries or self.mesh_deliveries or self.mesh_failure or self.invalid_messages)


@dataclass(slots=True, eq=False)
class _Stats:
    topics: dict[Topic, _TopicStats] = field(default_factory=dict)
    address: str | None = None
    app: float = 0.0
    behaviour: float = 0.0
    expires_at: float | None = None  # None while connected
    cached: float = 0.0
    is_stale: bool = False


class PeerScores(Scoring):
    """Keeps the counters and computes the scores.

    Scores are cached. A penalty takes effect at once; a rise (P1, P2, P3) at the next decay, at most `decay_interval_s` later. So a
    message costs no more than an addition.

    Attributes:
        retained: How many disconnected peers are remembered.
    """

    def __init__(self, params: ScoreParams) -> None:
        self._params = params
        self._peers: dict[PeerId, _Stats] = {}
        self._addresses: dict[str, dict[PeerId, None]] = {}
        self.retained = 0
        self._exempt = params.exempt_networks()
        self._decay_at: float | None = None
        self.thresholds = params.thresholds

    # Asking

    def of(self, peer: PeerId) -> float:
        """Return the score, without rises since the last decay; 0 for an unknown peer."""
        stats = self._peers.get(peer)
        if stats is None:
            return 0.0
        if stats.is_stale:
            stats.is_stale = False
            stats.cached = self._compute(stats).total
        return stats.cached

    def parts(self, peer: PeerId) -> ScoreParts:
        """Compute the score as of now, with its parts. O(topics)."""
        stats = self._peers.get(peer)
        return ScoreParts() if stats is None else self._compute(stats)

    # Connections

    def connect(self, peer: PeerId, address: str | None) -> None:
        """Note a peer that connected; its remembered score is taken up again."""
        stats = self._peers.get(peer)
        if stats is None:
            self._peers[peer] = stats = _Stats()
        elif stats.expires_at is not None:
            stats.expires_at = None
            self.retained -= 1
        self._set_address(peer, stats, address)
        stats.is_stale = True

    def disconnect(self, peer: PeerId, now: float) -> None:
        """Note a peer that disconnected; its counters are kept for `retain_s` unless its score is positive."""
        stats = self._peers[peer]
        params = self._params
        if self._compute(stats).total > 0:
            self._forget(peer)
            return
        for topic, counts in stats.topics.items():
            counts.first_deliveries = 0.0
            self._end_mesh(topic, counts)
        stats.is_stale = True
        stats.expires_at = now + params.retain_s
        del self._peers[peer]  # then re-inserted at the end: retained peers are in the order of leaving
        self._peers[peer] = stats
        self.retained += 1
        if self.retained > params.retained_max:
            self._forget(next(other for other, entry in self._peers.items() if entry.expires_at is not None))
            self.retained -= 1

    def _forget(self, peer: PeerId) -> None:
        self._set_address(peer, self._peers[peer], None)
        del self._peers[peer]

    def _set_address(self, peer: PeerId, stats: _Stats, address: str | None) -> None:
        if address is not None and self._is_exempt(address):
            address = None
        if stats.address == address:
            return
        old, stats.address = stats.address, address
        if old is not None:
            del self._addresses[old][peer]
            self._mark_stale(old)
            if not self._addresses[old]:
                del self._addresses[old]
        if address is not None:
            self._addresses.setdefault(address, {})[peer] = None
            self._mark_stale(address)

    def _is_exempt(self, address: str) -> bool:
        try:
            parsed = ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._exempt)

    def _mark_stale(self, address: str) -> None:
        for peer in self._addresses[address]:
            self._peers[peer].is_stale = True

    # The mesh

    def graft(self, peer: PeerId, topic: Topic, now: float) -> None:
        """Note that the peer joined our mesh: P1 and P3 begin."""
        counts = self._counts(peer, topic)
        if counts is not None:
            counts.grafted_at = now
            counts.mesh_time_s = 0.0
            counts.is_active = False

    def prune(self, peer: PeerId, topic: Topic) -> None:
        """Note that the peer left our mesh: P3's deficit stays as P3b."""
        counts = self._counts(peer, topic)
        if counts is not None:
            self._end_mesh(topic, counts)
            self._peers[peer].is_stale = True

    def _end_mesh(self, topic: Topic, counts: _TopicStats) -> None:
        params = self._topic_params(topic)
        if params is not None and counts.grafted_at is not None and counts.is_active:
            deficit = params.mesh_deliveries_threshold - counts.mesh_deliveries
            if deficit > 0:
                counts.mesh_failure += deficit * deficit
        counts.grafted_at = None
        counts.is_active = False

    def is_silent(self, peer: PeerId, topic: Topic) -> bool:
        """Whether a peer is in our mesh for longer than P3's activation time, and its counters of deliveries have decayed to 0."""
        stats = self._peers.get(peer)
        counts = None if stats is None else stats.topics.get(topic)
        return counts is not None and counts.is_active and not counts.first_deliveries and not counts.mesh_deliveries

    # Messages

    def counts_copies(self, topic: Topic) -> bool:
        """Whether further copies of a message count in the topic: P3 or P3b is on."""
        params = self._topic_params(topic)
        return params is not None and (params.mesh_deliveries_weight < 0 or params.mesh_failure_weight < 0)

    def deliver_first(self, peer: PeerId, topic: Topic) -> None:
        """Credit the peer for the first copy of an accepted message (P2, P3)."""
        params = self._topic_params(topic)
        if params is None or (counts := self._counts(peer, topic)) is None:
            return
        counts.first_deliveries = min(counts.first_deliveries + 1, params.first_deliveries_cap)
        if counts.grafted_at is not None:
            counts.mesh_deliveries = min(counts.mesh_deliveries + 1, params.mesh_deliveries_cap)

    def deliver_again(self, peer: PeerId, topic: Topic, late_s: float) -> None:
        """Credit the peer for a further copy that came `late_s` after the first was accepted; 0 or less if before (P3)."""
        params = self._topic_params(topic)
        if params is None or late_s > params.mesh_deliveries_window_s or (counts := self._counts(peer, topic)) is None:
            return
        if counts.grafted_at is not None:
            counts.mesh_deliveries = min(counts.mesh_deliveries + 1, params.mesh_deliveries_cap)

    def reject(self, peer: PeerId, topic: Topic) -> None:
        """Penalise the peer for a copy of a rejected message (P4)."""
        counts = self._counts(peer, topic)
        if counts is not None:
            counts.invalid_messages += 1
            self._peers[peer].is_stale = True

    # The rest

    def penalise(self, peer: PeerId, count: int) -> None:
        """Count misbehaviour (P7)."""
        stats = self._peers.get(peer)
        if stats is not None:
            stats.behaviour += count
            stats.is_stale = True

    def set_app(self, peer: PeerId, value: float) -> None:
        """Set the application's own score (P5) of a known peer."""
        stats = self._peers.get(peer)
        if stats is not None:
            stats.app = value
            stats.is_stale = True

    def decay(self, now: float) -> None:
        """Decay every counter, update mesh times, forget peers retained for `retain_s`. O(peers × topics).

        Decays as often as `decay_interval_s` has passed by the clock, however often it is called.
        """
        interval_s = self._params.decay_interval_s
        if self._decay_at is None:
            self._decay_at = now
        elif now < self._decay_at:
            return
        passed = 1 + int((now - self._decay_at) / interval_s)
        self._decay_at += passed * interval_s
        for peer, stats in list(self._peers.items()):
            stats.is_stale = True
            if stats.expires_at is None:
                self._decay_peer(stats, now, passed)
            elif now >= stats.expires_at:
                self._forget(peer)
                self.retained -= 1

    def _decay_peer(self, stats: _Stats, now: float, passed: int) -> None:
        zero = self._params.decay_to_zero
        stats.behaviour = _decayed(stats.behaviour, self._params.behaviour_decay**passed, zero)
        for topic, counts in list(stats.topics.items()):
            params = self._topic_params(topic)
            if params is None or counts.is_blank():
                del stats.topics[topic]
                continue
            counts.first_deliveries = _decayed(counts.first_deliveries, params.first_deliveries_decay**passed, zero)
            counts.mesh_deliveries = _decayed(counts.mesh_deliveries, params.mesh_deliveries_decay**passed, zero)
            counts.mesh_failure = _decayed(counts.mesh_failure, params.mesh_failure_decay**passed, zero)
            counts.invalid_messages = _decayed(counts.invalid_messages, params.invalid_messages_decay**passed, zero)
            if counts.grafted_at is not None:
                counts.mesh_time_s = now - counts.grafted_at
                counts.is_active = counts.mesh_time_s > params.mesh_deliveries_activation_s

    # Private

    def _topic_params(self, topic: Topic) -> TopicScoreParams | None:
        return self._params.topics.get(topic, self._params.default_topic)

    def _counts(self, peer: PeerId, topic: Topic) -> _TopicStats | None:
        stats = self._peers.get(peer)
        if stats is None or self._topic_params(topic) is None:
            return None
        counts = stats.topics.get(topic)
        if counts is None:
            stats.topics[topic] = counts = _TopicStats()
        return counts

    def _compute(self, stats: _Stats) -> ScoreParts:
        p1 = p2 = p3 = p3b = p4 = 0.0
        for topic, counts in stats.topics.items():
            params = self._topic_params(topic)
            if params is None:
                continue
            weight = params.topic_weight
            if counts.grafted_at is not None:
                quanta = counts.mesh_time_s // params.time_in_mesh_quantum_s
                p1 += weight * params.time_in_mesh_weight * min(quanta, params.time_in_mesh_cap)
            p2 += weight * params.first_deliveries_weight * counts.first_deliveries
            deficit = params.mesh_deliveries_threshold - counts.mesh_deliveries
            if counts.is_active and deficit > 0:
                p3 += weight * params.mesh_deliveries_weight * deficit * deficit
            p3b += weight * params.mesh_failure_weight * counts.mesh_failure
            p4 += weight * params.invalid_messages_weight * counts.invalid_messages**2
        total = p1 + p2 + p3 + p3b + p4
        if self._params.topic_cap:
            total = min(total, self._params.topic_cap)
        params5 = self._params
        p5 = params5.app_specific_weight * stats.app
        p6 = p7 = 0.0
        if stats.address is not None:
            surplus = len(self._addresses[stats.address]) - params5.ip_colocation_threshold
            p6 = params5.ip_colocation_weight * max(0, surplus) ** 2
        excess = stats.behaviour - params5.behaviour_threshold
        if excess > 0:
            p7 = params5.behaviour_weight * excess * excess
        return ScoreParts(total + p5 + p6 + p7, p1, p2, p3, p3b, p4, p5, p6, p7)


def _decayed(count: float, decay: float, zero: float) -> float:
    count *= decay
    return count if count >= zero else 0.0
