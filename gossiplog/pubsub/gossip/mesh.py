"""The meshes: GRAFT, PRUNE and their back-off, peer exchange, and the heartbeat's upkeep of D_lo ≤ degree ≤ D_hi.

Source: gossipsub v1.0 specification, "The gossipsub protocol"; v1.1, "Outbound Mesh Quotas", "Opportunistic Grafting"; the order
of the checks as in go-libp2p-pubsub.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from ..actions import Connect
from ..base import PubSub
from ..params import MeshsubParams
from ..peers import Peer, choose
from ..rpc import PeerRecord, Prune
from ..types import PeerId, Topic
from .score import Scoring

_BACKOFF_EXPIRY_TICKS = 15


class TopicMeshes:
    """The meshes of all topics that we are in.

    Attributes:
        links: For each joined topic the peers in its mesh, in the order of grafting.
        backoff: The peers not to be grafted yet.
        prune_first: Returns the mesh peers of a topic that are pruned before others when there are too many; set by `choke`.
        on_pruned: Called for every link that ends; set by `choke`.
        helpers: For each joined topic the peers outside the mesh that, since the last heartbeat, served on request a message that the mesh
            had not brought.
    """

    def __init__(self, core: PubSub, params: MeshsubParams, scoring: Scoring, exchange: PeerExchange) -> None:
        self.links: dict[Topic, dict[PeerId, Peer]] = {}
        self.backoff = GraftBackoff(params.backoffs_max)
        self.prune_first: Callable[[Topic], dict[PeerId, None]] | None = None
        self.on_pruned: Callable[[Topic, PeerId], None] | None = None
        self.helpers: dict[Topic, dict[PeerId, None]] = {}
        self._core = core
        self._params = params
        self._scoring = scoring
        self._exchange = exchange

    # Membership

    def join(self, topic: Topic, preferred: list[Peer]) -> None:
        """Make a topic's mesh: up to D of the `preferred` peers that may be grafted, then others up to D."""
        self.links[topic] = {}
        for peer in preferred[: self._params.D]:
            if self._may_graft(topic, peer) and self._scoring.of(peer.id) >= 0:
                self._graft(topic, peer)
        self._fill(topic)

    def leave(self, topic: Topic) -> None:
        """Prune every peer of the topic's mesh, and forget the mesh."""
        for peer in list(self.links[topic].values()):
            self._prune(topic, peer, self._params.unsubscribe_backoff_s)
        del self.links[topic]
        self.helpers.pop(topic, None)

    def remove_peer(self, topic: Topic, peer: Peer) -> None:
        """Drop a peer that left the topic or the network, without sending it a PRUNE."""
        if peer.id in self.links.get(topic, ()):
            self._unlink(topic, peer)

    # What peers say

    def on_graft(self, peer: Peer, topics: tuple[Topic, ...]) -> None:
        """Accept a peer into meshes, or answer with PRUNE. Topics that we are not in get no answer."""
        params, core = self._params, self._core
        for topic in topics:
            links = self.links.get(topic)
            if links is None or peer.id in links or not peer.features.mesh:
                continue
            if topic not in peer.topics and not core.add_to_topic(topic, peer):
                continue  # a GRAFT announces the topic too, in case the announcement was lost; but this peer is in too many topics
            is_early = not peer.is_direct and self.backoff.is_active(topic, peer.id, core.now)
            if is_early:
                is_flood = self.backoff.is_flood(topic, peer.id, core.now, params.graft_flood_threshold_s, params.prune_backoff_s)
                self._scoring.penalise(peer.id, 2 if is_flood else 1)
            if peer.is_direct or is_early or self._scoring.of(peer.id) < 0:
                self._say_prune(topic, peer, params.prune_backoff_s, with_px=False)
            elif len(links) >= params.D_hi and not peer.is_outbound:
                self._say_prune(topic, peer, params.prune_backoff_s, with_px=True)
            else:
                self._link(topic, peer)

    def on_prune(self, peer: Peer, prunes: tuple[Prune, ...]) -> None:
        """Drop a peer from meshes, back off for as long as it asks (at most `prune_backoff_max_s`), use its peer exchange."""
        params = self._params
        heeded = []
        for prune in prunes:
            if prune.topic not in self.links:
                continue
            seconds = prune.backoff_s or params.prune_backoff_s
            self.backoff.add(prune.topic, peer.id, min(seconds, params.prune_backoff_max_s), self._core.now)
            self.remove_peer(prune.topic, peer)
            heeded.append(prune)
        self._exchange.accept(peer, heeded)

    # The heartbeat

    def maintain(self, topic: Topic, tick: int) -> None:
        """Keep a joined topic's mesh within its bounds; `tick` is the heartbeat's number, from 1."""
        params, links = self._params, self.links[topic]
        score = self._scoring.of
        for peer in [peer for peer in links.values() if score(peer.id) < 0]:
            self._prune(topic, peer, params.prune_backoff_s, with_px=False)
        if len(links) < params.D_lo:
            self._fill(topic)
        elif len(links) > params.D_hi:
            self._trim(topic)
        if len(links) >= params.D_lo:
            missing = params.D_out - sum(peer.is_outbound for peer in links.values())
            if missing > 0:
                self._graft_some(topic, missing, lambda peer: peer.is_outbound and score(peer.id) >= 0)
        if tick % params.opportunistic_graft_ticks == 0 and len(links) > 1:
            median = sorted(map(score, links))[len(links) // 2]
            if median < self._scoring.thresholds.opportunistic_graft:
                self._graft_some(topic, params.opportunistic_graft_peers, lambda peer: score(peer.id) > median)

    def repair(self, topic: Topic) -> None:
        """After the mesh missed a message, replace some mesh peers that bring nothing by `helpers`; once a heartbeat.

        The pruned peers lose no score: in a log whose entries all come from one side, peers on the other side have nothing to bring.
        """
        params, scoring, helpers = self._params, self._scoring, self.helpers.pop(topic)
        silent = [peer for peer in self.links[topic].values() if scoring.is_silent(peer.id, topic)]
        for peer in choose(silent, params.repair_peers, self._core.rng):
            self._prune(topic, peer, params.prune_backoff_s)
        self._graft_some(topic, params.repair_peers, lambda peer: peer.id in helpers and scoring.of(peer.id) > 0)

    def expire(self, tick: int) -> None:
        """Forget backoffs that are over, every 15 heartbeats."""
        if tick % _BACKOFF_EXPIRY_TICKS == 0:
            self.backoff.expire(self._core.now - self._params.heartbeat_s)

    def _fill(self, topic: Topic) -> None:
        score = self._scoring.of
        self._graft_some(topic, self._params.D - len(self.links[topic]), lambda peer: score(peer.id) >= 0)

    def _graft_some(self, topic: Topic, count: int, accepts: Callable[[Peer], bool]) -> None:
        core = self._core
        members = core.topics.get(topic, {})
        candidates = [peer for peer in members.values() if self._may_graft(topic, peer) and accepts(peer)]
        for peer in choose(candidates, count, core.rng):
            self._graft(topic, peer)

    def _may_graft(self, topic: Topic, peer: Peer) -> bool:
        if peer.id in self.links[topic] or not peer.is_meshable:
            return False
        # A heartbeat of slack for the peer's clock and the delay: a graft that the peer finds too early costs us score.
        return not self.backoff.is_active(topic, peer.id, self._core.now - self._params.heartbeat_s)

    def _trim(self, topic: Topic) -> None:
        """Prune down to D: keep the D_score best, at least D_out that we dialled, and random others."""
        params, rng = self._params, self._core.rng
        peers = list(self.links[topic].values())
        choose(peers, len(peers), rng)
        peers.sort(key=lambda peer: -self._scoring.of(peer.id))
        best, rest = peers[: params.D_score], peers[params.D_score :]
        choose(rest, len(rest), rng)
        if self.prune_first is not None:
            doomed = self.prune_first(topic)
            rest.sort(key=lambda peer: peer.id in doomed)
        order = best + rest
        kept, dropped = order[: params.D], order[params.D :]
        outbound = [peer for peer in kept if peer.is_outbound]
        missing = params.D_out - len(outbound)
        if missing > 0:
            saved = [peer for peer in dropped if peer.is_outbound][:missing]
            inbound = [peer for peer in kept if not peer.is_outbound]
            kept = outbound + saved + inbound[: params.D - len(outbound) - len(saved)]
        kept_ids = {peer.id for peer in kept}
        for peer in order:
            if peer.id not in kept_ids:
                self._prune(topic, peer, params.prune_backoff_s)

    # Links

    def _graft(self, topic: Topic, peer: Peer) -> None:
        self._link(topic, peer)
        self._core.draft(peer.id).add_graft(topic)

    def _link(self, topic: Topic, peer: Peer) -> None:
        self.links[topic][peer.id] = peer
        self._scoring.graft(peer.id, topic, self._core.now)

    def _unlink(self, topic: Topic, peer: Peer) -> None:
        del self.links[topic][peer.id]
        self._scoring.prune(peer.id, topic)
        if self.on_pruned is not None:
            self.on_pruned(topic, peer.id)

    def _prune(self, topic: Topic, peer: Peer, backoff_s: float, *, with_px: bool = True) -> None:
        self._unlink(topic, peer)
        self._say_prune(topic, peer, backoff_s, with_px=with_px)

    def _say_prune(self, topic: Topic, peer: Peer, backoff_s: float, *, with_px: bool) -> None:
        core = self._core
        self.backoff.add(topic, peer.id, backoff_s, core.now)
        if peer.features.px:
            offered = self._exchange.offer(topic, peer) if with_px else ()
            core.draft(peer.id).add_prune(Prune(topic, offered, math.ceil(backoff_s)))
        else:
            core.draft(peer.id).add_prune(Prune(topic))


class GraftBackoff:
    """For each topic the peers that are in backoff.

    Args:
        size_max: Peers remembered per topic; the one refreshed longest ago is forgotten first.
    """

    __slots__ = ("_size_max", "_topics")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._topics: dict[Topic, dict[PeerId, float]] = {}

    def __len__(self) -> int:
        """The number of peers of the topic that has the most."""
        return max(map(len, self._topics.values()), default=0)

    def add(self, topic: Topic, peer: PeerId, seconds: float, now: float) -> None:
        """Begin or refresh a backoff; it is never shortened."""
        peers = self._topics.setdefault(topic, {})
        until = peers.pop(peer, now)
        if len(peers) >= self._size_max:
            del peers[next(iter(peers))]
        peers[peer] = max(until, now + seconds)

    def until(self, peer: PeerId) -> float | None:
        """When the last of a peer's back-offs ends, over all topics; None if it has none. O(topics)."""
        return max((peers[peer] for peers in self._topics.values() if peer in peers), default=None)

    def is_active(self, topic: Topic, peer: PeerId, now: float) -> bool:
        """Whether a graft at `now` would be too early."""
        peers = self._topics.get(topic)
        return peers is not None and peer in peers and now < peers[peer]

    def is_flood(self, topic: Topic, peer: PeerId, now: float, threshold_s: float, whole_s: float) -> bool:
        """Whether a graft comes within `threshold_s` of the start of an active back-off of `whole_s`.

        A shorter back-off, as after leaving the topic, counts as if it had begun earlier. Source: go-libp2p-pubsub, `handleGraft`;
        rust-libp2p does the same.
        """
        return now < self._topics[topic][peer] - whole_s + threshold_s

    def expire(self, now: float) -> None:
        """Forget back-offs that are over. O(size)."""
        for topic in list(self._topics):
            peers = {peer: until for peer, until in self._topics[topic].items() if now < until}
            if peers:
                self._topics[topic] = peers
            else:
                del self._topics[topic]


class PeerExchange:
    """Offer peers in PRUNEs, and dial peers that are offered to us.

    Source: gossipsub v1.1 specification, "Prune Backoff and Peer Exchange".

    Attributes:
        count_max: Peers offered in one PRUNE; also the peers dialled per heartbeat.
        is_offering: Whether peers are offered at all.
    """

    __slots__ = ("_core", "_dialled", "_records", "_scoring", "count_max", "is_offering")

    def __init__(self, core: PubSub, scoring: Scoring) -> None:
        self.count_max = 0
        self.is_offering = False
        self._core = core
        self._scoring = scoring
        self._dialled = 0  # in this heartbeat
        self._records: dict[PeerId, bytes] = {}

    def learn(self, peer: PeerId, record: bytes) -> None:
        """Keep a connected peer's signed record."""
        if peer in self._core.peers:
            self._records[peer] = record

    def forget(self, peer: PeerId) -> None:
        """Drop the record of a peer that disconnected."""
        self._records.pop(peer, None)

    def offer(self, topic: Topic, pruned: Peer) -> tuple[PeerRecord, ...]:
        """Draw peers of the topic whose score is not negative; none if the pruned peer's own score is."""
        score = self._scoring.of
        if not self.is_offering or score(pruned.id) < 0:
            return ()
        members = self._core.topics.get(topic, {}).values()
        others = [peer.id for peer in members if peer.is_meshable and peer is not pruned and score(peer.id) >= 0]
        return tuple(PeerRecord(peer, self._records.get(peer)) for peer in choose(others, self.count_max, self._core.rng))

    def begin_tick(self) -> None:
        """Begin a heartbeat, with a new allowance of dials."""
        self._dialled = 0

    def accept(self, pruner: Peer, prunes: Iterable[Prune]) -> None:
        """Dial some of the peers offered, if the pruner's score is at least `accept_px`."""
        if self._scoring.of(pruner.id) < self._scoring.thresholds.accept_px:
            return
        for prune in prunes:
            known = self._core.peers
            offered = [record for record in prune.peers if record.peer not in known]
            for record in choose(offered, self.count_max - self._dialled, self._core.rng):
                self._dialled += 1
                self._core.out.append(Connect(record.peer, record.record, pruner.id))
