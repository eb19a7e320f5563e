"""Fan-out peers: the peers we send to in topics that we publish to without having joined.

Source: gossipsub v1.0 specification, "Topic membership"; libp2p's guide, "Fan-out".
"""

from __future__ import annotations

from ..base import PubSub
from ..params import MeshsubParams
from ..peers import Peer, choose
from ..types import PeerId, Topic
from .score import Scoring


class Fanout:
    """The fan-out peers of each topic. Only our own publishing adds topics."""

    def __init__(self, core: PubSub, params: MeshsubParams, scoring: Scoring) -> None:
        self.peers: dict[Topic, dict[PeerId, Peer]] = {}
        self._published_at: dict[Topic, float] = {}
        self._core = core
        self._params = params
        self._scoring = scoring

    def use(self, topic: Topic) -> dict[PeerId, Peer]:
        """Return the peers to publish to now, topped up to D."""
        self._published_at[topic] = self._core.now
        self.peers.setdefault(topic, {})
        return self._fill(topic)

    def take(self, topic: Topic) -> list[Peer]:
        """Remove a topic that we join or no longer publish to, and return its peers."""
        self._published_at.pop(topic, None)
        return list(self.peers.pop(topic, {}).values())

    def remove_peer(self, topic: Topic, peer: Peer) -> None:
        """Drop a peer that left the topic or the network."""
        if topic in self.peers:
            self.peers[topic].pop(peer.id, None)

    def maintain(self) -> None:
        """Forget topics not published to for `fanout_ttl_s`, drop peers below the publish threshold, top up; once a heartbeat."""
        for topic in list(self.peers):
            if self._core.now - self._published_at[topic] > self._params.fanout_ttl_s:
                self.take(topic)
                continue
            peers, lowest = self.peers[topic], self._scoring.thresholds.publish
            for peer in [peer for peer in peers if self._scoring.of(peer) < lowest]:
                del peers[peer]
            self._fill(topic)

    def _fill(self, topic: Topic) -> dict[PeerId, Peer]:
        peers, core, params = self.peers[topic], self._core, self._params
        if len(peers) < params.D:
            lowest, score = self._scoring.thresholds.publish, self._scoring.of
            members = core.topics.get(topic, {})
            candidates = [peer for peer in members.values() if peer.is_meshable and peer.id not in peers and score(peer.id) >= lowest]
            for peer in choose(candidates, params.D - len(peers), core.rng):
                peers[peer.id] = peer
        return peers
