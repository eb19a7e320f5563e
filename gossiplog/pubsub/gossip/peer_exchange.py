"""Peer exchange: a PRUNE names other peers of the topic, with their signed records.

Source: gossipsub v1.1 specification, "Prune Backoff and Peer Exchange".
"""

from __future__ import annotations

from collections.abc import Iterable

from ..actions import Connect
from ..base import PubSub
from ..peers import Peer, choose
from ..rpc import PeerRecord, Prune
from ..types import PeerId, Topic
from .score import Scoring

__all__ = ["PeerExchange"]


class PeerExchange:
    """Offer peers and use offers.

    Args:
        core: The router.
        scoring: Whom to trust.
        count_max: Peers offered in one PRUNE, and dialled from one heartbeat to the next.
        is_offering: Whether we offer any.
    """

    __slots__ = ("_core", "_count_max", "_is_offering", "_left", "_records", "_scoring")

    def __init__(self, core: PubSub, scoring: Scoring, count_max: int, *, is_offering: bool) -> None:
        self._core = core
        self._scoring = scoring
        self._count_max = count_max
        self._is_offering = is_offering
        self._left = count_max
        self._records: dict[PeerId, bytes] = {}

    def learn(self, peer: PeerId, record: bytes) -> None:
        """Keep a connected peer's signed record."""
        if peer in self._core.peers:
            self._records[peer] = record

    def forget(self, peer: PeerId) -> None:
        """Drop what is known of a peer that has gone."""
        self._records.pop(peer, None)

    def offer(self, topic: Topic, pruned: Peer) -> tuple[PeerRecord, ...]:
        """Draw peers of the topic with a score that is not negative; for one whose own is, none."""
        score = self._scoring.of
        if not self._is_offering or score(pruned.id) < 0:
            return ()
        others = [
            peer.id
            for peer in self._core.topics.get(topic, {}).values()
            if peer is not pruned and peer.has_mesh and not peer.is_direct and score(peer.id) >= 0
        ]
        return tuple(PeerRecord(peer, self._records.get(peer)) for peer in choose(others, self._count_max, self._core.rng))

    def begin_tick(self) -> None:
        """Begin a heartbeat: a new allowance of dials."""
        self._left = self._count_max

    def accept(self, pruner: Peer, prunes: Iterable[Prune]) -> None:
        """Dial some of the peers that were offered, if the offerer's score allows."""
        if self._scoring.of(pruner.id) < self._scoring.thresholds.accept_px:
            return
        for prune in prunes:
            known = self._core.peers
            offered = [record for record in prune.peers if record.peer not in known]
            for record in choose(offered, self._left, self._core.rng):
                self._left -= 1
                self._core.out.append(Connect(record.peer, record.record, pruner.id))
